"""Exports of results for other programs, generated while they are sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Security
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from orchestrator.api.dependencies import ContextDep, RunId
from orchestrator.api.errors import NotFoundError
from orchestrator.api.logs import UNTRUSTED
from orchestrator.api.security import bearer, secured
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.run_record import (
    Evidence,
    RunResponse,
    TestResponse,
    run_answer,
    test_answer,
)

JSON = "json"
_SUFFIXES = {"junit": "xml", "ctrf": "json", "csv": "csv", "json": "json", "intoto": "jsonl"}
_MEDIA = ("application/xml", "application/json", "text/csv", "application/x-ndjson")

_RUN = TypeAdapter(RunResponse)
_TEST = TypeAdapter(TestResponse)
_CHUNK = 65_536
"""Minimum characters of a chunk."""

router = APIRouter(
    tags=["exports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


@router.get(
    "/runs/{run_id}/export/{format}",
    response_class=StreamingResponse,
    responses={200: {"content": {media: {} for media in _MEDIA}}},
)
def export_run(
    context: ContextDep,
    run_id: RunId,
    format: str,  # noqa: A002 - the path's own word
    cell: Annotated[str | None, Query(description="One cell's results", max_length=200)] = None,
) -> StreamingResponse:
    """Export every test of the run, or of one cell: junit, ctrf, csv, json or intoto."""
    formats = {**context.export_media(), JSON: "application/json"}
    if format not in formats:
        raise NotFoundError(f"there is no export {format!r}{nearest(format, formats)}")
    evidence = evidence_of(context.stores, run_id, at=context.clock.now())
    if cell is not None and evidence.record.cell(cell) is None:
        names = nearest(cell, [found.id for found in evidence.record.cells])
        raise NotFoundError(f"run {run_id} has no cell {cell!r}{names}")
    pieces = _json(evidence, cell) if format == JSON else context.export(format, evidence, cell)
    headers = {**UNTRUSTED, **_attached(evidence, format)}
    return StreamingResponse(_encoded(pieces), headers=headers, media_type=formats[format])


def _attached(evidence: Evidence, form: str) -> Mapping[str, str]:
    name = f"{evidence.record.run.id}-{form}.{_SUFFIXES.get(form, 'txt')}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _encoded(pieces: Iterator[str]) -> Iterator[bytes]:
    """Yield large encoded chunks, since each chunk costs a change of threads."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            yield "".join(waiting).encode("utf-8", errors="replace")
            waiting, size = [], 0
    yield "".join(waiting).encode("utf-8", errors="replace")


def _json(evidence: Evidence, cell: str | None) -> Iterator[str]:
    """Yield the run as in `show`, with every test by cell under ``tests``."""
    shown = _RUN.dump_python(run_answer(evidence.record), mode="json")
    shown["cells"] = [one for one in shown["cells"] if cell is None or one["id"] == cell]
    yield json.dumps(shown)[:-1] + ', "tests": {'
    for number, one in enumerate(shown["cells"]):
        yield f"{',' if number else ''}\n{json.dumps(one['id'])}: ["
        names = [artifact["name"] for artifact in one["artifacts"]]
        for position, test in enumerate(evidence.tests.get(one["id"], ())):
            told = json.dumps(_TEST.dump_python(test_answer(test, names), mode="json"))
            yield f"{',' if position else ''}\n{told}"
        yield "]"
    yield "}}\n"
