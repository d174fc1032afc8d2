"""What travels between a real AWS client and the emulated cloud: requests in, answers out."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

EC2_XML = "http://ec2.amazonaws.com/doc/2016-11-15/"


class ApiError(Exception):
    """The cloud refuses a call, in its own words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer."""

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Request:
    """One signed API call, taken apart. `form` is for the query protocols, `data` for JSON."""

    environ: dict[str, Any]
    body: bytes
    service: str
    region: str
    name: str
    form: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        return "HTTP_X_AMZ_TARGET" in self.environ

    def numbered(self, key: str) -> list[str]:
        """The values of `key.1`, `key.2`, ... of a query request."""
        found = []
        while (value := self.form.get(f"{key}.{len(found) + 1}")) is not None:
            found.append(value)
        return found

    def members(self, key: str) -> list[str]:
        """The values of `key.member.1`, ... of a query request."""
        return self.numbered(f"{key}.member")

    def filters(self) -> dict[str, list[str]]:
        """`Filter.N.Name` and `Filter.N.Value.M` of a query request."""
        found: dict[str, list[str]] = {}
        n = 1
        while name := self.form.get(f"Filter.{n}.Name"):
            found[name] = self.numbered(f"Filter.{n}.Value")
            n += 1
        return found

    def tags(self, resource_type: str) -> dict[str, str]:
        """The tags that a create call gives to resources of this type."""
        found: dict[str, str] = {}
        n = 1
        while given := self.form.get(f"TagSpecification.{n}.ResourceType"):
            if given == resource_type:
                found.update(self._tags_of(f"TagSpecification.{n}.Tag"))
            n += 1
        return found

    def _tags_of(self, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        while key := self.form.get(f"{prefix}.{len(found) + 1}.Key"):
            found[key] = self.form.get(f"{prefix}.{len(found) + 1}.Value", "")
        return found

    def with_form(self, form: Mapping[str, str]) -> Request:
        """The same call with other parameters, for the emulation behind."""
        environ = dict(self.environ)
        body = urlencode(dict(form)).encode()
        return Request(environ, body, self.service, self.region, self.name, dict(form))

    def replayed(self) -> dict[str, Any]:
        """A WSGI environment whose body can be read once more."""
        environ = dict(self.environ)
        environ["wsgi.input"] = io.BytesIO(self.body)
        environ["CONTENT_LENGTH"] = str(len(self.body))
        return environ


def parse(environ: dict[str, Any]) -> Request:
    """Take a WSGI request apart; service and region come from the signature's scope."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    service, region = _scope(environ.get("HTTP_AUTHORIZATION", ""))
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        data = json.loads(body or b"{}")
        return Request(environ, body, service, region, target.rpartition(".")[2], data=data)
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    return Request(environ, body, service, region, form.get("Action", ""), form)


def _scope(authorization: str) -> tuple[str, str]:
    # The scope is: key, day, region, service, and a fixed last word.
    parts = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    return (parts[3], parts[2]) if len(parts) == 5 else ("", "")


def error_reply(request: Request, error: ApiError) -> Reply:
    """An error as the service's protocol spells it."""
    request_id = str(uuid.uuid4())
    if request.is_json:
        text = json.dumps({"__type": error.code, "message": error.message})
        headers = (("x-amzn-ErrorType", error.code), ("x-amzn-RequestId", request_id))
        return Reply(error.status, text.encode(), "application/x-amz-json-1.1", headers)
    inner = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if request.service == "ec2":
        text = (
            f"<Response><Errors><Error>{inner}</Error></Errors>"
            f"<RequestID>{request_id}</RequestID></Response>"
        )
    else:
        text = (
            f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    return Reply(error.status, _xml(text), "text/xml;charset=UTF-8")


def json_reply(data: Mapping[str, Any]) -> Reply:
    """An answer of a JSON service."""
    headers = (("x-amzn-RequestId", str(uuid.uuid4())),)
    return Reply(200, json.dumps(data).encode(), "application/x-amz-json-1.1", headers)


def ec2_reply(name: str, data: Mapping[str, Any]) -> Reply:
    """An answer of EC2: mappings become elements, lists become `<item>`s."""
    text = (
        f'<{name}Response xmlns="{EC2_XML}"><requestId>{uuid.uuid4()}</requestId>'
        f"{_elements(data)}</{name}Response>"
    )
    return Reply(200, _xml(text), "text/xml;charset=UTF-8")


def _elements(value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{_elements(inner)}</{key}>" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "".join(f"<item>{_elements(inner)}</item>" for inner in value)
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bool):
        return str(value).lower()
    return escape(str(value))


def timestamp(moment: datetime) -> str:
    """A time as EC2 writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _xml(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
