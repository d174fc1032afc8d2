"""Quarantines of flaky tests: their states, and when they end automatically.

Failures of quarantined tests stay failures in every count; only a gate may tolerate them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.copied_fields import extended
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
    """The last day is over, so that failures count again."""
    ENDED = "ended"
    """A person ended it, or enough passes did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A failing result of a test that is or was quarantined."""

    quarantine: Quarantine
    state: QuarantineState
    """State of the quarantine when the record was made."""
    cell: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineResponse(Quarantine):
    """A quarantine with its state."""

    state: QuarantineState


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedQuarantine:
    """A flaky test for which a quarantine is suggested."""

    job: str
    nodeid: str
    platforms: tuple[str, ...]
    """Platforms on which it failed, or passed on retry."""
    evidence: FlakyEvidence
    quarantine: str = ""
    """Id of an existing quarantine of the test; empty without one."""


def state_of(quarantine: Quarantine, at: datetime) -> QuarantineState:
    """Return the state of a quarantine at the time `at`."""
    if quarantine.ended_at is not None and quarantine.ended_at <= at:
        return QuarantineState.ENDED
    return QuarantineState.EXPIRED if at >= quarantine.expires else QuarantineState.ACTIVE


def quarantine_answer(quarantine: Quarantine, at: datetime) -> QuarantineResponse:
    """Return a quarantine with its state at the time `at`."""
    return extended(QuarantineResponse, quarantine, state=state_of(quarantine, at))


def is_about(quarantine: Quarantine, nodeid: str, platform: str) -> bool:
    """Whether the quarantine covers the test on the platform, ended or not."""
    here = not quarantine.platforms or platform in quarantine.platforms
    return here and nodeid == quarantine.nodeid


def faults_of(quarantine: Quarantine, longest: timedelta) -> tuple[tuple[str, str], ...]:
    """Return the problems of a new quarantine as (key, message)."""
    said = []
    if not quarantine.opened < quarantine.expires <= quarantine.opened + longest:
        said.append(("days", f"must be from 1 to {longest.days}: a quarantine ends by itself"))
    if not 1 <= quarantine.returns_after <= MOST_PASSES:
        said.append(("returns_after", f"must be from 1 to {MOST_PASSES}"))
    named = ("product", "nodeid", "reason", "owner")
    missing = [key for key in named if not getattr(quarantine, key).strip()]
    return (*said, *((key, "is missing: say it, so that somebody can be asked") for key in missing))


def may_return(quarantine: Quarantine, since: Iterable[Iterable[ResultPoint]]) -> bool:
    """Whether the test passed often enough in a row, on each platform, to end the quarantine.

    `since` has the results since the quarantine began, oldest first, one sequence per job.
    """
    streaks = [passes_in_a_row(results) for results in since]
    concerned = set(quarantine.platforms) or {name for streak in streaks for name in streak}
    reached = [
        min((streak[name] for streak in streaks if name in streak), default=0) for name in concerned
    ]
    return bool(reached) and min(reached) >= quarantine.returns_after


def passes_in_a_row(results: Iterable[ResultPoint]) -> Mapping[str, int]:
    """Return the number of passes since the last failure, by platform.

    A pass on retry counts as a failure. Skips and tests that did not run are ignored. Platforms
    without a result are left out.
    """
    streaks: dict[str, int] = {}
    for go in results:
        if go.outcome in _BAD or (go.outcome in _GOOD and _BAD.intersection(go.earlier)):
            streaks[go.platform] = 0
        elif go.outcome in _GOOD:
            streaks[go.platform] = streaks.get(go.platform, 0) + 1
    return streaks


def returned_after(passes: int) -> str:
    """Return the `ended_by` text of a quarantine that ended after this many passes."""
    return f"returned after {passes} passes in a row"


def quarantine_of(
    quarantines: Iterable[Quarantine], nodeid: str, platform: str
) -> Quarantine | None:
    """Return the quarantine of a test, ended or not; None without one.

    If there are several, the one that expires last among those not ended is returned.
    """
    mine = (one for one in quarantines if is_about(one, nodeid, platform))
    return max(mine, key=lambda one: (one.ended_at is None, one.expires), default=None)


def quarantined_of(
    quarantines: Iterable[Quarantine], failures: Sequence[Failure], *, at: datetime
) -> tuple[Quarantined, ...]:
    """Return the failing results of a run whose tests are quarantined, or were until it expired.

    States are those at the time `at`, as in a gate: it also tolerates failures of earlier runs.
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
    """Return the ids of active quarantines by (cell, job, node id) of the failing result."""
    return {
        (one.cell, one.job, one.nodeid): one.quarantine.id
        for one in found
        if one.state is QuarantineState.ACTIVE
    }
