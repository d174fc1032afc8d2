"""A cell's log, tests and artifacts."""

from __future__ import annotations

import codecs
from itertools import islice
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response, Security
from fastapi.responses import StreamingResponse

from orchestrator.api.dependencies import LARGEST, CellDep, ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import NumberedPageResponse, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.describe_run import pruned_artifacts
from orchestrator.application.reused_results import results_of_cell
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import CellState
from orchestrator.domain.run_record import ArtifactRecord, TestResponse, test_answer
from orchestrator.store.errors import PrunedError


class LogResponse(ResponseModel):
    """A piece of a cell's log."""

    text: str
    next: int
    """Byte offset at which the next piece begins."""
    done: bool
    """Whether the log is complete."""


BYTES = "application/octet-stream"
NEXT_OFFSET = "Seatrial-Next-Offset"
DONE = "Seatrial-Done"
UNTRUSTED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
"""Headers of untrusted content that a browser might open."""
_TEXTS = (".txt", ".log", ".json", ".jsonl", ".csv", ".md", ".xml")
_TEXT = "text/plain; charset=utf-8"
_LOG_LIMIT_BYTES = 4 * 1024 * 1024
_BINARY = {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
_FILE = {
    "description": "Its bytes: text of "
    f"{', '.join(_TEXTS)} as ``{_TEXT}``, anything else as ``{BYTES}``",
    "content": {"text/plain": {"schema": {"type": "string"}}, **_BINARY["content"]},
}
router = APIRouter(
    tags=["evidence"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


@router.get(
    "/runs/{run_id}/cells/{cell}/log", response_model=LogResponse, responses={200: {**_BINARY}}
)
def read_log(
    context: ContextDep,
    cell: CellDep,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="A byte offset")] = 0,
    limit: Annotated[int, Query(ge=4, le=_LOG_LIMIT_BYTES, description="In bytes")] = 64 * 1024,
    accept: Annotated[str, Header(include_in_schema=False)] = "*/*",
) -> LogResponse | Response:
    """Return a piece of the log: text cut between characters, or raw bytes (by `Accept`)."""
    data, ahead = context.stores.evidence.log(cell.id, after=after, limit=limit)
    last = cell.state is CellState.DONE and len(data) < limit
    if BYTES in accept:
        headers = {**UNTRUSTED, NEXT_OFFSET: str(ahead), DONE: str(last).lower()}
        return _attachment(f"{cell.name}.log", Response(data, headers=headers, media_type=BYTES))
    text, held = _cut(data, whole=last)
    return LogResponse(text=text, next=ahead - held, done=last)


def _cut(data: bytes, *, whole: bool) -> tuple[str, int]:
    """Return the text, and the number of bytes of an incomplete character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=whole)
    return text, len(decoder.getstate()[0])


@router.get("/runs/{run_id}/cells/{cell}/tests")
def list_tests(
    context: ContextDep,
    cell: CellDep,
    job: Annotated[str | None, Query(max_length=64)] = None,
    outcome: Annotated[
        Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run"]
        | None,
        Query(),
    ] = None,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="`next` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> NumberedPageResponse[TestResponse]:
    """List the cell's tests in the order of collection, with the text of each failure."""
    tests = results_of_cell(context.stores, cell.id, job=job)
    # The cursor counts all tests, so that outcomes which change meanwhile do not shift it.
    fitting = (
        (place, test)
        for place, test in enumerate(tests)
        if place >= after and outcome in (None, test.outcome.word)
    )
    page = list(islice(fitting, limit + 1))
    more = page[limit][0] if len(page) > limit else None
    names = [one.name for one in context.stores.results.artifacts(cell.id)]
    items = [test_answer(test, names) for _, test in page[:limit]]
    return NumberedPageResponse(items=items, next=more)


@router.get(
    "/runs/{run_id}/cells/{cell}/artifacts/{name}",
    response_class=StreamingResponse,
    responses={200: {**_FILE}},
)
def get_artifact(context: ContextDep, cell: CellDep, name: str) -> Response:
    """Return an artifact as its raw bytes."""
    found = _artifact(context.stores.results.artifacts(cell.id), name)
    if found.pruned_at is not None:
        raise PrunedError(pruned_artifacts(context.stores, cell.run_id))
    chunks = context.blobs.open(found.digest)
    headers = {**UNTRUSTED, "Content-Length": str(found.size_bytes), "ETag": f'"{found.digest}"'}
    text = name.lower().endswith(_TEXTS)
    kind = _TEXT if text else BYTES
    return _attachment(name, StreamingResponse(chunks, headers=headers, media_type=kind))


def _artifact(artifacts: list[ArtifactRecord], name: str) -> ArtifactRecord:
    for artifact in artifacts:
        if artifact.name == name:
            return artifact
    names = ", ".join(artifact.name for artifact in artifacts[:20]) or "none yet"
    raise NotFoundError(f"the cell has no artifact {name!r}; it has {names}")


def _attachment(name: str, response: Response) -> Response:
    """Return headers by which browsers save the file instead of showing it."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name)
    named = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    response.headers["Content-Disposition"] = named
    return response
