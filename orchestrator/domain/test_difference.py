"""What became of a test from one run to another."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.domain.outcome import TestOutcome

BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
NEVER = frozenset({TestOutcome.MISSING, TestOutcome.NOT_RUN})
GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XFAILED, TestOutcome.XPASSED})


class Difference(StrEnum):
    """What may become of a test, the worst first."""

    NEW_FAILURE = "new_failure"
    STILL_FAILING = "still_failing"
    MISSING = "missing"
    """It was collected, and never reported or never ran; before, it was no such."""
    HIDDEN = "hidden"
    """Its module could not be collected: what became of it is not known."""
    NEWLY_SKIPPED = "newly_skipped"
    FIXED = "fixed"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"
    SAME = "same"


def difference(
    before: TestOutcome | None, after: TestOutcome | None, *, is_hidden: bool = False
) -> Difference:
    """What became of a test; None: that run has no such test.

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
    """What the node ids begin with that a module or folder has which could not be collected."""
    if broken in ("", "."):
        return ""
    return f"{broken}::" if broken.endswith(".py") or "::" in broken else f"{broken}/"


def _of_sound(before: TestOutcome, after: TestOutcome) -> Difference:
    """Of a test that neither failed nor got lost."""
    if before is after:
        return Difference.SAME
    if after is TestOutcome.SKIPPED:
        return Difference.NEWLY_SKIPPED
    if before in BAD and after in GOOD:
        return Difference.FIXED
    return Difference.CHANGED
