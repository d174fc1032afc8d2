"""Linting of reports that other programs wrote."""

from __future__ import annotations

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

LARGEST_TEXT = 1 << 19
"""Maximum characters of a document."""
MOST_DOCUMENTS = 50

router = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class DocumentRequest(RequestModel):
    """One Markdown document."""

    name: str = Field(min_length=1, max_length=200)
    """File name, for findings."""
    text: str = Field(max_length=LARGEST_TEXT)
    replaced: Annotated[int, Field(ge=0, le=LARGEST_TEXT)] = 0
    """Number of bytes that were not UTF-8 and were replaced."""


class LintRequest(RequestModel):
    """Documents, and the run that they describe."""

    documents: tuple[DocumentRequest, ...] = Field(min_length=1, max_length=MOST_DOCUMENTS)
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
    documents = [ForeignDocument(d.name, d.text, d.replaced) for d in _named(body.documents)]
    found = context.lint(documents, evidence)
    counts = {str(level): len([f for f in found if f.level == level]) for level in LEVELS}
    return LintResponse(findings=tuple(found), counts=counts, run=run)


def _named(documents: tuple[DocumentRequest, ...]) -> list[DocumentRequest]:
    """Number documents of equal names."""
    seen: dict[str, int] = {}
    named = []
    for document in documents:
        seen[document.name] = count = seen.get(document.name, 0) + 1
        name = document.name if count == 1 else f"{document.name} ({count})"
        named.append(document.model_copy(update={"name": name}))
    return named
