"""Statistics of benchmarks: paired comparisons, and change points of trends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtr
from scipy.stats import chi2, false_discovery_control, norm, rankdata, t

from orchestrator.application.ports.statistics import Trend, Watched
from orchestrator.domain.benchmark_series import ChangePoint
from orchestrator.domain.gate.performance import POWER, PairedComparison
from orchestrator.domain.grouping import grouped

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
    ) -> PairedComparison:
        """Test pairs, in the order of their turns, for a slow-down beyond a margin.

        Raises ValueError for an unknown direction, fewer than three pairs, series of different
        length, a sample that is not positive, and a margin or an alpha that cannot be tested.
        """
        if direction not in _DIRECTIONS:
            raise ValueError(f"a direction is higher or lower, not {direction!r}")
        if not (margin > -1 and 0 < alpha < 1):
            raise ValueError(f"a margin of {margin} and an alpha of {alpha} cannot be tested")
        centre = _measured(tuple(subject), tuple(baseline), direction)
        bound = math.log1p(margin)
        reach = _t_of(alpha, centre.freedom) * centre.error
        return PairedComparison(
            pairs=len(subject),
            slowdown=_slowdown(centre.mean),
            low=_slowdown(centre.mean - reach),
            high=_slowdown(centre.mean + reach),
            p=_p(centre, bound),
            detectable=_slowdown(bound + _shift(alpha, centre.freedom) * centre.error),
        )

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """Adjust p-values for multiple tests (Benjamini-Hochberg)."""
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
    """Return how many standard errors beyond the margin are detected with the target power.

    The power of a t test is the mean of a normal tail over the distribution of the estimated sd.
    """
    limit = _t_of(alpha, freedom)
    estimates = np.sqrt(chi2.ppf(_MIDPOINTS, freedom) / freedom)

    def missing(shift: float) -> float:
        return float(np.mean(norm.cdf(shift - limit * estimates))) - POWER

    return float(brentq(missing, 0.0, limit * float(estimates[-1]) + 10, xtol=1e-12))


SIDE: Final = 3
"""Minimum number of values on each side of a change point, so that one bad night is none."""
FLOOR: Final = 0.02
"""Minimum relative size of a reported step."""
LEVEL: Final = 0.01
"""Probability that the test alone finds a step in a series without one."""
_HALF_WINDOW: Final = 3
_SORTING: Final = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6)),
    *((2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)
"""Exchanges that move the median of a window of seven to its middle."""
_SPIKE: Final = 3.0
_MAD_SCALE: Final = float(1 / norm.ppf(0.75))
_SIMULATED: Final = 2000
_PARTS: Final = 40
_SEED: Final = 20260101
_FEWEST: Final = 2 * SIDE + 2
_EXACT_POINTS: Final = 1e-12
_ALIKE: Final = float(norm.isf(LEVEL))
"""Standard errors of an autocorrelation beyond which values are not independent."""


class StepDetector:
    """Implements the Detector of `orchestrator.application.ports.statistics`."""

    def detect(self, values: Sequence[float], environments: Sequence[str] = ()) -> Trend:
        """Return the trend of a series in order of time.

        Args:
            values: One figure per run.
            environments: The environment's digest per run; empty if they are not compared.

        Raises ValueError if there are not as many environments as values.
        """
        if environments and len(environments) != len(values):
            raise ValueError(f"{len(environments)} environments of {len(values)} values")
        series = np.asarray(values, dtype=np.float64)
        if not bool(np.all(np.isfinite(series) & (series > 0))):
            return Trend(doubts=("a value is not positive: there are no ratios to look at",))
        logs: Values = np.log(series)
        steps = {step.index: step.p for step in _steps(logs, 0)}
        changes = tuple(_changes(series, steps, environments))
        alike = _autocorrelation(logs, sorted(steps))
        return Trend(
            changes=changes,
            autocorrelation=alike,
            doubts=tuple(_doubts(len(series), alike, changes)),
        )

    def changes(self, many: Sequence[Watched]) -> Sequence[Sequence[ChangePoint]]:
        """Return the change points of many series, as `detect` does for each."""
        found: list[Sequence[ChangePoint]] = [()] * len(many)
        for at in _stepping([watched.values for watched in many]):
            values, environments = many[at]
            found[at] = _remembered(tuple(values), tuple(environments))
        return found


class _Step:
    """A possible change point of a series."""

    __slots__ = ("index", "p")

    def __init__(self, index: int, p: float) -> None:
        self.index, self.p = index, p


def _steps(logs: Values, offset: int) -> Iterator[_Step]:
    """Yield the largest step, then recursively the steps on both sides of it."""
    if len(logs) < _FEWEST or np.ptp(logs) < _EXACT_POINTS:
        return
    sizes = _step_sizes(_despiked(logs[np.newaxis, :]))[0]
    best = int(np.argmax(sizes))
    p = _p_value(len(logs), float(sizes[best]))
    if p > LEVEL:
        return
    at = SIDE + best
    yield from _steps(logs[:at], offset)
    if abs(math.expm1(float(np.median(logs[at:]) - np.median(logs[:at])))) >= FLOOR:
        yield _Step(offset + at, p)
    yield from _steps(logs[at:], offset + at)


def _stepping(many: Sequence[Sequence[float]]) -> Iterator[int]:
    """Yield the indices of series with a step: a batch test rules out most series at once."""
    by_length = grouped((len(values), at) for at, values in enumerate(many))
    for length, places in by_length.items():
        if length < _FEWEST:
            continue
        rows = np.asarray([many[at] for at in places], dtype=np.float64)
        sound = np.all(np.isfinite(rows) & (rows > 0), axis=1) & (np.ptp(rows, axis=1) > 0)
        sizes = _step_sizes(_despiked(np.log(np.where(sound[:, np.newaxis], rows, 1.0)))).max(
            axis=1
        )
        clear = np.quantile(_sizes_without_step(length), 1 - LEVEL, method="lower")
        yield from np.asarray(places)[sound & (sizes >= clear)].tolist()


@lru_cache(maxsize=4096)
def _remembered(
    values: tuple[float, ...], environments: tuple[str, ...]
) -> tuple[ChangePoint, ...]:
    """Return the change points of a series, cached: lists of benchmarks request them repeatedly."""
    series = np.asarray(values, dtype=np.float64)
    steps = {step.index: step.p for step in _steps(np.log(series), 0)}
    return tuple(_changes(series, steps, environments))


def _despiked(rows: Values) -> Values:
    """Apply Hampel's filter: a value far from its neighbours becomes their median.

    A deviation that lasts for as many nights as a step requires is kept: at the end of a series,
    where the old level is still the majority, a large new level would be taken for a spike.
    """
    width, count = 2 * _HALF_WINDOW + 1, rows.shape[1]
    windows = [rows[:, at : count - width + 1 + at] for at in range(width)]
    middles = _median_of_seven(windows)
    spreads = _median_of_seven([np.abs(some - middles) for some in windows]) * _MAD_SCALE
    mine = np.clip(np.arange(count) - _HALF_WINDOW, 0, count - width)
    middle, spread = middles[:, mine], spreads[:, mine]
    side = np.sign(rows - middle) * (np.abs(rows - middle) > _SPIKE * spread)
    return np.where((side != 0) & ~_goes_on(side), middle, rows)


def _median_of_seven(values: Sequence[Values]) -> Values:
    """Return the median of each window of seven, like `np.median` in a tenth of its time."""
    some = list(values)
    for low, high in _SORTING:
        some[low], some[high] = (
            np.minimum(some[low], some[high]),
            np.maximum(some[low], some[high]),
        )
    return some[3]


def _goes_on(side: Values) -> NDArray[np.bool_]:
    """Return a mask of the values in runs on one side that are as long as a step requires."""
    windows = np.lib.stride_tricks.sliding_window_view(side, SIDE, axis=1)
    whole = (windows == windows[:, :, :1]).all(axis=2)
    goes_on = np.zeros(side.shape, dtype=np.bool_)
    for place in range(SIDE):
        goes_on[:, place : place + whole.shape[1]] |= whole
    return goes_on


def _step_sizes(rows: Values) -> Values:
    """Return a step statistic for each row and split: |t| with the variance of the whole row."""
    count = rows.shape[1]
    spread = rows.std(axis=1, ddof=1, keepdims=True)
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)
    before = np.arange(SIDE, count - SIDE + 1)
    scale = np.maximum(spread, _EXACT_POINTS) * np.sqrt(before * (count - before) / count)
    sizes: Values = np.abs(sums[:, before - 1]) / scale
    return sizes


def _p_value(count: int, size: float) -> float:
    without = _sizes_without_step(count)
    return float((1 + np.count_nonzero(without >= size)) / (1 + len(without)))


@lru_cache(maxsize=512)
def _sizes_without_step(count: int) -> Values:
    noise = np.random.default_rng([_SEED, count]).standard_normal((_SIMULATED, count))
    # A limited number of rows at a time, so that they fit the processor's cache.
    parts = (_step_sizes(_despiked(some)).max(axis=1) for some in np.array_split(noise, _PARTS))
    largest: Values = np.concatenate(list(parts))
    return largest


def _changes(
    series: Values, steps: dict[int, float], environments: Sequence[str]
) -> Iterator[ChangePoint]:
    if not steps:
        return
    edges = [0, *sorted(steps), len(series)]
    levels = [float(np.median(series[low:high])) for low, high in pairwise(edges)]
    for (before, after), index in zip(pairwise(levels), sorted(steps), strict=True):
        yield ChangePoint(
            index=index,
            before=before,
            after=after,
            change=after / before - 1,
            p=steps[index],
            environment_changed=_environment_changed(environments, index),
        )


def _environment_changed(environments: Sequence[str], index: int) -> bool:
    """Return whether the environment changed within two runs; unknown ones are ignored."""
    near = environments[max(0, index - 3) : index + 3]
    return len({one for one in near if one}) > 1


def _autocorrelation(logs: Values, steps: Sequence[int]) -> float | None:
    """Return the autocorrelation of neighbours, by ranks around the levels.

    Spikes and steps do not affect it.
    """
    if len(logs) < _FEWEST:
        return None
    edges = [0, *steps, len(logs)]
    around = [logs[low:high] - np.median(logs[low:high]) for low, high in pairwise(edges)]
    ranks = rankdata(np.concatenate(around))
    scores: Values = norm.ppf((ranks - 0.375) / (len(ranks) + 0.25))
    if np.ptp(scores) < _EXACT_POINTS:
        return 0.0
    scores = scores - scores.mean()
    return float(np.sum(scores[1:] * scores[:-1]) / np.sum(scores**2))


def _doubts(count: int, alike: float | None, changes: Sequence[ChangePoint]) -> Iterator[str]:
    if alike is not None and alike > _ALIKE / math.sqrt(count):
        yield (
            f"each value resembles the one before (autocorrelation {alike:.2f}): "
            "such a series wanders by itself"
        )
    others = sum(one.environment_changed for one in changes)
    if others:
        where = "the change point" if len(changes) == 1 else f"{others} of {len(changes)} changes"
        yield f"packages, driver or device changed at {where}, too"
