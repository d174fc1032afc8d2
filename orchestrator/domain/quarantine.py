"""Quarantines of flaky tests: their duration, and when one ends automatically.

Their failures stay failures in every count; a quarantine is only what a gate may tolerate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.extend_record import extended
from orchestrator.domain.failure_signature import Failure
from orchestrator.domain.flaky import FlakyEvidence, ResultPoint
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.outcome import TestOutcome

MOST_PASSES = 1000
_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})
_BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})


class QuarantineState(StrEnum):
    """State of a quarantine."""

    ACTIVE = "active"
    EXPIRED = "expired"
    """Expired: failures count again."""
    ENDED = "ended"
    """Ended by a person, or automatically after passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A failing result whose test is, or was, quarantined."""

    quarantine: Quarantine
    state: QuarantineState
    """State when the record was made."""
    cell: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineResponse(Quarantine):
    """A quarantine with its state at a time."""

    state: QuarantineState


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedQuarantine:
    """A flaky test that should be quarantined."""

    job: str
    nodeid: str
    platforms: tuple[str, ...]
    """Platforms where it failed, or passed on retry."""
    evidence: FlakyEvidence
    quarantine: str = ""
    """Id of its existing quarantine."""


def state_of(quarantine: Quarantine, at: datetime) -> QuarantineState:
    """Return the state of a quarantine at a time."""
    if quarantine.ended_at is not None and quarantine.ended_at <= at:
        return QuarantineState.ENDED
    return QuarantineState.EXPIRED if at >= quarantine.expires else QuarantineState.ACTIVE


def quarantine_answer(quarantine: Quarantine, at: datetime) -> QuarantineResponse:
    """Return the quarantine with its state at a time."""
    return extended(QuarantineResponse, quarantine, state=state_of(quarantine, at))


def is_about(quarantine: Quarantine, nodeid: str, platform: str) -> bool:
    """Whether the quarantine covers the test on the platform."""
    here = not quarantine.platforms or platform in quarantine.platforms
    return here and nodeid == quarantine.nodeid


def faults_of(quarantine: Quarantine, longest: timedelta) -> tuple[tuple[str, str], ...]:
    """Return the errors of a new quarantine, by key."""
    said = []
    if not quarantine.opened < quarantine.expires <= quarantine.opened + longest:
        said.append(("days", f"must be from 1 to {longest.days}: a quarantine ends by itself"))
    if not 1 <= quarantine.returns_after <= MOST_PASSES:
        said.append(("returns_after", f"must be from 1 to {MOST_PASSES}"))
    named = ("product", "nodeid", "reason", "owner")
    missing = [key for key in named if not getattr(quarantine, key).strip()]
    return (*said, *((key, "is missing: say it, so that somebody can be asked") for key in missing))


def may_return(quarantine: Quarantine, since: Iterable[Iterable[ResultPoint]]) -> bool:
    """Whether the test passed often enough in a row, on each platform, to be released."""
    streaks = [passes_in_a_row(results) for results in since]
    concerned = set(quarantine.platforms) or {name for streak in streaks for name in streak}
    reached = [
        min((streak[name] for streak in streaks if name in streak), default=0) for name in concerned
    ]
    return bool(reached) and min(reached) >= quarantine.returns_after


def passes_in_a_row(results: Iterable[ResultPoint]) -> Mapping[str, int]:
    """Return passes since the last failure, by platform; a pass on retry does not count.

    Skips, and tests that did not run, say nothing. A platform without a result is left out.
    """
    streaks: dict[str, int] = {}
    for go in results:
        if go.outcome in _BAD or (go.outcome in _GOOD and _BAD.intersection(go.earlier)):
            streaks[go.platform] = 0
        elif go.outcome in _GOOD:
            streaks[go.platform] = streaks.get(go.platform, 0) + 1
    return streaks


def returned_after(passes: int) -> str:
    """Return the `ended_by` text of a quarantine that ended by itself after so many passes."""
    return f"returned after {passes} passes in a row"


def quarantine_of(
    quarantines: Iterable[Quarantine], nodeid: str, platform: str
) -> Quarantine | None:
    """Return a test's quarantine, over or not; the open one that lasts longest comes first."""
    mine = (one for one in quarantines if is_about(one, nodeid, platform))
    return max(mine, key=lambda one: (one.ended_at is None, one.expires), default=None)


def quarantined_of(
    quarantines: Iterable[Quarantine], failures: Sequence[Failure], *, at: datetime
) -> tuple[Quarantined, ...]:
    """Return failing results of a run whose tests are in quarantine, or were until it expired.

    As a gate has it at that time: a quarantine tolerates failures of earlier runs too.
    """
    known = [one for one in quarantines if one.opened <= at]
    return tuple(
        Quarantined(
            quarantine=one, state=state, cell=found.cell, job=found.job, nodeid=found.nodeid
        )
        for found in failures
        if (one := quarantine_of(known, found.nodeid, found.platform)) is not None
        and (state := state_of(one, at)) is not QuarantineState.ENDED
    )


def active_ids(found: Iterable[Quarantined]) -> Mapping[tuple[str, str, str], str]:
    """Return the ids of active quarantines by cell, job and node id of the failing result."""
    return {
        (one.cell, one.job, one.nodeid): one.quarantine.id
        for one in found
        if one.state is QuarantineState.ACTIVE
    }
