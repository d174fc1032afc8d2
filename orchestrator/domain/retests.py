"""Trials: a failed test runs again on the same machine, with at most one thing changed.

A sitting is one start of the agent for trials; each time that it runs the tests is one trial.
Which sitting comes next is decided here, from what is known so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

SURE = 4
"""Trials of one kind that must all agree before anything is said; ADR 0014 has the sum."""
BACK = 2
"""Trials with nothing changed, after those with something changed."""
AMONG = 2
"""Whole jobs run again for tests that pass by themselves."""
PASSED = "passed"
_BAD = ("failed", "error")
_MARK = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOrder:
    """What is wanted of trials, and their bounds."""

    reruns: int = 0
    """How often a failed test is run again with nothing changed."""
    diagnose: bool = False
    """Also with the baseline subject, and with the packages of the last green run."""
    max_tests: int = 20
    """Failing tests of a cell that are looked into."""
    max_minutes: float = 15.0
    """Of the machine's time."""
    tests: tuple[str, ...] = ()
    """Tests (`key_of`) that are run again where they passed, too."""
    await_minutes: float = 0.0
    """How long a machine waits for trials that somebody asks for, after its own."""


class TrialKind(StrEnum):
    """What differs from the attempt that failed."""

    RERUN = "rerun"
    """Nothing."""
    BASELINE = "baseline"
    """The subject is the baseline."""
    LAST_GREEN = "last_green"
    """The packages are those of the last green cell of the platform."""
    BISECT = "bisect"
    """The subject is another revision."""


class RetestSessionState(StrEnum):
    """Where a sitting is."""

    ASKED = "asked"
    RUNNING = "running"
    ENDED = "ended"


Tests = Mapping[str, tuple[str, ...]]
"""Node ids by job; none of them means the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The tests, run once more."""

    kind: TrialKind
    number: int
    """Within the attempt, from 1."""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Words by `key_of`; ``absent`` where it was not collected."""
    changed: str = ""
    """For a person: ``torchbridge 0.4.5``."""
    whole: bool = False
    """The whole jobs ran, not the failed tests alone."""
    sitting: int = 0
    """Number of the start of the agent that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAsk:
    """What is to be found out next."""

    kind: TrialKind
    tests: Tests
    times: int
    changed: str = ""
    subject_digest: str | None = None
    """The wheel of another revision."""
    subject_version: str = ""
    whole: bool = False
    """The whole jobs of tests that pass by themselves."""
    key: str = ""
    """So that asking twice has the effect of once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestSession:
    """One start of the agent for trials."""

    id: str
    """Its folder on the machine."""
    attempt_id: str
    number: int
    ask: TrialAsk
    asked_at: datetime
    state: RetestSessionState = RetestSessionState.ASKED
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcomes: tuple[Mapping[str, str], ...] = ()
    """Of each time, in order."""
    trouble: str = ""
    """Why there are none, for a person."""
    evidence: str = ""
    """Digest of the raw events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a cell's trials can change."""

    baseline: str = ""
    """The baseline subject, for a person; empty where there is none."""
    last_green: str = ""
    """The packages that would change, for a person; empty where none would."""


def key_of(job: str, nodeid: str) -> str:
    """How trials name a test; without a node id, a job that is one command."""
    return f"{job}::{nodeid}"


def split_key(key: str) -> tuple[str, str]:
    """The job and the node id."""
    job, _, nodeid = key.partition("::")
    return job, nodeid


def by_job(keys: Iterable[str]) -> Tests:
    """By job; a command's job is taken as a whole."""
    found: dict[str, list[str]] = {}
    for job, nodeid in map(split_key, keys):
        found.setdefault(job, []).extend([nodeid] if nodeid else [])
    return {job: tuple(nodeids) for job, nodeids in found.items()}


def job_in_session(job: str, time: int) -> str:
    """How the agent is told to run the same job for the n-th time."""
    return f"{job}{_MARK}{time}"


def job_of_session(name: str) -> tuple[str, int]:
    """The job and the time that a name in a sitting's evidence means."""
    job, _, time = name.rpartition(_MARK)
    return (job, int(time)) if job and time.isdecimal() else (name, 0)


