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
"""A firing claimed this soon after it was due is not a catch-up."""
CAUGHT_UP_MOST = 100
"""Maximum firings that are caught up after one downtime."""
MISSED_KEPT = 50
"""Maximum missed firings that are recorded after one downtime; the rest are only counted."""
MAX_TRIES = 6
"""Maximum tries of a transient fault before a firing is errored."""
_PAUSES_S = (30, 60, 120, 300, 600)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WALL = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_AFTER = re.compile(r"([1-9][0-9]{0,4})m")


class Overlap(StrEnum):
    """The action of a firing while an earlier firing is unfinished (`Firing.goes_before`)."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancel-previous"


class CatchUp(StrEnum):
    """The firings that are run after a downtime in which they were missed."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class SubjectKind(StrEnum):
    """The subject that a schedule validates."""

    FIXED = "fixed"
    """The matrix's subject."""
    LATEST = "latest"
    """The newest version of a package in pip's index."""
    BRANCH = "branch"
    """The head of a branch, built as a wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSelector:
    """Selects the subject of a firing when it fires."""

    kind: SubjectKind = SubjectKind.FIXED
    package: Word = ""
    """For ``latest``; empty uses the name of the matrix's subject."""
    prereleases: bool = False
    """Whether ``latest`` includes pre-releases."""
    url: Word = ""
    """For ``branch``: any URL that git can clone; empty uses the matrix's."""
    branch: Word = ""
    """Name of the branch; empty uses the matrix's revision."""

    @property
    def words(self) -> str:
        """The selector in words, for a person."""
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
    """Cron expression of five fields."""
    tz: str
    """An IANA time zone."""
    owner: str
    """Who is responsible for it."""
    matrix: str
    """Text of the matrix file when the schedule was added."""
    matrix_name: str = "matrix"
    """File name of the matrix, for messages."""
    product: str = ""
    """Name of its payload, which is its runs' product."""
    payload: str = "builtin"
    """``builtin``, or the digest of an uploaded archive."""
    subject_digest: str | None = None
    """Digest of the uploaded wheel of a fixed subject."""
    baseline_digest: str | None = None
    """Digest of the uploaded baseline, where the matrix names a file."""
    subject: SubjectSelector = field(default_factory=SubjectSelector)
    """Selector of the subject."""
    last_passed_baseline: bool = False
    """Whether the version that the gate passed last replaces the matrix's baseline."""
    gate: str = ""
    """Name of a gate; empty uses the run's outcome."""
    deadline: str = ""
    """``06:00`` in its zone, or ``90m`` after the due time; empty without one."""
    overlap: Overlap = Overlap.SKIP
    """The action of a firing while an earlier one is unfinished."""
    catch_up: CatchUp = CatchUp.LATEST
    """The firings to run after a downtime."""
    catch_up_hours: int = 24
    """Firings due longer ago are not caught up."""
    reuse_max_age_s: float | None = None
    """Jobs with identical inputs and evidence no older than this are not run again."""
    commit: Commit = field(default_factory=Commit)
    """The commit of its payload's checkout, which its runs test; empty if it is unknown."""
    created_at: datetime
    paused_at: datetime | None = None
    """When it was paused; None while it fires."""

    @property
    def lineage(self) -> str:
        """Name of the schedule's lineage of verdicts."""
        return f"{self.gate or 'run'}@{self.name}"


class FiringState(StrEnum):
    """State of a firing; a firing passes through the states in the order of the members."""

    CLAIMED = "claimed"
    RESOLVED = "resolved"
    LAUNCHED = "launched"
    FINISHED = "finished"
    CONFIRMING = "confirming"
    """Failures are repeated on a second machine to find their root cause."""
    EVALUATED = "evaluated"
    NOTIFIED = "notified"


_ORDER = {state: number for number, state in enumerate(FiringState)}

