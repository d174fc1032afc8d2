"""Triage of failure groups: owned, with an expired owner, or unowned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import KnownIssue

NEW_FOR = timedelta(days=7)
"""A failure group first seen within this time is new."""


class TriageStatus(StrEnum):
    """Triage status of a failure group, most urgent first."""

    NEW = "new"
    """Without an owner, and first seen within a week."""
    LAPSED = "lapsed"
    """Only an expired known issue matches."""
    UNOWNED = "unowned"
    """Without an owner for more than a week."""
    QUARANTINED = "quarantined"
    """All of its tests are quarantined where they fail."""
    KNOWN = "known"
    """Known issues explain all of its results."""


@dataclass(frozen=True, slots=True)
class TriageInputs:
    """Known issues and quarantines that concern a failure group."""

    issues: tuple[KnownIssue, ...] = ()
    """Issues that apply to at least one of its results."""
    over: tuple[KnownIssue, ...] = ()
    """Expired or ended issues that would apply."""
    quarantines: tuple[Quarantine, ...] = ()
    """Active quarantines that cover all of its tests wherever they fail."""
    tolerated: int = 0
    """Results that an issue applies to."""

    @property
    def owners(self) -> tuple[str, ...]:
        """The present owners, or the last ones."""
        now = [issue.owner for issue in self.issues] + [one.owner for one in self.quarantines]
        return tuple(dict.fromkeys(now or [issue.owner for issue in self.over]))

    def status(self, count: int, *, first_seen: datetime, now: datetime) -> TriageStatus:
        """Return the status of a group of `count` results."""
        if self.tolerated >= count:
            return TriageStatus.KNOWN
        if self.quarantines:
            return TriageStatus.QUARANTINED
        if self.over:
            return TriageStatus.LAPSED
        return TriageStatus.NEW if now - first_seen <= NEW_FOR else TriageStatus.UNOWNED
