"""Reports, rendered at each request; linting of other programs' reports; exports of results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response, Security
from fastapi.openapi.models import Example
from fastapi.responses import StreamingResponse
from pydantic import Field, TypeAdapter

from orchestrator.api.dependencies import ContextDep, RunId, resolve_run
from orchestrator.api.errors import NotFoundError
from orchestrator.api.logs import UNTRUSTED
from orchestrator.api.models import ListResponse, RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.lint_findings import LEVELS, ForeignDocument, LintResponse
from orchestrator.domain.run_record import (
    Evidence,
    PlotResponse,
    RunResponse,
    TestResponse,
    run_answer,
    test_answer,
)

MEDIA_TYPES = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
}
"""Media types of reports by format."""
_DOCUMENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {media.partition(";")[0]: {} for media in MEDIA_TYPES.values()}}
}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""Content security policy of reports: styles only, no scripts."""

CellQuery = Annotated[str | None, Query(description="One cell's report", max_length=200)]

AloneQuery = Annotated[
    bool, Query(description="No file lies beside it: without links to plots and other reports")
]

router = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


@router.get("/runs/{run_id}/reports/{kind}.{format}", response_class=Response, responses=_DOCUMENTS)
def get_report(
    context: ContextDep,
    run_id: RunId,
    kind: str,
    format: str,  # noqa: A002 - the path's own word
    cell: CellQuery = None,
    alone: AloneQuery = False,
) -> Response:
    """Return a report of the run, or of one cell, as Markdown, HTML or JSON."""
    return _report(context, run_id, kind, cell, format, alone=alone)


@router.get(
    "/runs/{run_id}/reports/{cell}/SUMMARY.{format}",
    response_class=Response,
    responses=_DOCUMENTS,
)
def get_cell_report(
    context: ContextDep,
    run_id: RunId,
    cell: str,
    format: str,  # noqa: A002 - the path's own word
) -> Response:
    """Return the platform report of a cell, at the address that the run's summary links to."""
    return _report(context, run_id, "platform", cell, format)


def _report(
    context: Context,
    run_id: str,
    kind: str,
    cell: str | None,
    format: str,  # noqa: A002 - the path's own word
    *,
    alone: bool = False,
) -> Response:
    if format not in MEDIA_TYPES:
        raise NotFoundError(f"reports are not made as {format!r}{nearest(format, MEDIA_TYPES)}")
    evidence = _evidence(context, run_id, kind, cell)
    text = context.render(kind, evidence, cell, format, alone=alone)
    return Response(
        text, media_type=MEDIA_TYPES[format], headers={"Content-Security-Policy": POLICY}
    )


@router.get("/runs/{run_id}/reports/{kind}/plots")
def list_report_plots(
    context: ContextDep, run_id: RunId, kind: str, cell: CellQuery = None
) -> ListResponse[PlotResponse]:
    """List the plots that a report's Markdown links to; its HTML contains them."""
    evidence = _evidence(context, run_id, kind, cell)
    drawn = context.draw(kind, evidence, cell)
    return ListResponse(items=[PlotResponse(path=path, svg=svg) for path, svg in drawn.items()])


def _evidence(context: Context, run_id: str, kind: str, cell: str | None) -> Evidence:
    kinds = context.report_kinds()
    if kind not in kinds:
        raise NotFoundError(f"there is no report {kind!r}{nearest(kind, kinds)}")
    return _with_cell(context, run_id, cell)


def _with_cell(context: Context, run_id: str, cell: str | None) -> Evidence:
    """Return the run's evidence. Raises NotFoundError if it lacks the cell."""
    evidence = evidence_of(context.stores, run_id, at=context.clock.now())
    if cell is not None and evidence.record.cell(cell) is None:
        names = nearest(cell, [found.id for found in evidence.record.cells])
        raise NotFoundError(f"run {run_id} has no cell {cell!r}{names}")
    return evidence


MOST_DOCUMENTS = 50

linting = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class LintRequest(RequestModel):
    """Documents to lint, and the run that they describe."""

    documents: tuple[ForeignDocument, ...] = Field(min_length=1, max_length=MOST_DOCUMENTS)
    """Documents to lint; several documents are compared with each other too."""
    run: Annotated[str | None, Field(max_length=200)] = None
    """Id, or a prefix of it, of the run whose results the documents are compared with."""


_EXAMPLES: dict[str, Example] = {
    "one": {
        "summary": "One document against itself",
        "value": {
            "documents": [{"name": "SUMMARY.md", "text": "- Tests: 175/185 (95.6%)\n"}],
        },
    },
    "evidence": {
        "summary": "A document against the results of a run",
        "value": {
            "documents": [{"name": "SUMMARY.md", "text": "All 66 tests pass.\n"}],
            "run": "latest",
        },
    },
}
Lint = Annotated[LintRequest, Body(openapi_examples=_EXAMPLES)]


@linting.post("/lint", response_model=LintResponse)
def lint_documents(context: ContextDep, body: Lint) -> LintResponse:
    """Lint Markdown reports: alone, against each other, and against a run."""
    run = resolve_run(context, body.run) if body.run is not None else None
    evidence = evidence_of(context.stores, run, at=context.clock.now()) if run else None
    found = context.lint(_named(body.documents), evidence)
    counts = {str(level): len([f for f in found if f.level == level]) for level in LEVELS}
    return LintResponse(findings=tuple(found), counts=counts, run=run)


def _named(documents: tuple[ForeignDocument, ...]) -> list[ForeignDocument]:
    """Return the documents, with numbers added to equal names."""
    seen: dict[str, int] = {}
    named = []
    for document in documents:
        seen[document.name] = count = seen.get(document.name, 0) + 1
        name = document.name if count == 1 else f"{document.name} ({count})"
        named.append(replace(document, name=name))
    return named


JSON = "json"
_SUFFIXES = {"junit": "xml", "ctrf": "json", "csv": "csv", "json": "json", "intoto": "jsonl"}
_MEDIA = ("application/xml", "application/json", "text/csv", "application/x-ndjson")

_RUN = TypeAdapter(RunResponse)
_TEST = TypeAdapter(TestResponse)
_CHUNK = 65_536
"""Minimum number of characters of a chunk."""

exporting = APIRouter(
    tags=["exports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


@exporting.get(
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
    evidence = _with_cell(context, run_id, cell)
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
    """Yield the JSON of `show`, with the tests of every cell under ``tests``."""
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
