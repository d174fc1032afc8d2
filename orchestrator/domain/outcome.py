"""Outcomes of jobs, cells, runs and tests, and counts of tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from fractions import Fraction

from orchestrator.domain.vocabulary import term


class Outcome(StrEnum):
    """Outcome of a job, an attempt, a cell or a run."""

    PASSED = "passed"
    NOT_AVAILABLE = "not_available"
    CANCELLED = "cancelled"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    NOT_RUN = "not_run"
    """The job never started; its cell has the cause."""


class Reason(StrEnum):
    """Reason of an attempt that errored, was cancelled, timed out, or had no machine.

    Jobs have additional reasons; the glossary lists all.
    """

    CAPACITY = "capacity"
    QUOTA = "quota"
    NOT_OFFERED = "not_offered"
    UNAVAILABLE = "unavailable"
    PRICE = "price"
    BUDGET = "budget"
    AUTH = "auth"
    CONFIG = "config"
    BOOT = "boot"
    SSH = "ssh"
    HOST_KEY = "host_key"
    CLOUD_INIT = "cloud_init"
    PACKAGES = "packages"
    DRIVER = "driver"
    TORCH_DEVICE = "torch_device"
    DEVICE_CHECK = "device_check"
    ENVIRONMENT = "environment"
    AGENT = "agent"
    LOST = "lost"
    PREEMPTED = "preempted"
    DISK_FULL = "disk_full"
    CONTROLLER = "controller"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    WRONG_HARDWARE = "wrong_hardware"
    WRONG_SUBJECT = "wrong_subject"


_SEVERITY = {
    Outcome.PASSED: 0,
    Outcome.NOT_AVAILABLE: 1,
    Outcome.CANCELLED: 2,
    Outcome.ERRORED: 3,
    Outcome.TIMED_OUT: 4,
    Outcome.FAILED: 5,
}


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the most severe outcome; None without any. Jobs that never ran are ignored."""
    ranked = [o for o in outcomes if o is not Outcome.NOT_RUN]
    return max(ranked, key=_SEVERITY.__getitem__, default=None)


class TestOutcome(IntEnum):
    """Outcome of a test, ordered by severity; a test has the worst outcome of its phases."""

    __test__ = False

    MISSING = 0
    """The test was collected, and no result was reported."""
    PASSED = 1
    SKIPPED = 2
    XFAILED = 3
    XPASSED = 4
    ERROR = 5
    FAILED = 6
    NOT_RUN = 7
    """The test was collected and never started, because its job was aborted."""

    @property
    def word(self) -> str:
        """The outcome's name in documents."""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> TestOutcome | None:
        """Return the outcome with this name in documents; None if there is none."""
        return next((one for one in cls if one.word == value), None)

    def counted(self, *, final: bool) -> TestOutcome:
        """Return the outcome that is counted: missing until the end of the test is known."""
        return self if final or self is TestOutcome.NOT_RUN else TestOutcome.MISSING


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tests by outcome."""

    passed: int = 0
    failed: int = 0
    error: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0
    missing: int = 0
    """Collected tests without a reported result, so far."""
    not_run: int = 0
    """Collected tests that never started."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def collected(self) -> int:
        """Number of collected tests."""
        return sum(getattr(self, f.name) for f in fields(self))

    @property
    def bad(self) -> int:
        """Number of tests because of which a suite does not pass."""
        return self.failed + self.error + self.missing + self.not_run

    @property
    def pass_rate(self) -> Fraction | None:
        """The share ``passed / (passed + failed + error)``; None if all three are 0."""
        judged = self.passed + self.failed + self.error
        return Fraction(self.passed, judged) if judged else None

    @property
    def failures(self) -> str:
        """Failed tests and errors in words, ``3 failed, 1 error``; empty without any."""
        failed = {"failed": self.failed, "error": self.error}
        return ", ".join(term(code).counted(many) for code, many in failed.items() if many)

    @property
    def nothing_passed(self) -> str:
        """The note ``no test passed: 29 skipped``; empty if a test passed, or if any is bad.

        It is displayed beside outcomes, because a suite whose tests are all skipped or
        expected to fail has not failed either.
        """
        if not self.collected or self.passed or self.bad:
            return ""
        beside = {
            "skipped": self.skipped,
            "failed as expected": self.xfailed,
            "passed unexpectedly": self.xpassed,
        }
        return f"no test passed: {', '.join(f'{n:,} {word}' for word, n in beside.items() if n)}"

    def as_dict(self) -> dict[str, int]:
        """Return the eight numbers by the names of their outcomes."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_tally(cls, tally: Mapping[TestOutcome, int]) -> Counts:
        """Return counts from numbers by outcome."""
        return cls(**{outcome.word: n for outcome, n in tally.items()})


EXIT_CODES = {
    Outcome.PASSED: 0,
    Outcome.FAILED: 1,
    Outcome.TIMED_OUT: 1,
    Outcome.ERRORED: 5,
    Outcome.CANCELLED: 5,
    Outcome.NOT_AVAILABLE: 5,
}
"""Exit codes of commands that wait for an outcome."""
