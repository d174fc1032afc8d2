"""Triage of failure groups: owned, with an expired owner, or unowned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import KnownIssue

NEW_FOR = timedelta(days=7)
"""A kind of failure that was seen for the first time no longer ago is new."""


class TriageStatus(StrEnum):
    """Triage status of a failure group, most urgent first."""

    NEW = "new"
    """Nobody answers for it, and it was not there a week ago."""
    LAPSED = "lapsed"
    """A known issue explained it, and is over."""
    UNOWNED = "unowned"
    """Nobody answers for it, and it has been there for longer."""
    QUARANTINED = "quarantined"
    """All of its tests are in quarantine where it fails."""
    KNOWN = "known"
    """Known issues explain all of it."""


@dataclass(frozen=True, slots=True)
class TriageInputs:
    """Known issues, quarantines and notes on a failure group."""

    issues: tuple[KnownIssue, ...] = ()
    """That apply to at least one of its results."""
    over: tuple[KnownIssue, ...] = ()
    """That would, and are over."""
    quarantines: tuple[Quarantine, ...] = ()
    """That stand and are about all of its tests, wherever it fails."""
    tolerated: int = 0
    """Results that an issue applies to."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Who answers for it now, or did last."""
        now = [issue.owner for issue in self.issues] + [one.owner for one in self.quarantines]
        return tuple(dict.fromkeys(now or [issue.owner for issue in self.over]))

    def status(self, count: int, *, first_seen: datetime, now: datetime) -> TriageStatus:
        """Of so many results."""
        if self.tolerated >= count:
            return TriageStatus.KNOWN
        if self.quarantines:
            return TriageStatus.QUARANTINED
        if self.over:
            return TriageStatus.LAPSED
        return TriageStatus.NEW if now - first_seen <= NEW_FOR else TriageStatus.UNOWNED
