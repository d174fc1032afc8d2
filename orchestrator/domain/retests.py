"""Retests: a failed test runs again on the same machine, with at most one change.

A retest session is one start of the agent for retests; each repetition of the tests in it is one
retest. This module decides the next session from the results of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from orchestrator.domain.field_limits import STRICT, ValueLimits

SURE = 4
"""Number of retests of one kind that must agree; ADR 0014 calculates it."""
BACK = 2
"""Number of unchanged retests that follow changed ones."""
AMONG = 2
"""Number of retests of the whole job, for tests that pass alone."""
PASSED = "passed"
_BAD = ("failed", "error")
_MARK = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestLimits:
    """Limits of retests of failing tests on the same machine."""

    __pydantic_config__ = STRICT

    reruns: Annotated[int, ValueLimits(ge=0, le=20)] = 0
    """Number of unchanged retests of a failed test."""
    diagnose: bool = False
    """Whether to retest with the baseline, and with the packages of the last green run."""
    max_tests: Annotated[int, ValueLimits(ge=1, le=200)] = 20
    """Maximum number of failing tests of a cell that are retested."""
    max_minutes: Annotated[float, ValueLimits(gt=0, le=1440)] = 15.0
    """Maximum minutes on the machine."""
    await_minutes: Annotated[float, ValueLimits(ge=0, le=1440)] = 0.0
    """Minutes for which the machine waits for requested retests afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestOptions(RetestLimits):
    """Options of a run's retests."""

    tests: tuple[str, ...] = ()
    """Keys (`key_of`) of tests that are retested even if they passed."""


class RetestKind(StrEnum):
    """The difference between a retest and the failed attempt."""

    RERUN = "rerun"
    """Nothing is changed."""
    BASELINE = "baseline"
    """The subject is replaced by the baseline."""
    LAST_GREEN = "last_green"
    """The packages are those of the platform's last green cell."""
    BISECT = "bisect"
    """The subject is replaced by another revision."""


class RetestSessionState(StrEnum):
    """State of a retest session."""

    REQUESTED = "requested"
    RUNNING = "running"
    ENDED = "ended"


Tests = Mapping[str, tuple[str, ...]]
"""Node ids by job; an empty list selects the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retest:
    """One retest and its outcomes."""

    kind: RetestKind
    number: int
    """Number within the attempt, from 1."""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Outcomes by `key_of`; ``absent`` if a test was not collected."""
    changed: str = ""
    """The change in words, such as ``torchbridge 0.4.5``; empty if nothing changed."""
    whole: bool = False
    """Whether whole jobs ran, not only the failed tests."""
    retest_session: int = 0
    """Number of its retest session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestPlan:
    """A plan of retests, which become one session."""

    kind: RetestKind
    tests: Tests
    times: int
    changed: str = ""
    subject_digest: str | None = None
    """Digest of the wheel of another revision; None if the subject is unchanged."""
    subject_version: str = ""
    whole: bool = False
    """Whether to run whole jobs, for tests that pass alone."""
    key: str = ""
    """Idempotency key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestSession:
    """One start of the agent for retests."""

    id: str
    """Id of the session; also the name of its folder on the machine."""
    attempt_id: str
    number: int
    ask: RetestPlan
    asked_at: datetime
    state: RetestSessionState = RetestSessionState.REQUESTED
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcomes: tuple[Mapping[str, str], ...] = ()
    """Outcomes of each retest, in order."""
    trouble: str = ""
    """Why there are no results, for a person; empty with results."""
    evidence: str = ""
    """Digest of the session's raw events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestSessionResponse:
    """A retest session with its outcomes."""

    id: str
    number: int
    kind: RetestKind
    changed: str
    """The change in words; empty if nothing changed."""
    whole: bool
    """Whether whole jobs ran, not only the failed tests."""
    times: int
    tests: Tests
    """Node ids by job; an empty list selects the whole job."""
    state: RetestSessionState
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcomes: tuple[Mapping[str, str], ...]
    """Outcomes of each retest, by ``job::nodeid``."""
    trouble: str
    """Why there are no results; empty with results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRunResponse:
    """A run that repeats failures on another machine."""

    run: str | None
    """Id of the run; null if nothing failed, there is no other machine, or it could cost too much.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The changes that retests of a cell can make."""

    baseline: str = ""
    """The baseline in words; empty if there is none."""
    last_green: str = ""
    """The packages that would change, in words; empty if there are none."""


