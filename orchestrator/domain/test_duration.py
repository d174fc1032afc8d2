"""How long a test took in a run, beside how long it took before."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

_SLOWER, _SLOWER_S = 0.5, 1.0
"""Minimum change, and minimum increase in seconds, of a test that is much slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDuration:
    """One test of one cell."""

    __test__ = False

    test_id: int
    cell: str
    job: str
    nodeid: str
    outcome: str
    """Its word."""
    duration_s: float
    earlier_s: tuple[float, ...] = ()
    """Of earlier runs of the product in a cell of the same name, the newest last."""

    @property
    def usual_s(self) -> float | None:
        """The median of the earlier ones; None where there are none."""
        return median(self.earlier_s) if self.earlier_s else None

    @property
    def change(self) -> float | None:
        """0.5: half as long again as usual; None where nothing is usual."""
        usual = self.usual_s
        return self.duration_s / usual - 1 if usual else None

    @property
    def is_much_slower(self) -> bool:
        """Whether it took longer than usual by enough to be highlighted."""
        usual, change = self.usual_s, self.change
        if usual is None or change is None:
            return False
        return change >= _SLOWER and self.duration_s - usual >= _SLOWER_S
