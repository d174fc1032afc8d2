"""Change points: spikes are removed, then the clearest step is found, then those on both sides.

The statistic of a step is the largest two-sample t over all places where the series could be split.
Because the place is chosen before the test, it is far larger than tables of t allow; its
distribution without a step is therefore simulated, with spikes removed likewise, with a fixed seed.
The results and the rejected alternatives are in docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from orchestrator.application.ports.statistics import ChangePoint, Trend, Watched

SIDE: Final = 3
"""Minimum number of values on each side of a change point: a single bad night is none."""
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
_EXACT: Final = 1e-12
_ALIKE: Final = float(norm.isf(LEVEL))
"""Standard errors of an autocorrelation beyond which values are not independent."""

Values = NDArray[np.float64]


class StepDetector:
    """Implements the Detector of `orchestrator.application.ports.statistics`."""

    def detect(self, values: Sequence[float], environments: Sequence[str] = ()) -> Trend:
        """See the protocol."""
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
        """See the protocol."""
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
    """Yield the clearest step, and those on both sides of it."""
    if len(logs) < _FEWEST or np.ptp(logs) < _EXACT:
        return
    sizes = _step_sizes(_despiked(logs[np.newaxis, :]))[0]
    best = int(np.argmax(sizes))
    p = _p(len(logs), float(sizes[best]))
    if p > LEVEL:
        return
    at = SIDE + best
    yield from _steps(logs[:at], offset)
    if abs(math.expm1(float(np.median(logs[at:]) - np.median(logs[:at])))) >= FLOOR:
        yield _Step(offset + at, p)
    yield from _steps(logs[at:], offset + at)


def _stepping(many: Sequence[Sequence[float]]) -> Iterator[int]:
    """Yield the indices of series with a step: a batch test rules out most series at once."""
    by_length: dict[int, list[int]] = {}
    for at, values in enumerate(many):
        by_length.setdefault(len(values), []).append(at)
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
    scale = np.maximum(spread, _EXACT) * np.sqrt(before * (count - before) / count)
    sizes: Values = np.abs(sums[:, before - 1]) / scale
    return sizes


def _p(count: int, size: float) -> float:
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
    if np.ptp(scores) < _EXACT:
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
