"""Schedules and their firings: due times, states and order. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.git_names import branch_fault, url_fault

ON_TIME = timedelta(minutes=5)
"""A firing that is claimed within so long after it was due is no catching up."""
CAUGHT_UP_MOST = 100
"""So many firings of one downtime are made up for."""
MISSED_KEPT = 50
"""So many missed firings of one downtime are written down; the rest are only counted."""
MAX_TRIES = 6
"""So often something that may pass by itself is tried before a firing is errored."""
_PAUSES_S = (30, 60, 120, 300, 600)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WALL = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_AFTER = re.compile(r"([1-9][0-9]{0,4})m")


class Overlap(StrEnum):
    """What a firing does while another one goes before it; see `Firing.goes_before`."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancel-previous"


class CatchUp(StrEnum):
    """Which firings missed during downtime are run afterwards."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class SubjectKind(StrEnum):
    """What a schedule validates, each time it fires."""

    FIXED = "fixed"
    """What its matrix says."""
    LATEST = "latest"
    """The newest version of a package by pip's index."""
    BRANCH = "branch"
    """The head of a branch, built as a wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSelector:
    """Says which subject a firing is about; resolved when it fires."""

    kind: SubjectKind = SubjectKind.FIXED
    package: str = ""
    """Of ``latest``; empty takes the name of the matrix's subject."""
    prereleases: bool = False
    """Whether ``latest`` may be one."""
    url: str = ""
    """Of ``branch``: anything that git can clone; empty takes the matrix's."""
    branch: str = ""
    """Its name; empty takes the matrix's revision."""

    @property
    def words(self) -> str:
        """For a person."""
        if self.kind is SubjectKind.LATEST:
            return f"newest {self.package or 'version'}{' or pre-release' * self.prereleases}"
        if self.kind is SubjectKind.BRANCH:
            return f"branch {self.branch} of {self.url}"
        return "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A matrix that is launched again and again."""

    name: str
    cron: str
    """Five fields."""
    tz: str
    """An IANA time zone."""
    owner: str
    """Who answers for it."""
    matrix: str
    """The text of its matrix file, kept as it was when the schedule was added."""
    matrix_name: str = "matrix"
    """What messages call the matrix: its file's name."""
    product: str = ""
    """Name of the matrix's subject."""
    payload: str = "builtin"
    """``builtin``, or the digest of an uploaded archive."""
    subject_digest: str | None = None
    """Digest of the uploaded wheel of a fixed subject that is one."""
    baseline_digest: str | None = None
    """Digest of the uploaded baseline, where the matrix names a file."""
    subject: SubjectSelector = field(default_factory=SubjectSelector)
    """What is validated."""
    last_passed_baseline: bool = False
    """Pair benchmarks with the version that the gate passed last, whatever the matrix says."""
    gate: str = ""
    """Name of a stored policy; empty judges by the run's outcome."""
    deadline: str = ""
    """``06:00`` in its zone, or ``90m`` after it was due; empty for none."""
    overlap: Overlap = Overlap.SKIP
    """While an earlier firing is not over."""
    catch_up: CatchUp = CatchUp.LATEST
    """After downtime."""
    catch_up_hours: int = 24
    """What was due longer ago is not made up for."""
    reuse_max_age_s: float | None = None
    """Jobs with evidence no older than this, of the very same, are not run again."""
    created_at: datetime
    paused_at: datetime | None = None
    """Since when it does not fire."""

    @property
    def lineage(self) -> str:
        """Name of the schedule's lineage of verdicts; each state of it is announced once."""
        return f"{self.gate or 'run'}@{self.name}"


class FiringState(StrEnum):
    """Where a firing is, in this order."""

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
"""Outcomes of firings that came to no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a firing launches; stored, so that every controller launches the same."""

    matrix: Mapping[str, object] = field(default_factory=dict)
    """The document, with the subject of this firing."""
    subject_digest: str | None = None
    baseline_digest: str | None = None
    subject: str = ""
    """For a person: ``torchbridge 0.4.41``."""
    known: Mapping[str, str] = field(default_factory=dict)
    """``name, version, git_sha``: what is known of it before anything ran."""
    subject_built: str = ""
    """Where the subject's wheel was built, as whom and from what."""
    remarks: tuple[str, ...] = ()
    """What a person should know, such as that there is nothing to pair with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One time that a schedule was due."""

    schedule: str
    due_at: datetime
    """With the schedule's name its identity."""
    claimed_at: datetime
    state: FiringState = FiringState.CLAIMED
    outcome: str = ""
    """The gate's decision, or the run's outcome without one, or `errored`, `skipped`, `missed`,
    `cancelled`; empty while there is none."""
    reason: str = ""
    """Why there is no verdict."""
    by: str = ""
    """Who triggered it; empty for the clock."""
    deadline_at: datetime | None = None
    overdue: bool = False
    """People were told that there was no verdict by the deadline."""
    tries: int = 0
    """Faults in a row that may pass by themselves."""
    retry_at: datetime | None = None
    resolved: Resolved | None = None
    run: str = ""
    confirmation_run: str = ""
    """Asks a second machine."""
    verdict: str = ""
    """Id of the verdict that counts."""
    ended_at: datetime | None = None
    superseded: bool = False
    """A later firing asks for its end."""

    @property
    def key(self) -> str:
        """What makes its launch, its verdict and its announcements happen once."""
        return f"schedule:{self.schedule}:{self.due_at:%Y-%m-%dT%H:%M:%SZ}"

    def has_reached(self, state: FiringState) -> bool:
        """Whether it is there, or past it."""
        return _ORDER[self.state] >= _ORDER[state]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.state is FiringState.NOTIFIED

    @property
    def has_begun(self) -> bool:
        """Whether it launches a run, or launched one."""
        return self.state is FiringState.RESOLVED or bool(self.run)

    def goes_before(self, other: Firing) -> bool:
        """Whether it is not over, and was due earlier than the other or has begun already.

        What is due earlier may be written down later: after downtime, or when a person triggers.
        """
        if self.is_over or self.schedule != other.schedule or self.due_at == other.due_at:
            return False
        return self.due_at < other.due_at or self.has_begun


@dataclass(frozen=True, slots=True)
class ScheduleResponse:
    """A schedule, with what it did and what it will do."""

    schedule: Schedule
    upcoming: tuple[datetime, ...]
    """Its next times; none while it is paused."""
    firings: Sequence[Firing]
    """The latest first; of a list of schedules, only the latest."""


@dataclass(frozen=True, slots=True)
class Due:
    """The due times since the last look: those to fire and those missed."""

    fire: tuple[datetime, ...]
    missed: tuple[datetime, ...]


def sort_out(due: Sequence[datetime], schedule: Schedule, now: datetime) -> Due:
    """Which of these times, oldest first, fire now, and which were missed for good."""
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
    """How long to wait after so many faults in a row."""
    return timedelta(seconds=_PAUSES_S[min(tries, len(_PAUSES_S)) - 1])


def wall_deadline(deadline: str) -> tuple[int, int] | None:
    """Hour and minute of a deadline by the clock on the wall."""
    found = _WALL.fullmatch(deadline)
    return (int(found[1]), int(found[2])) if found else None


def minutes_deadline(deadline: str) -> timedelta | None:
    """Of a deadline that counts from when the firing was due."""
    found = _AFTER.fullmatch(deadline)
    return timedelta(minutes=int(found[1])) if found else None


def faults(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """What is wrong with a schedule, by field; cron and zone are for those who know them."""
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
