"""Compute Engine's operations: what was asked for, when it ends, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from tests.lab.faults import Fault
from tests.lab.google.front import ApiError, Json

_ROOT = "https://www.googleapis.com/compute/v1/projects/"
_REMEMBERED = timedelta(hours=1)
_ZERO_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True)
class Operation:
    """One operation; `scope` is "zones/Z", "regions/R" or "global"."""

    name: str
    number: int
    kind: str
    project: str
    scope: str
    target: str
    began_at: datetime
    token: str = ""
    body: Json = field(default_factory=dict)
    ended_at: datetime | None = None
    fault: Fault | None = None
    status: Literal["PENDING", "RUNNING", "DONE"] = "RUNNING"
    user: str = "lab@example.com"
    target_id: str = ""
    due: tuple[datetime, Fault | None] | None = None
    """When it ends, and with what, where nothing else decides that."""

    def finish(self, at: datetime, fault: Fault | None = None) -> None:
        """It ends, well or with this; what ended already stays as it ended."""
        if self.status != "DONE":
            self.status, self.ended_at, self.fault = "DONE", at, fault

    def as_json(self) -> Json:
        root = f"{_ROOT}{self.project}/"
        body: Json = {
            "kind": "compute#operation", "id": str(self.number), "name": self.name,
            "operationType": self.kind, "status": self.status, "user": self.user,
            "progress": 100 if self.status == "DONE" else 0,
            "targetLink": f"{root}{self.target}",
            "insertTime": self.began_at.isoformat(), "startTime": self.began_at.isoformat(),
            "selfLink": f"{root}{self.scope}/operations/{self.name}",
        }  # fmt: skip
        if self.target_id:
            body["targetId"] = self.target_id
        if self.token:
            body["clientOperationId"] = self.token
        if self.ended_at is not None:
            body["endTime"] = self.ended_at.isoformat()
        place, _, where = self.scope.partition("/")
        if where:
            body[place.removesuffix("s")] = f"{root}{self.scope}"
        return body | (_error(self.fault) if self.fault is not None else {})


def _error(fault: Fault) -> Json:
    entry: Json = {"code": fault.code, "message": fault.message}
    if fault.details:
        quota = {**fault.details}
        info: Json = {"metricName": quota["metricName"], "limitName": quota["limitName"]}
        info["limit"] = float(quota["limit"])
        entry["errorDetails"] = [{"quotaInfo": info}]
    return {
        "error": {"errors": [entry]},
        "httpErrorStatusCode": fault.status,
        "httpErrorMessage": "FORBIDDEN" if fault.status == 403 else "ERROR",
    }


@dataclass(slots=True)
class Operations:
    """All of them, and the memory of request ids."""

    change_s: float = 0.0
    """How long it takes to change what is no instance: a rule, a disk, an address."""
    known: dict[tuple[str, str], Operation] = field(default_factory=dict)
    _tokens: dict[tuple[str, str, str], Operation] = field(default_factory=dict)

    def begin(
        self, kind: str, project: str, target: str, at: datetime, *, token: str = "",
        call: str = "", scope: str = "global", user: str = "", body: Json | None = None,
    ) -> Operation:  # fmt: skip
        """A new one, RUNNING; `call` is the one whose repetition with the token means this."""
        number = 5_000_000_000_000_000_000 + len(self.known)
        name = f"operation-{int(at.timestamp() * 1000)}-{number % 10**9:09x}-lab"
        operation = Operation(name, number, kind, project, scope, target, at, token, body or {})
        operation.user = user or operation.user
        self.known[scope, name] = operation
        if token:
            self._tokens[scope, call, token] = operation
        return operation

    def tick(self, now: datetime) -> None:
        """End what is due."""
        for operation in self.known.values():
            if operation.due is not None and now >= operation.due[0]:
                operation.finish(*operation.due)

    def repeated(
        self, scope: str, call: str, token: str, now: datetime, *, body: Json
    ) -> Operation | None:
        """The operation that this request id began before, for as long as GCE remembers.

        Raises:
            ApiError: No valid request id (it is a UUID, and not the zero one), or one that was used
                with another body. What GCE does then is not documented: the lab is strict.
        """
        if not token:
            return None
        if token == _ZERO_UUID or not _is_uuid(token):
            raise ApiError("invalid", f"Invalid value for field 'requestId': '{token}'.")
        operation = self._tokens.get((scope, call, token))
        fresh = operation is not None and now - operation.began_at < _REMEMBERED
        if operation is None or not fresh:
            return None
        if operation.body != body:
            raise ApiError("invalid", f"Invalid value for field 'requestId': '{token}'. It was used"
                           " with another request.")  # fmt: skip
        return operation

    def get(self, scope: str, name: str) -> Operation:
        """The operation, or 404: an operation of another zone is not here."""
        if (scope, name) not in self.known:
            raise ApiError(
                "notFound", f"The resource '{scope}/operations/{name}' was not found", 404
            )
        return self.known[scope, name]


def _is_uuid(text: str) -> bool:
    parts = text.lower().split("-")
    hexes = all(set(part) <= set("0123456789abcdef") for part in parts)
    return hexes and [len(part) for part in parts] == [8, 4, 4, 4, 12]
