"""Mapping of errors to problem documents (RFC 9457)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from orchestrator.api.models import DescribedModel
from orchestrator.application.add_annotations import TooManyAnnotationsError
from orchestrator.application.credentials import BusyError, TooManyRequestsError
from orchestrator.application.describe_run import RunMissingError
from orchestrator.application.end_run import ReportRefusedError
from orchestrator.application.evaluate_gate import VerdictMissingError
from orchestrator.application.gate_policies import GateMissingError, PolicyMissingError
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.application.launch_run import (
    KeyInFlightError,
    KeyReusedError,
    PayloadMissingError,
)
from orchestrator.application.machines import (
    MachineInUseError,
    MachineMissingError,
    MachineStaysError,
    NoMachineError,
    ProviderUnreadError,
)
from orchestrator.application.ports.archives import ArchiveError
from orchestrator.application.ports.signer import KeyUnusableError
from orchestrator.application.ports.uploads import IntakeError, IntakeFullError
from orchestrator.application.prune import PruneBusyError
from orchestrator.application.rerun_run import NothingToRerunError, StillRunningError
from orchestrator.application.retests import NothingToBisectError
from orchestrator.application.schedules import ScheduleMissingError
from orchestrator.application.sign_off import WaiverApprovedError, WaiverMissingError
from orchestrator.application.signing_keys import KeyMissingError
from orchestrator.domain.blobs import BlobMismatchError, BlobMissingError, BlobTooLargeError
from orchestrator.domain.document_problems import InvalidDocumentError, Path, Problem
from orchestrator.domain.machine import ProviderError
from orchestrator.extras import MissingExtraError
from orchestrator.store.aliases import AliasConflictError
from orchestrator.store.audit_recorder import explain
from orchestrator.store.errors import (
    PreconditionFailedError,
    PrunedError,
    StoreUnusableError,
)
from orchestrator.store.ingests import CellTakenError, RunBusyError
from orchestrator.store.retests import NoRetestsError
from orchestrator.store.schedules import ScheduleTakenError


class FaultResponse(DescribedModel):
    """An error in a request."""

    model_config = ConfigDict(frozen=True)

    detail: str
    pointer: str | None = None
    """JSON Pointer to the faulty value in the body, or in the document that the body contains."""
    parameter: str | None = None
    """Name of the faulty path, query or header parameter."""
    line: int | None = None
    column: int | None = None


class ProblemResponse(DescribedModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str
    """URN of the kind of problem."""
    title: str
    status: int
    detail: str
    instance: str
    """Path of the request."""
    errors: list[FaultResponse] | None = None
    matches: list[str] | None = None
    """Ids of the matching runs, if the requested id is ambiguous; else null."""


MEDIA_TYPE = "application/problem+json"
FAULT_LIMIT = 100
"""Maximum number of errors of one request that are listed; the detail has their total number."""
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_UNHANDLED = "the controller failed with an internal error; its log has the reason"


class NotFoundError(LookupError):
    """A resource of the path does not exist; the text says which."""


class AmbiguousRunError(LookupError):
    """The prefix of an id matches several runs."""

    def __init__(self, prefix: str, matches: Sequence[str]) -> None:
        self.matches = tuple(matches)
        super().__init__(f"{prefix!r} fits {len(matches)} runs or more; write more of the id")


class UnauthenticatedError(Exception):
    """The token is missing or invalid."""


class ForbiddenError(Exception):
    """The token's scope is not sufficient."""


class HostRefusedError(Exception):
    """The Host header names another server, as in DNS rebinding."""


class BodyTooLargeError(Exception):
    """The request's body is too large; nothing was changed."""


class UnmatchedError(Exception):
    """If-Match is sent to an address without an ETag of its own; nothing was changed."""


class DigestMismatchError(Exception):
    """The bytes do not have the digest of the path; nothing was stored."""


class SpoolFullError(Exception):
    """The disk is too full for the upload."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The response to a class of errors."""

    status: int
    kind: str
    """Last part of the problem's type."""
    title: str
    headers: Mapping[str, str] | None = None


