"""The ratio of two arms, and how well it is known.

Samples come in quads: subject, baseline, baseline, subject, then the same with the roles swapped.
Within a quad whatever drifts weighs on both arms alike: a slope cancels, and of noise that lasts
longer than a quad next to nothing is left. So the quads' ratios are nearly independent where single
samples are not, and a distribution-free interval of their median covers what it says.

What it cannot know: something that favours one arm for as long as the process lives (where its data
lie in memory), and a machine that changes, for longer than a few quads, how much faster one arm is.
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
    """Which arm is when in the `quad`-th quad, from 0: each is first in every second one."""
    return SWAPPED if quad % 2 else QUAD


def quad_ratios(arms: Sequence[str], seconds: Sequence[float]) -> tuple[float, ...]:
    """Baseline time over subject time of each quad, by geometric means; what is left over is not.

    Raises:
        ValueError: a quad without two samples of each arm.
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
    """Median of the quads' ratios and its interval, which is `confidence` sure.

    `confidence` is what it really is: more than was asked for, as quads are whole; less where there
    are too few of them, and then the interval is their range.
    """

    median: float
    low: float
    high: float
    confidence: float
    quads: int

    @classmethod
    def of(cls, ratios: Sequence[float], confidence: float = 0.95) -> Ratio:
        """Of one quad's ratio or more."""
        low, high = median_interval(ratios, confidence)
        count = len(ratios)
        return cls(statistics.median(ratios), low, high, attained(count, confidence), count)

    @property
    def width(self) -> float:
        """How far the interval reaches, of the median."""
        return (self.high - self.low) / self.median

    def __str__(self) -> str:
        return f"{self.median:.3f}x [{self.low:.3f}, {self.high:.3f}]"
