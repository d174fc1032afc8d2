"""Retests: a failed test runs again on the same machine, with at most one thing changed.

A retest session is one start of the agent for retests; each time it runs the tests is one retest.
Which session comes next is decided here, from the results of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

SURE = 4
"""Retests of one kind that must all agree before anything is said; ADR 0014 has the sum."""
BACK = 2
"""Retests with nothing changed, after those with something changed."""
AMONG = 2
"""Whole jobs run again for tests that pass by themselves."""
PASSED = "passed"
_BAD = ("failed", "error")
_MARK = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestOptions:
    """What is wanted of retests, and their bounds."""

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
    """How long a machine waits for retests that somebody asks for, after its own."""


class RetestKind(StrEnum):
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
    """Where a retest session is."""

    REQUESTED = "requested"
    RUNNING = "running"
    ENDED = "ended"


Tests = Mapping[str, tuple[str, ...]]
"""Node ids by job; none of them means the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retest:
    """The tests, run once more."""

    kind: RetestKind
    number: int
    """Within the attempt, from 1."""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Words by `key_of`; ``absent`` where it was not collected."""
    changed: str = ""
    """For a person: ``torchbridge 0.4.5``."""
    whole: bool = False
    """The whole jobs ran, not the failed tests alone."""
    retest_session: int = 0
    """Number of the start of the agent that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestPlan:
    """What is to be found out next."""

    kind: RetestKind
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
    """One start of the agent for retests."""

    id: str
    """Its folder on the machine."""
    attempt_id: str
    number: int
    ask: RetestPlan
    asked_at: datetime
    state: RetestSessionState = RetestSessionState.REQUESTED
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
    """What a cell's retests can change."""

    baseline: str = ""
    """The baseline subject, for a person; empty where there is none."""
    last_green: str = ""
    """The packages that would change, for a person; empty where none would."""


def key_of(job: str, nodeid: str) -> str:
    """How retests name a test; without a node id, a job that is one command."""
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
    """The job and the time that a name in a retest session's evidence means."""
    job, _, time = name.rpartition(_MARK)
    return (job, int(time)) if job and time.isdecimal() else (name, 0)


def retests_of(retest_sessions: Iterable[RetestSession]) -> tuple[Retest, ...]:
    """All of them, in order."""
    found: list[Retest] = []
    for retest_session in retest_sessions:
        for outcomes in retest_session.outcomes:
            found.append(
                Retest(
                    kind=retest_session.ask.kind,
                    number=len(found) + 1,
                    outcomes=outcomes,
                    changed=retest_session.ask.changed,
                    whole=retest_session.ask.whole,
                    retest_session=retest_session.number,
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Tally:
    """Outcomes of one test over some retests."""

    passed: int = 0
    failed: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Retests in which it was asked for."""
        return self.passed + self.failed + self.other

    def always_failed(self, times: int) -> bool:
        """In so many retests at least, and in each of them."""
        return self.failed >= times and self.failed == self.total

    def always_passed(self, times: int) -> bool:
        """In so many retests at least, and in each of them."""
        return self.passed >= times and self.passed == self.total


def tally(
    retests: Iterable[Retest], key: str, kind: RetestKind, *, whole: bool = False, after: int = 0
) -> Tally:
    """Count the outcomes of a test in retests of a kind, of retest sessions after a number."""
    words = [
        retest.outcomes[key]
        for retest in retests
        if retest.kind is kind
        and retest.whole is whole
        and retest.retest_session > after
        and key in retest.outcomes
    ]
    return tally_words(words)


def tally_words(words: Sequence[str]) -> Tally:
    """Count outcomes."""
    passed = sum(word == PASSED for word in words)
    failed = sum(word in _BAD for word in words)
    return Tally(passed, failed, len(words) - passed - failed)


def reruns_of(retests: Iterable[Retest], job: str, nodeid: str) -> tuple[str, ...]:
    """Outcomes of the reruns of a test with nothing changed."""
    key = key_of(job, nodeid)
    again = (t for t in retests if t.kind is RetestKind.RERUN)
    return tuple(retest.outcomes[key] for retest in again if key in retest.outcomes)


def last_session(retests: Iterable[Retest], kind: RetestKind) -> int:
    """Number of the last retest session of a kind; 0 if there is none."""
    return max((retest.retest_session for retest in retests if retest.kind is kind), default=0)


def next_retest(
    order: RetestOptions,
    failed: Sequence[str],
    retest_sessions: Sequence[RetestSession],
    options: Options,
) -> RetestPlan | None:
    """What to try next; None as soon as nothing more would change the answer.

    Args:
        order: What is wanted.
        failed: Keys of the tests in question; only the first `order.max_tests` are looked into.
        retest_sessions: What was tried so far, in order.
        options: What can be changed.
    """
    keys = tuple(failed[: order.max_tests])
    times = max(order.reruns, SURE if order.diagnose or order.tests else 0)
    if not keys or not times:
        return None
    if not any(retest_session.ask.kind is RetestKind.RERUN for retest_session in retest_sessions):
        return RetestPlan(kind=RetestKind.RERUN, tests=by_job(keys), times=times)
    return _next_change(keys, retest_sessions, options) if order.diagnose else None


def _next_change(
    keys: Sequence[str], retest_sessions: Sequence[RetestSession], options: Options
) -> RetestPlan | None:
    retests = retests_of(retest_sessions)
    alone = [k for k in keys if tally(retests, k, RetestKind.RERUN).always_passed(1)]
    if alone and not any(retest_session.ask.whole for retest_session in retest_sessions):
        jobs: Tests = {split_key(key)[0]: () for key in alone}
        return RetestPlan(kind=RetestKind.RERUN, tests=jobs, times=AMONG, whole=True)
    stuck = [k for k in keys if tally(retests, k, RetestKind.RERUN).always_failed(SURE)]
    changes = (
        (RetestKind.BASELINE, options.baseline),
        (RetestKind.LAST_GREEN, options.last_green),
    )
    for kind, changed in changes:
        if not stuck or not changed:
            continue
        asked = [
            retest_session.number
            for retest_session in retest_sessions
            if retest_session.ask.kind is kind
        ]
        if not asked:
            return RetestPlan(kind=kind, tests=by_job(stuck), times=SURE, changed=changed)
        other = [k for k in stuck if tally(retests, k, kind).passed]
        if other and not _came_back(retest_sessions, after=asked[-1]):
            torn = any(tally(retests, k, kind).failed for k in other)
            times = SURE if torn else BACK
            return RetestPlan(kind=RetestKind.RERUN, tests=by_job(other), times=times)
        stuck = [k for k in stuck if k not in other]
    return None


def _came_back(retest_sessions: Sequence[RetestSession], *, after: int) -> bool:
    """Whether the tests have run with nothing changed since then."""
    return any(s.number > after and s.ask.kind is RetestKind.RERUN for s in retest_sessions)