TABLE: Mapping[type[Exception], ErrorAnswer] = {
    StoreUnusableError: ErrorAnswer(
        503, "database", "The database cannot be used now", {"Retry-After": "5"}
    ),
    MissingExtraError: ErrorAnswer(501, "missing-extra", "A part of Seatrial is not installed"),
    InvalidDocumentError: ErrorAnswer(422, "invalid-document", "The document cannot be used"),
    ArchiveError: ErrorAnswer(422, "invalid-archive", "The archive is no payload"),
    PayloadMissingError: ErrorAnswer(422, "payload-missing", "Something must be uploaded first"),
    RunMissingError: ErrorAnswer(404, "not-found", "There is no such run"),
    ScheduleMissingError: ErrorAnswer(404, "not-found", "There is no such schedule"),
    ScheduleTakenError: ErrorAnswer(409, "schedule-taken", "There is a schedule of this name"),
    GateMissingError: ErrorAnswer(404, "not-found", "There is no such gate"),
    PolicyMissingError: ErrorAnswer(409, "policy-missing", "The gate never had this policy"),
    VerdictMissingError: ErrorAnswer(404, "not-found", "There is no such verdict"),
    WaiverMissingError: ErrorAnswer(404, "not-found", "There is no such waiver"),
    WaiverApprovedError: ErrorAnswer(409, "waiver-approved", "The waiver is approved already"),
    KeyMissingError: ErrorAnswer(404, "not-found", "There is no such key"),
    WrongProductError: ErrorAnswer(422, "wrong-product", "The run is of another product"),
    KeyUnusableError: ErrorAnswer(500, "signing-key", "Verdicts cannot be signed"),
    NotFoundError: ErrorAnswer(404, "not-found", "There is no such thing"),
    MachineMissingError: ErrorAnswer(404, "not-found", "There is no such thing"),
    PrunedError: ErrorAnswer(410, "pruned", "This was pruned"),
    PreconditionFailedError: ErrorAnswer(412, "changed", "It was changed since it was read"),
    UnmatchedError: ErrorAnswer(400, "unmatched", "If-Match is not supported here"),
    PruneBusyError: ErrorAnswer(
        409, "prune-busy", "Another prune is running", {"Retry-After": "5"}
    ),
    BlobMissingError: ErrorAnswer(404, "bytes-missing", "The bytes are not stored any more"),
    AmbiguousRunError: ErrorAnswer(409, "ambiguous-run", "The id is ambiguous"),
    KeyReusedError: ErrorAnswer(
        422, "key-reused", "The Idempotency-Key belongs to another request"
    ),
    KeyInFlightError: ErrorAnswer(
        409, "key-in-flight", "The same request is being worked on", {"Retry-After": "1"}
    ),
    StillRunningError: ErrorAnswer(409, "still-running", "The run is not finished"),
    NothingToBisectError: ErrorAnswer(409, "nothing-to-bisect", "There is nothing to search"),
    NoRetestsError: ErrorAnswer(409, "no-retests", "The cell's machine takes no retests"),
    NothingToRerunError: ErrorAnswer(409, "nothing-to-rerun", "Nothing is left to run again"),
    NoMachineError: ErrorAnswer(409, "no-machine", "The cell has no machine to enter"),
    MachineInUseError: ErrorAnswer(409, "machine-in-use", "A run has the machine"),
    MachineStaysError: ErrorAnswer(409, "machine-stays", "The machine is not ours to end"),
    ProviderUnreadError: ErrorAnswer(502, "provider", "The provider failed"),
    ProviderError: ErrorAnswer(502, "provider", "The provider failed"),
    TooManyAnnotationsError: ErrorAnswer(409, "too-many", "The run has enough statements"),
    AliasConflictError: ErrorAnswer(409, "alias-conflict", "The decision contradicts another"),
    ReportRefusedError: ErrorAnswer(422, "report-refused", "The report cannot be made"),
    BlobMismatchError: ErrorAnswer(422, "digest-mismatch", "The digest is another"),
    DigestMismatchError: ErrorAnswer(422, "digest-mismatch", "The digest is another"),
    BlobTooLargeError: ErrorAnswer(413, "too-large", "The body is too large"),
    BodyTooLargeError: ErrorAnswer(413, "too-large", "The body is too large"),
    IntakeError: ErrorAnswer(422, "not-ingested", "This is not taken as evidence"),
    CellTakenError: ErrorAnswer(409, "cell-taken", "The run has a cell of this name"),
    RunBusyError: ErrorAnswer(409, "run-busy", "The run is not finished", {"Retry-After": "1"}),
    IntakeFullError: ErrorAnswer(507, "no-room", "The controller's disk is full"),
    SpoolFullError: ErrorAnswer(507, "no-room", "The controller's disk is full"),
    UnauthenticatedError: ErrorAnswer(
        401, "unauthenticated", "A token is needed", {"WWW-Authenticate": 'Bearer realm="seatrial"'}
    ),
    BusyError: ErrorAnswer(503, "busy", "The controller is busy"),
    TooManyRequestsError: ErrorAnswer(429, "too-many-requests", "There were too many requests"),
    ForbiddenError: ErrorAnswer(403, "forbidden", "The token may not do this"),
    HostRefusedError: ErrorAnswer(400, "host-refused", "The Host header is not this server's"),
    ClientDisconnect: ErrorAnswer(400, "cut-off", "The request was cut off"),
}
_NAMES = frozenset({"author", "approver", "by"})
_NO_NAMES = (
    "no name can be sent: it is that of the token's owner or, on the home's socket, of the"
    " operating-system user; a second person needs a token of their own"
)


def install(app: FastAPI) -> None:
    """Install handlers that answer every error of the application with a problem document."""
    for kind in TABLE:
        app.add_exception_handler(kind, _on_known)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unhandled)


