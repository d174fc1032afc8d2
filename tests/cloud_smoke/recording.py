"""Listens at the borders of the SDKs, in this process; the product knows nothing of it.

boto3 has events for that. Google's libraries have none, so their one door each (a session's
`request`, a channel's interceptors) is widened.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cloud_smoke.transcript import Disguise, Transcript

PATH, SECRET = "SMOKE_TRANSCRIPT", "SMOKE_SECRET"
NO_ANSWER = "no answer"
_COMPUTE = re.compile(
    r"/compute/v1/projects/[^/]+/"
    r"(?:(?P<scope>zones|regions)/(?P<where>[^/?]+)/|global/|aggregated/)?"
    r"(?P<kind>[A-Za-z]+)(?:/(?P<name>[^/?]+))?(?:/(?P<verb>[A-Za-z]+))?"
)
_VERBS = {
    "getGuestAttributes": "getGuestAttributes",
    "serialPort": "getSerialPortOutput",
    "wait": "wait",
}
_PROJECT = re.compile(r"/compute/v1/projects/[^/?]+(\?|$)")
_BY_METHOD = {"POST": "insert", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}


def environment(path: Path, secret: bytes) -> dict[str, str]:
    """What a process is given so that `install` records there."""
    return {PATH: str(path), SECRET: secret.hex()}


def install(transcript: Transcript | None = None) -> Transcript:
    """Record every call that this process makes from now on."""
    if transcript is None:
        secret = bytes.fromhex(os.environ[SECRET])
        transcript = Transcript(Path(os.environ[PATH]), Disguise(secret))
    _listen_to_boto(transcript)
    _listen_to_rest(transcript)
    _listen_to_grpc(transcript)
    return transcript


def _listen_to_boto(transcript: Transcript) -> None:
    import botocore.session

    begin = botocore.session.Session.__init__

    def before(context: dict[str, Any], request_signer: Any, **_: Any) -> None:
        context["smoke"] = (time.time(), request_signer.region_name)

    def told(context: Mapping[str, Any], model: Any, code: str, status: int, answer: Any) -> None:
        at, region = context.get("smoke", (time.time(), ""))
        took = {"at": at, "duration_s": time.time() - at}
        said = {"code": code, "status": status, "answer": answer}
        transcript.call("aws", model.name, where=region, **took, **said)

    def after(http_response: Any, parsed: Any, model: Any, context: Any, **_: Any) -> None:
        code = parsed.get("Error", {}).get("Code", "ok")
        told(context, model, code, http_response.status_code, parsed)

    def lost(exception: Exception, context: Any, event_name: str, **_: Any) -> None:
        class Model:
            name = event_name.rpartition(".")[2]

        told(context, Model, NO_ANSWER, 0, {"error": type(exception).__name__})

    def with_events(session: Any, *words: Any, **more: Any) -> None:
        begin(session, *words, **more)
        for event, listener in (
            ("before-call", before),
            ("after-call", after),
            ("after-call-error", lost),
        ):
            session.register(event, listener)

    botocore.session.Session.__init__ = with_events


def _listen_to_rest(transcript: Transcript) -> None:
    from google.auth.transport.requests import AuthorizedSession

    ask = AuthorizedSession.request

    def asked(session: Any, method: str, url: str, *words: Any, **more: Any) -> Any:
        name, where = compute_call(method, url)
        at = time.time()
        code, status, answer = NO_ANSWER, 0, None
        try:
            response = ask(session, method, url, *words, **more)
            status = response.status_code
            answer = _json(response.text)
            code = rest_code(status, answer)
        finally:
            transcript.call(
                "gcp",
                name,
                where=where,
                code=code,
                status=status,
                duration_s=time.time() - at,
                answer=answer,
                at=at,
            )
        return response

    AuthorizedSession.request = asked


def _listen_to_grpc(transcript: Transcript) -> None:
    import grpc

    intercept = grpc.intercept_channel

    class Listener(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
            at = time.time()
            call = go_on(details, request)
            call.add_done_callback(lambda done: self.told(done, details, request, at))
            return call

        def told(self, done: Any, details: Any, request: Any, at: float) -> None:
            status = done.code()
            good = status is grpc.StatusCode.OK
            transcript.call(
                "tpu",
                str(details.method).rpartition("/")[2],
                where=_zone_of(request),
                code="ok" if good else status.name,
                status=status.value[0],
                duration_s=time.time() - at,
                answer=_fields(done.result()) if good else None,
                at=at,
            )

    def with_listener(channel: Any, *interceptors: Any) -> Any:
        return intercept(channel, *interceptors, Listener())

    grpc.intercept_channel = with_listener


def compute_call(method: str, url: str) -> tuple[str, str]:
    """The name that Compute Engine has for a request, and its zone or region."""
    found = _COMPUTE.search(url)
    if not found:  # the project itself, and the two other services: no word of theirs is needed
        return ("projects.get" if _PROJECT.search(url) else f"other.{method.lower()}"), ""
    kind = found["kind"]
    if kind == "operations":
        kind = {"zones": "zoneOperations", "regions": "regionOperations"}.get(
            found["scope"] or "", "globalOperations"
        )
    if "/aggregated/" in url:
        verb = "aggregatedList"
    elif found["name"] == "family":
        verb = "getFromFamily"
    elif found["verb"]:
        verb = _VERBS.get(found["verb"], "other")
    elif method.upper() == "GET":
        verb = "get" if found["name"] else "list"
    else:
        verb = _BY_METHOD.get(method.upper(), method.lower())
    return f"{kind}.{verb}", found["where"] or ""


def rest_code(status: int, answer: object) -> str:
    """``ok``, or Google's own reason."""
    if status < 400:
        return "ok"
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if not isinstance(error, Mapping):
        return f"HTTP.{status}"
    reasons = error.get("errors") or [{}]
    return str(reasons[0].get("reason") or error.get("status") or f"HTTP.{status}")


def _json(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return "a page that is no JSON"


def _zone_of(request: object) -> str:
    raw = getattr(request, "_pb", request)
    name = str(getattr(raw, "parent", "") or getattr(raw, "name", ""))
    return name.partition("/locations/")[2].partition("/")[0]


def _fields(message: Any) -> object:
    from google.protobuf import json_format

    return json_format.MessageToDict(getattr(message, "_pb", message))
