"""Comparison of a test between runs: its outcome and its duration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from orchestrator.domain.outcome import TestOutcome

BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
NEVER = frozenset({TestOutcome.MISSING, TestOutcome.NOT_RUN})
GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XFAILED, TestOutcome.XPASSED})


class Difference(StrEnum):
    """The difference of a test between two runs, worst first."""

    NEW_FAILURE = "new_failure"
    STILL_FAILING = "still_failing"
    MISSING = "missing"
    """No result is reported now, but one was reported before."""
    HIDDEN = "hidden"
    """Unknown: its module was not collected, or one run only counts tests without naming them."""
    NEWLY_SKIPPED = "newly_skipped"
    FIXED = "fixed"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"
    SAME = "same"


def difference(
    before: TestOutcome | None, after: TestOutcome | None, *, is_hidden: bool = False
) -> Difference:
    """Return the difference of a test between two runs.

    Args:
        before: Outcome in the older run; None if that run lacks the test.
        after: Outcome in the newer run; None if that run lacks the test.
        is_hidden: Whether the run that lacks the test may have it nevertheless, because something
            could not be collected (see `beginning_of`), or because an artifact counts tests that it
            does not name.
    """
    if after is None:
        return Difference.HIDDEN if is_hidden else Difference.GONE
    if after in BAD:
        return Difference.STILL_FAILING if before in BAD else Difference.NEW_FAILURE
    if after in NEVER:
        return Difference.SAME if before in NEVER else Difference.MISSING
    if before is None:
        return Difference.HIDDEN if is_hidden else Difference.NEW
    return _of_sound(before, after)


def beginning_of(broken: str) -> str:
    """Return the prefix of the node ids in a module or folder that could not be collected."""
    if broken in ("", "."):
        return ""
    return f"{broken}::" if broken.endswith(".py") or "::" in broken else f"{broken}/"


def _of_sound(before: TestOutcome, after: TestOutcome) -> Difference:
    """Return the difference of a test that has a result and did not fail."""
    if before is after:
        return Difference.SAME
    if after is TestOutcome.SKIPPED:
        return Difference.NEWLY_SKIPPED
    if before in BAD and after in GOOD:
        return Difference.FIXED
    return Difference.CHANGED


_SLOWER, _SLOWER_S = 0.5, 1.0
"""Minimum relative increase, and minimum increase in seconds, of a test that is much slower."""
_MEASURABLE_S = 0.1
"""Minimum duration in seconds that is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDuration:
    """The durations of one test in one cell."""

    __test__ = False

    test_id: int
    cell: str
    job: str
    nodeid: str
    outcome: str
    """The outcome as a word."""
    duration_s: float
    earlier_s: tuple[float, ...] = ()
    """Durations in earlier runs of the product in cells of the same name, newest last."""

    @property
    def usual_s(self) -> float | None:
        """Median of the earlier durations in seconds; None without any."""
        return median(self.earlier_s) if self.earlier_s else None

    @property
    def change(self) -> float | None:
        """Relative change of the duration, 0.5 for half as long again.

        None without earlier durations, and if both durations are below 0.1 s, because a
        garbage collection or a page fault takes as long.
        """
        usual = self.usual_s
        if not usual or max(usual, self.duration_s) < _MEASURABLE_S:
            return None
        return self.duration_s / usual - 1

    @property
    def is_much_slower(self) -> bool:
        """Whether the test took so much longer than usual that a page highlights it."""
        usual, change = self.usual_s, self.change
        if usual is None or change is None:
            return False
        return change >= _SLOWER and self.duration_s - usual >= _SLOWER_S