def trials_of(sittings: Iterable[RetestSession]) -> tuple[Trial, ...]:
    """All of them, in order."""
    found: list[Trial] = []
    for sitting in sittings:
        for outcomes in sitting.outcomes:
            found.append(
                Trial(
                    kind=sitting.ask.kind,
                    number=len(found) + 1,
                    outcomes=outcomes,
                    changed=sitting.ask.changed,
                    whole=sitting.ask.whole,
                    sitting=sitting.number,
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Tally:
    """How one test went in some trials."""

    passed: int = 0
    failed: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Trials in which it was asked for."""
        return self.passed + self.failed + self.other

    def always_failed(self, times: int) -> bool:
        """In so many trials at least, and in each of them."""
        return self.failed >= times and self.failed == self.total

    def always_passed(self, times: int) -> bool:
        """In so many trials at least, and in each of them."""
        return self.passed >= times and self.passed == self.total


def tally(
    trials: Iterable[Trial], key: str, kind: TrialKind, *, whole: bool = False, after: int = 0
) -> Tally:
    """Count the outcomes of a test in trials of a kind, of sittings after a number."""
    words = [
        trial.outcomes[key]
        for trial in trials
        if trial.kind is kind
        and trial.whole is whole
        and trial.sitting > after
        and key in trial.outcomes
    ]
    return tally_words(words)


def tally_words(words: Sequence[str]) -> Tally:
    """Count outcomes."""
    passed = sum(word == PASSED for word in words)
    failed = sum(word in _BAD for word in words)
    return Tally(passed, failed, len(words) - passed - failed)


def reruns_of(trials: Iterable[Trial], job: str, nodeid: str) -> tuple[str, ...]:
    """How a test went each time that it ran again with nothing changed."""
    key = key_of(job, nodeid)
    again = (t for t in trials if t.kind is TrialKind.RERUN)
    return tuple(trial.outcomes[key] for trial in again if key in trial.outcomes)


def last_session(trials: Iterable[Trial], kind: TrialKind) -> int:
    """Number of the last sitting of a kind; 0 if there is none."""
    return max((trial.sitting for trial in trials if trial.kind is kind), default=0)


def next_trial(
    order: TrialOrder, failed: Sequence[str], sittings: Sequence[RetestSession], options: Options
) -> TrialAsk | None:
    """What to try next; None as soon as nothing more would change the answer.

    Args:
        order: What is wanted.
        failed: Keys of the tests in question; only the first `order.max_tests` are looked into.
        sittings: What was tried so far, in order.
        options: What can be changed.
    """
    keys = tuple(failed[: order.max_tests])
    times = max(order.reruns, SURE if order.diagnose or order.tests else 0)
    if not keys or not times:
        return None
    if not any(sitting.ask.kind is TrialKind.RERUN for sitting in sittings):
        return TrialAsk(kind=TrialKind.RERUN, tests=by_job(keys), times=times)
    return _next_change(keys, sittings, options) if order.diagnose else None


def _next_change(
    keys: Sequence[str], sittings: Sequence[RetestSession], options: Options
) -> TrialAsk | None:
    trials = trials_of(sittings)
    alone = [k for k in keys if tally(trials, k, TrialKind.RERUN).always_passed(1)]
    if alone and not any(sitting.ask.whole for sitting in sittings):
        jobs: Tests = {split_key(key)[0]: () for key in alone}
        return TrialAsk(kind=TrialKind.RERUN, tests=jobs, times=AMONG, whole=True)
    stuck = [k for k in keys if tally(trials, k, TrialKind.RERUN).always_failed(SURE)]
    changes = (
        (TrialKind.BASELINE, options.baseline),
        (TrialKind.LAST_GREEN, options.last_green),
    )
    for kind, changed in changes:
        if not stuck or not changed:
            continue
        asked = [sitting.number for sitting in sittings if sitting.ask.kind is kind]
        if not asked:
            return TrialAsk(kind=kind, tests=by_job(stuck), times=SURE, changed=changed)
        other = [k for k in stuck if tally(trials, k, kind).passed]
        if other and not _came_back(sittings, after=asked[-1]):
            torn = any(tally(trials, k, kind).failed for k in other)
            times = SURE if torn else BACK
            return TrialAsk(kind=TrialKind.RERUN, tests=by_job(other), times=times)
        stuck = [k for k in stuck if k not in other]
    return None


def _came_back(sittings: Sequence[RetestSession], *, after: int) -> bool:
    """Whether the tests have run with nothing changed since then."""
    return any(s.number > after and s.ask.kind is TrialKind.RERUN for s in sittings)