def key_of(job: str, nodeid: str) -> str:
    """Return the key of a test; `nodeid` is empty for a command job."""
    return f"{job}::{nodeid}"


def split_key(key: str) -> tuple[str, str]:
    """Split the key of a test into job and node id."""
    job, _, nodeid = key.partition("::")
    return job, nodeid


def by_job(keys: Iterable[str]) -> Tests:
    """Return the node ids by job; a job without node ids runs as a whole."""
    found: dict[str, list[str]] = {}
    for job, nodeid in map(split_key, keys):
        found.setdefault(job, []).extend([nodeid] if nodeid else [])
    return {job: tuple(nodeids) for job, nodeids in found.items()}


def job_in_session(job: str, time: int) -> str:
    """Return the id that the agent gives a job in the retest with the number `time`."""
    return f"{job}{_MARK}{time}"


def retests_of(retest_sessions: Iterable[RetestSession]) -> tuple[Retest, ...]:
    """Return the retests of all sessions, in order."""
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
class RetestCounts:
    """Numbers of a test's outcomes over several retests."""

    passed: int = 0
    failed: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Number of retests with the test."""
        return self.passed + self.failed + self.other

    def always_failed(self, times: int) -> bool:
        """Whether the test failed in every retest, and there are at least `times` retests."""
        return self.failed >= times and self.failed == self.total

    def always_passed(self, times: int) -> bool:
        """Whether the test passed in every retest, and there are at least `times` retests."""
        return self.passed >= times and self.passed == self.total


def tally(
    retests: Iterable[Retest], key: str, kind: RetestKind, *, whole: bool = False, after: int = 0
) -> RetestCounts:
    """Count the outcomes of a test in the retests of one kind.

    Only sessions with a number above `after` are counted.
    """
    words = [
        retest.outcomes[key]
        for retest in retests
        if retest.kind is kind
        and retest.whole is whole
        and retest.retest_session > after
        and key in retest.outcomes
    ]
    return tally_words(words)


def tally_words(words: Sequence[str]) -> RetestCounts:
    """Count outcomes that are given as words."""
    passed = sum(word == PASSED for word in words)
    failed = sum(word in _BAD for word in words)
    return RetestCounts(passed, failed, len(words) - passed - failed)


def reruns_of(retests: Iterable[Retest], job: str, nodeid: str) -> tuple[str, ...]:
    """Return the outcomes of a test in unchanged retests."""
    key = key_of(job, nodeid)
    again = (t for t in retests if t.kind is RetestKind.RERUN)
    return tuple(retest.outcomes[key] for retest in again if key in retest.outcomes)


def last_session(retests: Iterable[Retest], kind: RetestKind) -> int:
    """Return the number of the last session of a kind; 0 if there is none."""
    return max((retest.retest_session for retest in retests if retest.kind is kind), default=0)


def next_retest(
    order: RetestOptions,
    failed: Sequence[str],
    retest_sessions: Sequence[RetestSession],
    options: Options,
) -> RetestPlan | None:
    """Return the plan of the next retests; None if no retest can change the root cause.

    Args:
        order: The run's options of retests.
        failed: Keys of the failing tests; only the first `order.max_tests` are retested.
        retest_sessions: The earlier sessions, in order.
        options: The changes that retests can make.
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
    """Whether the tests ran unchanged after the session with the number `after`."""
    return any(s.number > after and s.ask.kind is RetestKind.RERUN for s in retest_sessions)
