"""Schedules and their firings: due times, states and order. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.commit import Commit, branch_fault, url_fault
from orchestrator.domain.field_limits import Word

ON_TIME = timedelta(minutes=5)
"""Maximum delay of a firing that is not a catch-up."""
CAUGHT_UP_MOST = 100
"""Maximum number of firings that are caught up after one downtime."""
MISSED_KEPT = 50
"""Maximum number of missed firings that are recorded after one downtime; others are only counted.
"""
MAX_TRIES = 6
"""Number of tries with transient faults after which a firing is errored."""
_PAUSES_S = (30, 60, 120, 300, 600)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WALL = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_AFTER = re.compile(r"([1-9][0-9]{0,4})m")


class Overlap(StrEnum):
    """What a firing does while an earlier firing is unfinished (`Firing.goes_before`)."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancel-previous"


class CatchUp(StrEnum):
    """Which missed firings run after a downtime."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class SubjectKind(StrEnum):
    """How a schedule selects the subject."""

    FIXED = "fixed"
    """The subject of the matrix."""
    LATEST = "latest"
    """The newest version of a package in pip's index."""
    BRANCH = "branch"
    """The head of a branch, which is built as a wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSelector:
    """How the subject of a firing is selected."""

    kind: SubjectKind = SubjectKind.FIXED
    package: Word = ""
    """Package for ``latest``; by default the name of the matrix's subject."""
    prereleases: bool = False
    """Whether ``latest`` includes pre-releases."""
    url: Word = ""
    """Repository for ``branch``: a URL that git can clone; by default that of the matrix."""
    branch: Word = ""
    """Name of the branch; by default the revision in the matrix."""

    @property
    def words(self) -> str:
        """The selection in words, for a person."""
        if self.kind is SubjectKind.LATEST:
            return f"newest {self.package or 'version'}{' or pre-release' * self.prereleases}"
        if self.kind is SubjectKind.BRANCH:
            return f"branch {self.branch} of {self.url}"
        return "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A matrix that is launched at fixed times."""

    name: str
    cron: str
    """Cron expression with five fields."""
    tz: str
    """Name of an IANA time zone."""
    owner: str
    """The person who is responsible for it."""
    matrix: str
    """Text of the matrix file at the time when the schedule was added."""
    matrix_name: str = "matrix"
    """File name of the matrix, for messages."""
    product: str = ""
    """Name of its payload, which is the product of its runs."""
    payload: str = "builtin"
    """``builtin``, or the digest of an uploaded archive."""
    subject_digest: str | None = None
    """Digest of the uploaded wheel of a fixed subject; None without one."""
    baseline_digest: str | None = None
    """Digest of the uploaded baseline; None unless the matrix names a file."""
    subject: SubjectSelector = field(default_factory=SubjectSelector)
    """How the subject is selected."""
    last_passed_baseline: bool = False
    """Whether the baseline is the version that last passed the gate, not that of the matrix."""
    gate: str = ""
    """Name of the gate that decides; if empty, the run's outcome decides."""
    deadline: str = ""
    """Deadline: ``06:00`` in its time zone, or ``90m`` after the due time; empty without one."""
    overlap: Overlap = Overlap.SKIP
    """What a firing does while an earlier firing is unfinished."""
    catch_up: CatchUp = CatchUp.LATEST
    """Which missed firings run after a downtime."""
    catch_up_hours: int = 24
    """Maximum age in hours of missed firings that are caught up."""
    reuse_max_age_s: float | None = None
    """Maximum age in seconds of evidence that is reused for jobs with equal inputs; None reuses
    none."""
    commit: Commit = field(default_factory=Commit)
    """The commit of the payload's checkout, which its runs test; empty if it is unknown."""
    created_at: datetime
    paused_at: datetime | None = None
    """When it was paused; None if it is not paused."""

    @property
    def lineage(self) -> str:
        """Name of the schedule's lineage of verdicts."""
        return f"{self.gate or 'run'}@{self.name}"


class FiringState(StrEnum):
    """State of a firing; the states are passed in this order."""

    CLAIMED = "claimed"
    RESOLVED = "resolved"
    LAUNCHED = "launched"
    FINISHED = "finished"
    CONFIRMING = "confirming"
    """Failures are repeated on another machine to find their root cause."""
    EVALUATED = "evaluated"
    NOTIFIED = "notified"


_ORDER = {state: number for number, state in enumerate(FiringState)}

