"""What a gate asks of statistics. Both verbs are pure: same samples, same answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Subject against baseline over pairs of turns; ratios say how much slower: 0.03 is 3 %."""

    pairs: int
    slowdown: float
    """Median over the pairs; negative where the subject is faster."""
    low: float
    high: float
    """The confidence interval of `slowdown`."""
    p: float
    """One-sided, of: not slower than the margin."""
    detectable: float
    """The minimum detectable effect: the slow-down that such samples would show 95 % of times."""


class Statistics(Protocol):
    """Tests on samples."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> Comparison:
        """Test pairs for a slow-down beyond a margin. Raises ValueError of fewer than 3 pairs."""
        ...

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """Benjamini-Hochberg: the p of each test, adjusted for having made them all."""
        ...
