"""The duration of a test in a run, compared with earlier runs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

_SLOWER, _SLOWER_S = 0.5, 1.0
"""Minimum change, and minimum increase in seconds, of a test that is much slower."""
_MEASURABLE_S = 0.1
"""Durations below this one in seconds are not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDuration:
    """The durations of one test in one cell."""

    __test__ = False

    test_id: int
    cell: str
    job: str
    nodeid: str
    outcome: str
    """The word of its outcome."""
    duration_s: float
    earlier_s: tuple[float, ...] = ()
    """Seconds in earlier runs of the product, in a cell of the same name; newest last."""

    @property
    def usual_s(self) -> float | None:
        """Return the median of the earlier durations, in seconds; None without any."""
        return median(self.earlier_s) if self.earlier_s else None

    @property
    def change(self) -> float | None:
        """Return the relative change: 0.5 for half as long again.

        None without a usual duration, and where both are below 0.1 s: a garbage collection or a
        page fault takes as long.
        """
        usual = self.usual_s
        if not usual or max(usual, self.duration_s) < _MEASURABLE_S:
            return None
        return self.duration_s / usual - 1

    @property
    def is_much_slower(self) -> bool:
        """Return whether the test took so much longer than usual that it is highlighted."""
        usual, change = self.usual_s, self.change
        if usual is None or change is None:
            return False
        return change >= _SLOWER and self.duration_s - usual >= _SLOWER_S