ERRORED, SKIPPED, MISSED, CANCELLED = "errored", "skipped", "missed", "cancelled"
"""Outcomes of firings that have no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a firing launches; stored, so that every controller launches the same."""

    matrix: Mapping[str, object] = field(default_factory=dict)
    """The matrix document with the subject of this firing."""
    subject_digest: str | None = None
    baseline_digest: str | None = None
    subject: str = ""
    """The subject in words, such as ``torchbridge 0.4.41``."""
    known: Mapping[str, str] = field(default_factory=dict)
    """``name``, ``version`` and ``git_sha``, as far as they are known before the launch."""
    subject_built: str = ""
    """Place, account and source of the build of the subject's wheel; empty if it was not built."""
    remarks: tuple[str, ...] = ()
    """Remarks for a person, such as that there is no baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A firing of a schedule."""

    schedule: str
    due_at: datetime
    """The due time; it identifies the firing within its schedule."""
    claimed_at: datetime
    state: FiringState = FiringState.CLAIMED
    outcome: str = ""
    """The gate's decision (without a gate, the run's outcome), or `errored`, `skipped`, `missed` or
    `cancelled`; empty while the firing is unfinished."""
    reason: str = ""
    """Why there is no verdict; empty with a verdict."""
    by: str = ""
    """The person who triggered it; empty if the clock did."""
    deadline_at: datetime | None = None
    overdue: bool = False
    """Whether it was announced that the deadline is missed."""
    tries: int = 0
    """Number of consecutive transient faults."""
    retry_at: datetime | None = None
    resolved: Resolved | None = None
    run: str = ""
    confirmation_run: str = ""
    """Id of the confirmation run; empty without one."""
    verdict: str = ""
    """Id of the final verdict; empty without one."""
    ended_at: datetime | None = None
    superseded: bool = False
    """Whether a later firing requested that it ends."""

    @property
    def term(self) -> str:
        """Code of the term for the outcome; for its state while it is unfinished."""
        return f"firing:{SKIPPED}" if self.outcome == SKIPPED else self.outcome or self.state

    @property
    def key(self) -> str:
        """Idempotency key of its launch, verdict and announcements."""
        return f"schedule:{self.schedule}:{self.due_at:%Y-%m-%dT%H:%M:%SZ}"

    def has_reached(self, state: FiringState) -> bool:
        """Whether the firing is in the state `state` or a later one."""
        return _ORDER[self.state] >= _ORDER[state]

    @property
    def is_over(self) -> bool:
        """Whether the firing is finished."""
        return self.state is FiringState.NOTIFIED

    @property
    def has_begun(self) -> bool:
        """Whether the firing launches or has launched a run."""
        return self.state is FiringState.RESOLVED or bool(self.run)

    def goes_before(self, other: Firing) -> bool:
        """Whether the other firing of the schedule must wait for this one.

        It must while this one is unfinished and either was due earlier or has begun. A
        firing that was due earlier may be stored later: after a downtime, or if a person
        triggers it.
        """
        if self.is_over or self.schedule != other.schedule or self.due_at == other.due_at:
            return False
        return self.due_at < other.due_at or self.has_begun


@dataclass(frozen=True, slots=True)
class ScheduleResponse:
    """A schedule with its recent firings and its next due times."""

    schedule: Schedule
    upcoming: tuple[datetime, ...]
    """The next due times; empty while it is paused."""
    firings: Sequence[Firing]
    """Its firings, newest first; lists of schedules have only the newest one."""


@dataclass(frozen=True, slots=True)
class Due:
    """The due times since the last check: to fire, and missed."""

    fire: tuple[datetime, ...]
    missed: tuple[datetime, ...]


def sort_out(due: Sequence[datetime], schedule: Schedule, now: datetime) -> Due:
    """Divide due times (oldest first) into those that fire now and those that are missed."""
    if not due:
        return Due((), ())
    fire: set[datetime] = {at for at in due[-1:] if now - at <= ON_TIME}
    bound = now - timedelta(hours=schedule.catch_up_hours)
    late = [at for at in due if at >= bound]
    if schedule.catch_up is CatchUp.LATEST:
        fire |= set(late[-1:])
    elif schedule.catch_up is CatchUp.ALL:
        fire |= set(late[-CAUGHT_UP_MOST:])
    missed = [at for at in due if at not in fire]
    return Due(tuple(sorted(fire)), tuple(missed[-MISSED_KEPT:]))


def pause_after(tries: int) -> timedelta:
    """Return the wait after a number of consecutive transient faults."""
    return timedelta(seconds=_PAUSES_S[min(tries, len(_PAUSES_S)) - 1])


def wall_deadline(deadline: str) -> tuple[int, int] | None:
    """Parse a deadline such as ``06:00`` into (hour, minute); None for other texts."""
    found = _WALL.fullmatch(deadline)
    return (int(found[1]), int(found[2])) if found else None


def minutes_deadline(deadline: str) -> timedelta | None:
    """Parse a deadline such as ``90m``, which counts from the due time; None for other texts."""
    found = _AFTER.fullmatch(deadline)
    return timedelta(minutes=int(found[1])) if found else None


def faults(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Yield the problems of a schedule as (field, message), without those of cron and time zone."""
    if not _NAME.fullmatch(schedule.name):
        yield (
            "name",
            "must be at most 64 letters, digits, '.', '_' and '-', a letter or digit first",
        )
    if not schedule.owner.strip():
        yield "owner", "must say who answers for it"
    if schedule.deadline and not (
        wall_deadline(schedule.deadline) or minutes_deadline(schedule.deadline)
    ):
        yield "deadline", "must be a time of day such as 06:00, or minutes after it was due: 90m"
    if not 1 <= schedule.catch_up_hours <= 24 * 14:
        yield "catch_up_hours", "must be between 1 hour and 14 days"
    if schedule.catch_up is CatchUp.ALL and schedule.overlap is Overlap.SKIP:
        yield "catch_up", "`all` needs the overlap `queue`: else what is caught up skips itself"
    if schedule.last_passed_baseline and not schedule.gate:
        yield "baseline", "`last-passed` needs a gate that passes versions"
    yield from _selector_faults(schedule.subject)
    if schedule.reuse_max_age_s is not None and schedule.reuse_max_age_s <= 0:
        yield "reuse_hours", "must be more than nothing"


def _selector_faults(selector: SubjectSelector) -> Iterator[tuple[str, str]]:
    for fault in (url_fault(selector.url), branch_fault(selector.branch)):
        if fault:
            yield "subject", fault
