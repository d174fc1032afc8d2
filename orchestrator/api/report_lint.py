"""Linting of reports that other programs wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.models import RequestModel, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.lint_findings import LEVELS, DocumentFinding, ForeignDocument

MOST_DOCUMENTS = 50

router = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class LintRequest(RequestModel):
    """Documents, and the run that they describe."""

    documents: tuple[ForeignDocument, ...] = Field(min_length=1, max_length=MOST_DOCUMENTS)
    """Documents; several are compared with each other too."""
    run: Annotated[str | None, Field(max_length=200)] = None
    """A run whose results the documents are compared with: its id, or a prefix of it."""


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


class LintResponse(ResponseModel):
    """Findings by document, level and line."""

    findings: tuple[DocumentFinding, ...]
    counts: dict[str, int]
    """Number of findings by level."""
    run: str | None
    """The run that the documents were compared with."""


@router.post("/lint", response_model=LintResponse)
def lint_documents(context: ContextDep, body: Lint) -> LintResponse:
    """Lint Markdown reports: alone, against each other, and against a run."""
    run = resolve_run(context, body.run) if body.run is not None else None
    evidence = evidence_of(context.stores, run, at=context.clock.now()) if run else None
    found = context.lint(_named(body.documents), evidence)
    counts = {str(level): len([f for f in found if f.level == level]) for level in LEVELS}
    return LintResponse(findings=tuple(found), counts=counts, run=run)


def _named(documents: tuple[ForeignDocument, ...]) -> list[ForeignDocument]:
    """Number documents of equal names."""
    seen: dict[str, int] = {}
    named = []
    for document in documents:
        seen[document.name] = count = seen.get(document.name, 0) + 1
        name = document.name if count == 1 else f"{document.name} ({count})"
        named.append(replace(document, name=name))
    return named
