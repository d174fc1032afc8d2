"""The time ratio of two arms and its confidence interval.

Samples come in quads: subject, baseline, baseline, subject, then with the roles swapped. Within a
quad linear drift cancels, and noise that lasts longer than a quad affects both arms alike, so the
ratios of quads are nearly independent and a distribution-free interval of their median is valid. It
does not cover effects that last for the whole process (memory placement), or changes over many
quads of how much faster one arm is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchbridge.timing import attained, median_interval

QUAD = ("subject", "baseline", "baseline", "subject")
SWAPPED = ("baseline", "subject", "subject", "baseline")


def order(quad: int) -> tuple[str, ...]:
    """Return the order of the arms in a quad, numbered from 0; even and odd ones alternate."""
    return SWAPPED if quad % 2 else QUAD


def quad_ratios(arms: Sequence[str], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return baseline over subject time of each complete quad, by geometric means.

    Raises:
        ValueError: a quad does not have two samples of each arm.
    """
    ratios = []
    for at in range(0, len(arms) - len(arms) % 4, 4):
        four = list(zip(arms[at : at + 4], seconds[at : at + 4], strict=True))
        logs = [math.log(s) if arm == "baseline" else -math.log(s) for arm, s in four]
        if sum(arm == "baseline" for arm, _ in four) != 2:
            raise ValueError(f"samples {at} to {at + 3} are no quad: {arms[at : at + 4]}")
        ratios.append(math.exp(sum(logs) / 2))
    return tuple(ratios)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the quads' ratios with its confidence interval.

    `confidence` is the attained confidence: at least the requested one, or less if there are too
    few quads; then the interval is their range.
    """

    median: float
    low: float
    high: float
    confidence: float
    quads: int

    @classmethod
    def from_quads(cls, ratios: Sequence[float], confidence: float = 0.95) -> Ratio:
        """Compute from the ratios of one quad or more."""
        low, high = median_interval(ratios, confidence)
        count = len(ratios)
        return cls(statistics.median(ratios), low, high, attained(count, confidence), count)

    @property
    def width(self) -> float:
        """Width of the interval, relative to the median."""
        return (self.high - self.low) / self.median

    def __str__(self) -> str:
        return f"{self.median:.3f}x [{self.low:.3f}, {self.high:.3f}]"