ERRORED, SKIPPED, MISSED, CANCELLED = "errored", "skipped", "missed", "cancelled"
"""Outcomes of firings without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The resolved launch of a firing; stored, so that every controller launches the same."""

    matrix: Mapping[str, object] = field(default_factory=dict)
    """The matrix document with the subject of this firing."""
    subject_digest: str | None = None
    baseline_digest: str | None = None
    subject: str = ""
    """The subject, for a person: ``torchbridge 0.4.41``."""
    known: Mapping[str, str] = field(default_factory=dict)
    """``name, version, git_sha`` as far as known before the launch."""
    subject_built: str = ""
    """Place, account and source of the build of the subject's wheel."""
    remarks: tuple[str, ...] = ()
    """Remarks for a person, such as a missing baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One due time of a schedule."""

    schedule: str
    due_at: datetime
    """The due time, which identifies the firing of a schedule."""
    claimed_at: datetime
    state: FiringState = FiringState.CLAIMED
    outcome: str = ""
    """The gate's decision, or the run's outcome without a gate, or `errored`, `skipped`, `missed`,
    `cancelled`; empty while it is open.
    """
    reason: str = ""
    """Why there is no verdict."""
    by: str = ""
    """Who triggered it; empty for the clock."""
    deadline_at: datetime | None = None
    overdue: bool = False
    """Whether the missed deadline was announced."""
    tries: int = 0
    """Consecutive transient faults."""
    retry_at: datetime | None = None
    resolved: Resolved | None = None
    run: str = ""
    confirmation_run: str = ""
    """Id of its confirmation run."""
    verdict: str = ""
    """Id of its final verdict."""
    ended_at: datetime | None = None
    superseded: bool = False
    """Whether a later firing requested its end."""

    @property
    def term(self) -> str:
        """Vocabulary code of the outcome; of the state while the firing is unfinished."""
        return f"firing:{SKIPPED}" if self.outcome == SKIPPED else self.outcome or self.state

    @property
    def key(self) -> str:
        """Idempotency key of the firing's launch, verdict and announcements."""
        return f"schedule:{self.schedule}:{self.due_at:%Y-%m-%dT%H:%M:%SZ}"

    def has_reached(self, state: FiringState) -> bool:
        """Whether the firing is in the state or past the state."""
        return _ORDER[self.state] >= _ORDER[state]

    @property
    def is_over(self) -> bool:
        """Whether the firing is finished."""
        return self.state is FiringState.NOTIFIED

    @property
    def has_begun(self) -> bool:
        """Whether the firing is launching a run or has launched one."""
        return self.state is FiringState.RESOLVED or bool(self.run)

    def goes_before(self, other: Firing) -> bool:
        """Whether the other firing of the schedule has to wait for this one.

        That is so while this one is unfinished, if it was due earlier or has begun already. A
        firing that was due earlier may be stored later: after downtime, or when a person triggers.
        """
        if self.is_over or self.schedule != other.schedule or self.due_at == other.due_at:
            return False
        return self.due_at < other.due_at or self.has_begun


@dataclass(frozen=True, slots=True)
class ScheduleResponse:
    """A schedule with its recent firings and next times."""

    schedule: Schedule
    upcoming: tuple[datetime, ...]
    """The next times; empty while it is paused."""
    firings: Sequence[Firing]
    """Latest first; in lists of schedules, only the latest."""


@dataclass(frozen=True, slots=True)
class Due:
    """Due times since the last check: those to fire and those missed."""

    fire: tuple[datetime, ...]
    missed: tuple[datetime, ...]


def sort_out(due: Sequence[datetime], schedule: Schedule, now: datetime) -> Due:
    """Divide due times, oldest first, into those that fire now and those that were missed."""
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
    """Return how long to wait after consecutive faults."""
    return timedelta(seconds=_PAUSES_S[min(tries, len(_PAUSES_S)) - 1])


def wall_deadline(deadline: str) -> tuple[int, int] | None:
    """Parse hour and minute of a clock deadline."""
    found = _WALL.fullmatch(deadline)
    return (int(found[1]), int(found[2])) if found else None


def minutes_deadline(deadline: str) -> timedelta | None:
    """Parse the minutes of a deadline that counts from the due time."""
    found = _AFTER.fullmatch(deadline)
    return timedelta(minutes=int(found[1])) if found else None


def faults(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Return the errors of a schedule by field; cron and time zone are checked elsewhere."""
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
