"""Failures gathered by signature, as far as a run's record has signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import (
    FailureGroup,
    Signature,
    signature_of,
    subject_imports,
)
from orchestrator.domain.quarantine import active_ids
from orchestrator.domain.root_cause import DiagnosedTest
from orchestrator.domain.run_record import Evidence, RunRecord
from reports.model.results import (
    FailureGroupRow,
    FailureTable,
    IssueRow,
    QuarantinedFailure,
)
from reports.model.values import Absent

GROUPS_SHOWN = 20
TESTS_SHOWN = 5
"""Tests that are named of one signature."""

_Found = tuple[str, TestFact, Signature]


def failures_of(evidence: Evidence, cell: str = "") -> FailureTable | None:
    """Return the failures of one cell, or of all; None without signatures."""
    record = evidence.record
    if not record.failure_groups:
        return None
    cells = {one.id: one for one in record.cells if cell in ("", one.id)}
    gathered: dict[str, list[_Found]] = {}
    for name, one in cells.items():
        imports = subject_imports(one.probed)
        for fact in evidence.tests.get(name, ()):
            signature = signature_of(fact, imports) if fact.final else None
            if signature is not None:
                gathered.setdefault(signature.id, []).append((name, fact, signature))
    held = active_ids(record.quarantined)
    known = {group.signature.id: group for group in record.failure_groups}
    ranked = sorted(gathered.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = tuple(_row(found, known, held) for _, found in ranked[:GROUPS_SHOWN])
    failing = sum(len(found) for found in gathered.values())
    hidden = failing - sum(row.count for row in rows)
    return FailureTable(rows, hidden, failing, len(gathered))


def _row(
    findings: list[_Found],
    known: Mapping[str, FailureGroup],
    held: Mapping[tuple[str, str, str], str],
) -> FailureGroupRow:
    signature = findings[0][2]
    group = known.get(signature.id)
    tests = list(dict.fromkeys(f"{fact.job}: {fact.nodeid}" for _, fact, _ in findings))
    seen = group.first_seen if group else None
    quarantines = {held.get((name, fact.job, fact.nodeid), "") for name, fact, _ in findings} - {""}
    return FailureGroupRow(
        id=signature.id,
        kind=signature.kind.value,
        description=str(signature),
        count=len(findings),
        tests=tuple(tests[:TESTS_SHOWN]),
        hidden=len(tests[TESTS_SHOWN:]),
        cells=tuple(dict.fromkeys(name for name, _, _ in findings)),
        first_seen=seen or Absent("not on record"),
        known_issues=group.known_issues if group else (),
        quarantines=tuple(sorted(quarantines)),
    )


def issues_of(record: RunRecord, ids: Iterable[str] | None = None) -> tuple[IssueRow, ...]:
    """Return the known issues of a run, or those with these ids."""
    wanted = None if ids is None else set(ids)
    return tuple(
        filled(IssueRow, use.issue, state=use.state.value, count=use.count)
        for use in record.known_issues
        if wanted is None or use.issue.id in wanted
    )


def quarantined_of(record: RunRecord, cell: str = "") -> tuple[QuarantinedFailure, ...]:
    """Return failing results of the run, or of one cell, whose tests are quarantined."""
    return tuple(
        QuarantinedFailure(
            id=one.quarantine.id,
            nodeid=one.nodeid,
            cell=one.cell,
            job=one.job,
            reason=one.quarantine.reason,
            owner=one.quarantine.owner,
            expires=one.quarantine.expires,
            state=one.state.value,
        )
        for one in record.quarantined
        if cell in ("", one.cell)
    )


def blame_of(record: RunRecord, cell: str = "") -> tuple[DiagnosedTest, ...]:
    """Return root causes of failing tests of a run, or of one cell, that were retested."""
    return tuple(one for one in record.diagnosed if cell in ("", one.cell))
