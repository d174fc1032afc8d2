"""Retests: a failed test runs again on the same machine, with at most one thing changed.

A retest session is one start of the agent for retests; each time it runs the tests is one retest.
Which session comes next is decided here, from the results of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from orchestrator.domain.field_limits import STRICT, ValueLimits

SURE = 4
"""Number of retests of one kind that must agree; ADR 0014 has the calculation."""
BACK = 2
"""Number of unchanged retests after changed ones."""
AMONG = 2
"""Number of whole-job retests for tests that pass alone."""
PASSED = "passed"
_BAD = ("failed", "error")
_MARK = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestLimits:
    """Retests of failing tests on the same machine, and their limits."""

    __pydantic_config__ = STRICT

    reruns: Annotated[int, ValueLimits(ge=0, le=20)] = 0
    """Number of unchanged retests of a failed test."""
    diagnose: bool = False
    """Whether to retest with the baseline subject, and with the packages of the last green run."""
    max_tests: Annotated[int, ValueLimits(ge=1, le=200)] = 20
    """Maximum failing tests of a cell."""
    max_minutes: Annotated[float, ValueLimits(gt=0, le=1440)] = 15.0
    """Maximum minutes on the machine."""
    await_minutes: Annotated[float, ValueLimits(ge=0, le=1440)] = 0.0
    """Minutes for which a machine then waits for requested retests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestOptions(RetestLimits):
    """Retests of a run, and the tests that are retested even where they passed."""

    tests: tuple[str, ...] = ()
    """Keys of tests (`key_of`)."""


class RetestKind(StrEnum):
    """The change of a retest against the failed attempt."""

    RERUN = "rerun"
    """Nothing."""
    BASELINE = "baseline"
    """The baseline as the subject."""
    LAST_GREEN = "last_green"
    """The packages of the platform's last green cell."""
    BISECT = "bisect"
    """Another revision as the subject."""


class RetestSessionState(StrEnum):
    """State of a retest session."""

    REQUESTED = "requested"
    RUNNING = "running"
    ENDED = "ended"


Tests = Mapping[str, tuple[str, ...]]
"""Node ids by job; an empty list means the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retest:
    """One retest of the tests."""

    kind: RetestKind
    number: int
    """Within the attempt, from 1."""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Outcomes by `key_of`; ``absent`` where a test was not collected."""
    changed: str = ""
    """The change, for a person: ``torchbridge 0.4.5``."""
    whole: bool = False
    """Whether whole jobs ran, not only the failed tests."""
    retest_session: int = 0
    """Number of its retest session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestPlan:
    """The next retests to run."""

    kind: RetestKind
    tests: Tests
    times: int
    changed: str = ""
    subject_digest: str | None = None
    """Wheel of another revision."""
    subject_version: str = ""
    whole: bool = False
    """Whether to run whole jobs, for tests that pass alone."""
    key: str = ""
    """Idempotency key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestSession:
    """One start of the agent for retests."""

    id: str
    """Name of its folder on the machine."""
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
    """Why there are no results, for a person."""
    evidence: str = ""
    """Digest of the raw events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestSessionResponse:
    """A retest session with its outcomes."""

    id: str
    number: int
    kind: RetestKind
    changed: str
    """The change, for a person; empty without one."""
    whole: bool
    """Whether whole jobs ran, not only the failed tests."""
    times: int
    tests: Tests
    """Node ids by job; an empty list means the whole job."""
    state: RetestSessionState
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcomes: tuple[Mapping[str, str], ...]
    """Outcomes of each retest, by ``job::nodeid``."""
    trouble: str
    """Why there are no results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRunResponse:
    """A confirmation run on another machine."""

    run: str | None
    """Id of the run; null if nothing failed, no other machine exists, or it could cost too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The possible changes of a cell's retests."""

    baseline: str = ""
    """The baseline subject, for a person; empty without one."""
    last_green: str = ""
    """The packages that would change, for a person; empty without any."""


def key_of(job: str, nodeid: str) -> str:
    """Return the key of a test; without a node id, of a command job."""
    return f"{job}::{nodeid}"


def split_key(key: str) -> tuple[str, str]:
    """Split a key into job and node id."""
    job, _, nodeid = key.partition("::")
    return job, nodeid


def by_job(keys: Iterable[str]) -> Tests:
    """Group keys by job; a command job is run as a whole."""
    found: dict[str, list[str]] = {}
    for job, nodeid in map(split_key, keys):
        found.setdefault(job, []).extend([nodeid] if nodeid else [])
    return {job: tuple(nodeids) for job, nodeids in found.items()}


def job_in_session(job: str, time: int) -> str:
    """Return the job id that the agent uses for the n-th run in a session."""
    return f"{job}{_MARK}{time}"


def retests_of(retest_sessions: Iterable[RetestSession]) -> tuple[Retest, ...]:
    """Return all retests of the sessions, in order."""
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
    """Outcomes of one test over several retests."""

    passed: int = 0
    failed: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Number of retests that included the test."""
        return self.passed + self.failed + self.other

    def always_failed(self, times: int) -> bool:
        """Whether the test failed in every retest, and in at least `times` retests."""
        return self.failed >= times and self.failed == self.total

    def always_passed(self, times: int) -> bool:
        """Whether the test passed in every retest, and in at least `times` retests."""
        return self.passed >= times and self.passed == self.total


def tally(
    retests: Iterable[Retest], key: str, kind: RetestKind, *, whole: bool = False, after: int = 0
) -> RetestCounts:
    """Count a test's outcomes in retests of a kind, in sessions after a number."""
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
    """Count outcome words."""
    passed = sum(word == PASSED for word in words)
    failed = sum(word in _BAD for word in words)
    return RetestCounts(passed, failed, len(words) - passed - failed)


def reruns_of(retests: Iterable[Retest], job: str, nodeid: str) -> tuple[str, ...]:
    """Return a test's outcomes in unchanged retests."""
    key = key_of(job, nodeid)
    again = (t for t in retests if t.kind is RetestKind.RERUN)
    return tuple(retest.outcomes[key] for retest in again if key in retest.outcomes)


def last_session(retests: Iterable[Retest], kind: RetestKind) -> int:
    """Return the number of the last session of a kind; 0 without one."""
    return max((retest.retest_session for retest in retests if retest.kind is kind), default=0)


def next_retest(
    order: RetestOptions,
    failed: Sequence[str],
    retest_sessions: Sequence[RetestSession],
    options: Options,
) -> RetestPlan | None:
    """Return the next retests; None as soon as no further retest would change the root cause.

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
    """Whether the tests have run unchanged since the last change."""
    return any(s.number > after and s.ask.kind is RetestKind.RERUN for s in retest_sessions)
