"""Differences of a test between two runs."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.domain.outcome import TestOutcome

BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
NEVER = frozenset({TestOutcome.MISSING, TestOutcome.NOT_RUN})
GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XFAILED, TestOutcome.XPASSED})


class Difference(StrEnum):
    """Difference of a test between two runs, worst first."""

    NEW_FAILURE = "new_failure"
    STILL_FAILING = "still_failing"
    MISSING = "missing"
    """Collected and not reported now, but reported before."""
    HIDDEN = "hidden"
    """Unknown, since its module could not be collected."""
    NEWLY_SKIPPED = "newly_skipped"
    FIXED = "fixed"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"
    SAME = "same"


def difference(
    before: TestOutcome | None, after: TestOutcome | None, *, is_hidden: bool = False
) -> Difference:
    """Return the difference of a test; None for an outcome means that the run lacks the test.

    `is_hidden`: where it has none, because something could not be collected (see `beginning_of`).
    """
    if after is None:
        return Difference.HIDDEN if is_hidden else Difference.GONE
    if after in BAD:
        return Difference.STILL_FAILING if before in BAD else Difference.NEW_FAILURE
    if after in NEVER:
        return Difference.SAME if before in NEVER else Difference.MISSING
    if before is None:
        return Difference.NEW
    return _of_sound(before, after)


def beginning_of(broken: str) -> str:
    """Return the prefix of node ids of a module or folder that could not be collected."""
    if broken in ("", "."):
        return ""
    return f"{broken}::" if broken.endswith(".py") or "::" in broken else f"{broken}/"


def _of_sound(before: TestOutcome, after: TestOutcome) -> Difference:
    """Return the difference of a test that neither failed nor is missing."""
    if before is after:
        return Difference.SAME
    if after is TestOutcome.SKIPPED:
        return Difference.NEWLY_SKIPPED
    if before in BAD and after in GOOD:
        return Difference.FIXED
    return Difference.CHANGED
