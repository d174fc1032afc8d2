"""The paired test: a robust mean of log ratios with its uncertainty.

A pair is one turn of the subject and one of the baseline, one directly after the other on one
machine, so that influences of the machine cancel in their ratio. Turns are ordered A B B A, so that
a drift has the opposite sign in every second pair; half the difference between even and odd pairs
is subtracted, which costs one degree of freedom. The mean is Tukey's bisquare, which reduces the
weight of outliers, with its usual standard error, against Student's t. The estimator and its
constants were chosen by measurement: docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtr
from scipy.stats import chi2, false_discovery_control, norm, t

from orchestrator.domain.gate.performance import POWER, Comparison

FEWEST_PAIRS: Final = 3
_DIRECTIONS = ("higher", "lower")
_QUANTILE: Final = 0.7
"""Quantile of the distances from the median: nearly a third of the values may be outliers."""
_NORMAL_SCALE: Final = float(norm.ppf((1 + _QUANTILE) / 2))
_REACH: Final = 6.0
"""Distance from the centre, in scales, at which a value's weight is zero; few pairs exceed it."""
_REACH_OF_FEW: Final = 40.0
_EXACT: Final = 1e-12
"""Log ratios that differ by less are equal: the metric has no noise."""
_ROUNDS: Final = 100
_MOST: Final = 700.0
"""Maximum logarithm: the exponential of a larger one overflows a float."""
_MIDPOINTS: Final = (np.arange(4000) + 0.5) / 4000

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Centre:
    """A mean of log ratios."""

    mean: float
    error: float
    """Standard error; 0 for a metric without noise."""
    freedom: int


class PairedStatistics:
    """Implements the Statistics of `orchestrator.domain.gate.performance`."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> Comparison:
        """See the protocol."""
        if direction not in _DIRECTIONS:
            raise ValueError(f"a direction is higher or lower, not {direction!r}")
        if not (margin > -1 and 0 < alpha < 1):
            raise ValueError(f"a margin of {margin} and an alpha of {alpha} cannot be tested")
        centre = _measured(tuple(subject), tuple(baseline), direction)
        bound = math.log1p(margin)
        reach = _t_of(alpha, centre.freedom) * centre.error
        return Comparison(
            pairs=len(subject),
            slowdown=_slowdown(centre.mean),
            low=_slowdown(centre.mean - reach),
            high=_slowdown(centre.mean + reach),
            p=_p(centre, bound),
            detectable=_slowdown(bound + _shift(alpha, centre.freedom) * centre.error),
        )

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """See the protocol."""
        return tuple(float(one) for one in false_discovery_control(p)) if p else ()


def _slowdown(log_ratio: float) -> float:
    """Return the slowdown as a fraction, 0.03 for 3 %; the logarithm is limited to `_MOST`."""
    return math.expm1(min(log_ratio, _MOST))


@lru_cache(maxsize=256)
def _measured(subject: tuple[float, ...], baseline: tuple[float, ...], direction: str) -> _Centre:
    """Return the mean of the log ratios without drift, cached: alpha varies for the same turns."""
    return _centre(_without_drift(_log_ratios(subject, baseline, direction)))


def _log_ratios(subject: Sequence[float], baseline: Sequence[float], direction: str) -> Values:
    """Return log ratios; positive is slower, whichever direction is better."""
    if len(subject) != len(baseline):
        raise ValueError(f"{len(subject)} turns of the subject, {len(baseline)} of the baseline")
    if len(subject) < FEWEST_PAIRS:
        raise ValueError(f"{len(subject)} pairs of turns; nothing can be said of fewer than 3")
    turns = np.array([subject, baseline], dtype=np.float64)
    bad = int(np.count_nonzero(~(np.isfinite(turns) & (turns > 0))))
    if bad:
        raise ValueError(f"{bad} of {turns.size} turns measured no positive number")
    logs: Values = np.log(turns[0]) - np.log(turns[1])
    return logs if direction == "lower" else -logs


def _without_drift(ratios: Values) -> Values:
    signs = np.where(np.arange(len(ratios)) % 2 == 0, 1.0, -1.0)
    drift = (_median(ratios[::2]) - _median(ratios[1::2])) / 2
    return ratios - signs * drift


def _centre(ratios: Values) -> _Centre:
    """Return Tukey's bisquare mean; without outliers it is nearly the plain mean."""
    count, middle = len(ratios), _median(ratios)
    if np.ptp(ratios) < _EXACT:
        return _Centre(mean=middle, error=0.0, freedom=count - 2)
    reach = (_REACH + _REACH_OF_FEW / count) * _scale(ratios, middle)
    mean = middle
    for _ in range(_ROUNDS):
        weights = np.maximum(1 - ((ratios - mean) / reach) ** 2, 0) ** 2
        before, mean = mean, float(np.sum(weights * ratios) / np.sum(weights))
        if abs(mean - before) < _EXACT * reach:
            break
    far = (ratios - mean) / reach
    near = np.abs(far) < 1
    pulls = np.where(near, far * (1 - far**2) ** 2, 0.0)
    slopes = np.where(near, (1 - far**2) * (1 - 5 * far**2), 0.0)
    freedom = max(1, int(np.count_nonzero(near)) - 2)
    spread = reach * math.sqrt(float(np.sum(pulls**2))) / float(np.sum(slopes))
    return _Centre(mean=mean, error=spread * math.sqrt(count / (count - 2)), freedom=freedom)


def _median(values: Values) -> float:
    return float(median(values.tolist()))


def _scale(ratios: Values, middle: float) -> float:
    """Return a robust standard deviation, corrected for few pairs."""
    count = len(ratios)
    far = np.sort(np.abs(ratios - middle))
    scale = float(np.interp(_QUANTILE * (count - 1), np.arange(count), far)) / _NORMAL_SCALE
    if scale < _EXACT:  # most values are equal: a coarse clock
        scale = float(np.std(ratios))
    return scale * count / (count - 1.5)


def _p(centre: _Centre, bound: float) -> float:
    beyond = centre.mean - bound
    if centre.error == 0:
        return 0.0 if beyond > _EXACT else 1.0
    return float(stdtr(centre.freedom, -beyond / centre.error))


@lru_cache(maxsize=4096)
def _t_of(alpha: float, freedom: int) -> float:
    return float(t.isf(alpha, freedom))


@lru_cache(maxsize=4096)
def _shift(alpha: float, freedom: int) -> float:
    """Return the standard errors beyond the margin that are detected with the target power.

    The power of a t test is the mean of a normal tail over the distribution of the estimated sd.
    """
    limit = _t_of(alpha, freedom)
    estimates = np.sqrt(chi2.ppf(_MIDPOINTS, freedom) / freedom)

    def missing(shift: float) -> float:
        return float(np.mean(norm.cdf(shift - limit * estimates))) - POWER

    return float(brentq(missing, 0.0, limit * float(estimates[-1]) + 10, xtol=1e-12))