def answer(
    path: str,
    refusal: ErrorAnswer,
    detail: str,
    *,
    faults: Sequence[FaultResponse] = (),
    matches: Sequence[str] = (),
) -> Response:
    """Return the problem document as ASCII JSON, since its texts are untrusted."""
    problem = ProblemResponse(
        type=f"urn:seatrial:problem:{refusal.kind}",
        title=refusal.title,
        status=refusal.status,
        detail=detail,
        instance=path,
        errors=list(faults[:FAULT_LIMIT]) or None,
        matches=list(matches) or None,
    )
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return Response(
        json.dumps(problem.model_dump(exclude_none=True)),
        refusal.status,
        headers | dict(refusal.headers or {}),
        MEDIA_TYPE,
    )


def answer_known(path: str, error: Exception) -> Response:
    """Return the problem document of a known error, and store its text for the audit log."""
    refusal = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    explain(error.advice if isinstance(error, StoreUnusableError) else str(error) or refusal.title)
    if isinstance(error, InvalidDocumentError):
        return _answer_document(path, refusal, error)
    if isinstance(error, StoreUnusableError):
        return answer(path, refusal, f"{error.advice}; send the request again later")
    faults: list[FaultResponse] = []
    if isinstance(error, PayloadMissingError):
        faults = [FaultResponse(pointer="/payload", detail=str(error))]
    matches = error.matches if isinstance(error, AmbiguousRunError) else ()
    return answer(path, refusal, str(error) or refusal.title, faults=faults, matches=matches)


def _answer_document(path: str, refusal: ErrorAnswer, error: InvalidDocumentError) -> Response:
    faults = [_fault(problem) for problem in error.problems]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    first = str(error.problems[0]) if error.problems else "refused"
    return answer(path, refusal, f"{error.name}: {first}{more}", faults=faults)


def _fault(problem: Problem) -> FaultResponse:
    return FaultResponse(
        detail=problem.message,
        pointer=pointer(problem.path),
        line=problem.line,
        column=problem.column,
    )


def pointer(path: Path) -> str:
    """Return a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


async def _on_known(request: Request, error: Exception) -> Response:
    return answer_known(request.url.path, error)


async def _on_invalid(request: Request, refused: Exception) -> Response:
    error = cast(RequestValidationError, refused)
    found = error.errors()
    status = 400 if any(_is_malformed(one) for one in found) else 422
    faults = [_place(one, error.body) for one in found]
    first = faults[0]
    where = first.pointer if first.parameter is None else first.parameter
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    refusal = ErrorAnswer(status, "invalid-request", "The request cannot be understood")
    detail = f"{where or 'body'}: {first.detail}{more}"
    return answer(request.url.path, refusal, detail, faults=faults)


def _is_malformed(one: Mapping[str, object]) -> bool:
    """Whether the request is not JSON, or lacks a required header."""
    in_header = cast("tuple[str | int, ...]", one["loc"])[0] == "header"
    return one["type"] == "json_invalid" or (in_header and one["type"] == "missing")


def _place(one: Mapping[str, object], body: object) -> FaultResponse:
    place = cast("tuple[str | int, ...]", one["loc"])
    detail = str(one["msg"])
    if one["type"] == "json_invalid":
        line, column = _line_and_column(str(body), int(place[1]))
        return FaultResponse(detail="is not JSON", pointer="", line=line, column=column)
    if one["type"] in ("model_attributes_type", "dataclass_type"):
        detail = "must be a JSON object, sent with `Content-Type: application/json`"
    if one["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        detail = _NO_NAMES if place[-1] in _NAMES else "Extra inputs are not permitted"
    if one["type"] == "string_pattern_mismatch":
        detail = _pattern_fault(cast("Mapping[str, object]", one["ctx"])["pattern"])
    if place[0] == "body":
        return FaultResponse(detail=detail, pointer=pointer(place[1:]))
    return FaultResponse(detail=detail, parameter=str(place[-1]))


def _pattern_fault(pattern: object) -> str:
    if str(pattern).startswith(r"^[^\x00-\x1f\x7f]"):
        return "must be one line without control characters"
    return f"is not written as it must be: {pattern}"


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


async def _on_http(request: Request, raised: Exception) -> Response:
    error = cast(HTTPException, raised)
    phrase = HTTPStatus(error.status_code).phrase
    kind = re.sub(r"[^a-z]+", "-", phrase.lower())
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {**(headers or {}), "Allow": ", ".join(_methods(request))}
    refusal = ErrorAnswer(error.status_code, kind, phrase, headers)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "there is nothing here; /docs lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not possible here"
    else:
        detail = str(error.detail)
    return answer(request.url.path, refusal, detail)


def _methods(request: Request) -> list[str]:
    """Return the methods of a path over all routes."""
    return [method for method in _METHODS if _takes(request, method)]


def _takes(request: Request, method: str) -> bool:
    asked = {**request.scope, "method": method}
    return any(route.matches(asked)[0] is Match.FULL for route in request.app.routes)


async def _on_unhandled(request: Request, _error: Exception) -> Response:
    """Log an unexpected error; its text may contain secrets, and is not sent to clients."""
    refusal = ErrorAnswer(500, "internal", "Internal Server Error")
    return answer(request.url.path, refusal, _UNHANDLED)
