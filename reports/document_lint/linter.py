"""Lint of foreign reports: all rules on each document, across documents, and against a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from orchestrator.domain.lint_findings import LEVELS, DocumentFinding, ForeignDocument
from orchestrator.domain.run_record import Evidence
from reports.document_lint.document import (
    AcrossRule,
    Document,
    DocumentRule,
    EvidenceRule,
    Mark,
    Rule,
)
from reports.document_lint.parsing import read
from reports.document_lint.rules import across_documents as between
from reports.document_lint.rules import (
    benchmarks,
    claims,
    denominators,
    encoding,
    hardware,
    money,
    ratios,
    software_stacks,
    statuses,
    test_counts,
    totals,
)
from reports.document_lint.rules import evidence as against

RULES: tuple[DocumentRule, ...] = (
    *encoding.RULES, *totals.RULES, *test_counts.RULES, *denominators.RULES, *statuses.RULES,
    *claims.RULES, *ratios.RULES, *benchmarks.RULES, *money.RULES, *hardware.RULES,
    *software_stacks.RULES,
)  # fmt: skip
"""Rules on one document."""
ACROSS: tuple[AcrossRule, ...] = (
    *hardware.ACROSS, *money.ACROSS, *software_stacks.ACROSS, *between.ACROSS,
)  # fmt: skip
"""Rules across all documents; a single one counts too."""
EVIDENCE: tuple[EvidenceRule, ...] = against.RULES
"""Rules on a document and the results of a run."""


def lint_documents(
    sources: Sequence[ForeignDocument], evidence: Evidence | None = None
) -> tuple[DocumentFinding, ...]:
    """Return all findings by document, level and line.

    Args:
        sources: Markdown, as it came.
        evidence: A run that the documents are about; its results are taken as true.
    """
    documents = [read(source) for source in sources]
    found = list(_alone(documents)) + list(_together(documents))
    if evidence is not None:
        found += list(_held_against(documents, evidence))
    order = {document.name: at for at, document in enumerate(documents)}
    return tuple(
        sorted(dict.fromkeys(found), key=lambda f: (
            order[f.document], LEVELS.index(f.level), f.line, f.rule, f.message,
        ))
    )  # fmt: skip


MOST = 50
"""Maximum findings of one rule in one document; the rest are counted."""


def _bounded(
    rule: Rule[Any], document: Document, marks: Iterable[Mark]
) -> Iterator[DocumentFinding]:
    """Return a rule's first findings, and the number of others."""
    unique = list(dict.fromkeys(marks))
    for mark in unique[:MOST]:
        yield _finding(document, rule, mark)
    if len(unique) > MOST:
        rest = unique[MOST:]
        level = min((mark.level for mark in rest), key=LEVELS.index)
        message = f"and {len(rest):,} more of this kind"
        yield _finding(document, rule, Mark(level, rest[0].line, message))


def _alone(documents: Sequence[Document]) -> Iterator[DocumentFinding]:
    for document in documents:
        for rule in RULES:
            yield from _bounded(rule, document, rule.check(document))


def _together(documents: Sequence[Document]) -> Iterator[DocumentFinding]:
    for rule in ACROSS:
        found: dict[str, list[Mark]] = {document.name: [] for document in documents}
        for document, mark in rule.check(documents):
            found[document.name].append(mark)
        for document in documents:
            yield from _bounded(rule, document, found[document.name])


def _held_against(documents: Sequence[Document], evidence: Evidence) -> Iterator[DocumentFinding]:
    for document in documents:
        for rule in EVIDENCE:
            yield from _bounded(rule, document, rule.check(document, evidence))


def _finding(document: Document, rule: Rule[Any], mark: Mark) -> DocumentFinding:
    return DocumentFinding(mark.level, rule.id, document.name, mark.line, mark.message, rule.advice)
