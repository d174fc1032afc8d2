"""How well the ratio of two arms is known by now: decides when a pairing has turns enough.

Only the spread of the ratios is looked at, never which arm is ahead: a pairing that stopped when
it liked the answer would find differences that are not there. Like the gate's test, it weighs down
what lies far off (Tukey's bisquare), or one hiccup of the machine would cost dozens of turns.
"""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, median, stdev
from typing import List, Sequence, Tuple

FEWEST = 4
_TWO_SIDED = NormalDist().inv_cdf(0.975)
_QUANTILE = 0.7
_NORMAL_SCALE = NormalDist().inv_cdf((1 + _QUANTILE) / 2)
_REACH = 6.0
"""Scales from the middle at which a ratio's weight is zero; few ratios reach further."""
_REACH_OF_FEW = 40.0


def half_width(log_ratios: Sequence[float]) -> float:
    """Return how far the 95 % confidence interval of the mean log ratio reaches to either side.

    Infinite for fewer than four: two are needed for every second one's drift, which is taken out.
    """
    if len(log_ratios) < FEWEST:
        return math.inf
    ratios = _without_drift(log_ratios)
    middle = median(ratios)
    reach = _reach(ratios, middle)
    if reach == 0:
        return 0.0
    near = [far for far in ((ratio - middle) / reach for ratio in ratios) if abs(far) < 1]
    pulls = sum((far * (1 - far**2) ** 2) ** 2 for far in near)
    slopes = sum((1 - far**2) * (1 - 5 * far**2) for far in near)
    if slopes <= 0:
        return math.inf
    count = len(ratios)
    error = reach * math.sqrt(pulls) / slopes * math.sqrt(count / (count - 2))
    return _student(max(1, len(near) - 2)) * error


def known_to(log_ratios: Sequence[float], launch: int) -> float:
    """Return how well a ratio is known: by its pairs, and by the processes they were taken in.

    Args:
        log_ratios: In the order in which they were taken.
        launch: How many of them one start of both arms took.
    """
    means = [fmean(log_ratios[at : at + launch]) for at in range(0, len(log_ratios), launch)]
    return max(half_width(log_ratios), half_width(means) if len(means) >= FEWEST else 0.0)


def _without_drift(ratios: Sequence[float]) -> List[float]:
    """Take out what rises or falls with time: it shows with the other sign in every second pair."""
    drift = (median(ratios[::2]) - median(ratios[1::2])) / 2
    return [ratio - drift if n % 2 == 0 else ratio + drift for n, ratio in enumerate(ratios)]


def _reach(ratios: Sequence[float], middle: float) -> float:
    count = len(ratios)
    scale = _quantile(sorted(abs(ratio - middle) for ratio in ratios)) / _NORMAL_SCALE
    if scale == 0:  # most are the very same: a coarse clock
        scale = stdev(ratios)
    return (_REACH + _REACH_OF_FEW / count) * scale * count / (count - 1.5)


def _quantile(ordered: Sequence[float]) -> float:
    place = _QUANTILE * (len(ordered) - 1)
    low, part = int(place), place - int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - part) + ordered[high] * part


def _student(freedom: int) -> float:
    """Student's t at 97.5 %, by the Cornish-Fisher expansion: within 1 % from 3 degrees on."""
    z, n = _TWO_SIDED, float(freedom)
    terms: Tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))
