"""Reports that others wrote, read for what is wrong in them."""

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
"""Characters of one document."""
MOST_DOCUMENTS = 50

router = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class DocumentRequest(RequestModel):
    """One Markdown document."""

    name: str = Field(min_length=1, max_length=200)
    """What findings call it: its file's name."""
    text: str = Field(max_length=LARGEST_TEXT)
    replaced: Annotated[int, Field(ge=0, le=LARGEST_TEXT)] = 0
    """Bytes that were no UTF-8, and are replacement characters in the text."""


class LintRequest(RequestModel):
    """Documents, and the run that they are about."""

    documents: tuple[DocumentRequest, ...] = Field(min_length=1, max_length=MOST_DOCUMENTS)
    """Several are held against one another too."""
    run: Annotated[str | None, Field(max_length=200)] = None
    """A run whose results the documents are held against: its id, or the beginning of it."""


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
    """What was found, by document, level and line."""

    findings: tuple[DocumentFinding, ...]
    counts: dict[str, int]
    """Findings by level."""
    run: str | None
    """The run that the documents were held against."""


@router.post("/lint", response_model=LintResponse)
def lint_documents(context: ContextDep, body: Lint) -> LintResponse:
    """Find what is wrong in Markdown reports: in themselves, in each other, against a run."""
    run = resolve_run(context, body.run) if body.run is not None else None
    evidence = evidence_of(context.stores, run, at=context.clock.now()) if run else None
    documents = [ForeignDocument(d.name, d.text, d.replaced) for d in _named(body.documents)]
    found = context.lint(documents, evidence)
    counts = {str(level): len([f for f in found if f.level == level]) for level in LEVELS}
    return LintResponse(findings=tuple(found), counts=counts, run=run)


def _named(documents: tuple[DocumentRequest, ...]) -> list[DocumentRequest]:
    """Documents of one name are told apart by a number."""
    seen: dict[str, int] = {}
    named = []
    for document in documents:
        seen[document.name] = count = seen.get(document.name, 0) + 1
        name = document.name if count == 1 else f"{document.name} ({count})"
        named.append(document.model_copy(update={"name": name}))
    return named
