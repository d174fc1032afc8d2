"""Who answers for a kind of failure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from orchestrator.application.triage_failures import TriageInputs, TriageStatus
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import IssueMatch, KnownIssue

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ISSUE = KnownIssue(
    id="KI-0001",
    product="p",
    title="t",
    match=IssueMatch(signature="s1-a"),
    owner="ann",
    opened=date(2026, 2, 1),
    expires=date(2026, 4, 1),
)
HELD = Quarantine(
    id="Q-0001",
    product="p",
    nodeid="a",
    reason="r",
    owner="bo",
    opened=NOW,
    expires=NOW + timedelta(days=3),
)


@pytest.mark.parametrize(
    ("said", "days", "expected", "owners"),
    [
        (TriageInputs(), 7, TriageStatus.NEW, ()),
        (TriageInputs(), 8, TriageStatus.UNOWNED, ()),
        (TriageInputs(issues=(ISSUE,), tolerated=4), 8, TriageStatus.KNOWN, ("ann",)),
        (TriageInputs(issues=(ISSUE,), tolerated=3), 8, TriageStatus.UNOWNED, ("ann",)),
        (TriageInputs(over=(ISSUE,)), 0, TriageStatus.LAPSED, ("ann",)),
        (TriageInputs(over=(ISSUE,), quarantines=(HELD,)), 0, TriageStatus.QUARANTINED, ("bo",)),
        (TriageInputs(issues=(ISSUE, ISSUE), tolerated=1), 0, TriageStatus.NEW, ("ann",)),
    ],
)
def test_standing(
    said: TriageInputs, days: int, expected: TriageStatus, owners: tuple[str, ...]
) -> None:
    first = NOW - timedelta(days=days)
    assert said.status(4, first_seen=first, now=NOW) is expected
    assert said.owners == owners
