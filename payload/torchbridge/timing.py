"""Time work: warm-up to steady state, interleaved comparison, confidence intervals.

All times are wall-clock seconds, measured with the device synchronised before and after.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torchbridge.device import synchronise

Work = Callable[[], object]
Clock = Callable[[], float]

_ROUND = 1e-12  # of 1 - confidence


def timed(work: Work, device: torch.device, *, clock: Clock = time.perf_counter) -> float:
    """Return the seconds of one call of `work`, synchronised before and after."""
    synchronise(device)
    start = clock()
    work()
    synchronise(device)
    return clock() - start


def until_steady(
    seconds: Callable[[], float], *, budget_s: float, at_least: int = 1
) -> list[float]:
    """Call `seconds` until 3 results in a row are within 10 %, or their sum reaches `budget_s`.

    Returns all results, at least `at_least` of them.
    """
    samples: list[float] = []
    while len(samples) < at_least or sum(samples) < budget_s:
        samples.append(seconds())
        last = samples[-3:]
        steady = len(last) == 3 and max(last) - min(last) <= 0.1 * min(last)
        if steady and len(samples) >= at_least:
            break
    return samples


def warm_up(
    work: Work,
    device: torch.device,
    *,
    budget_s: float = 5.0,
    at_least: int = 2,
    clock: Clock = time.perf_counter,
) -> int:
    """Call `work` until steady as `until_steady`; return the number of calls."""
    limits = {"budget_s": budget_s, "at_least": at_least}
    return len(until_steady(lambda: timed(work, device, clock=clock), **limits))


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of samples, in the samples' unit."""

    median: float
    low: float
    high: float

    @classmethod
    def from_samples(cls, samples: Sequence[float]) -> Spread:
        """Compute median and quartiles of one or more samples."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return a distribution-free confidence interval of the median of independent values.

    Its ends are order statistics, chosen by the binomial distribution: each value lies below the
    median with probability 1/2. Where there are too few values for `confidence` it is their range,
    whose confidence `attained` returns; 6 values are needed for 95 %, 8 for 99 %.

    Raises:
        ValueError: there is no value, or `confidence` is not between 0 and 1.
    """
    if not values or not 0 < confidence < 1:
        raise ValueError(f"no interval of {len(values)} values at confidence {confidence}")
    ordered = sorted(values)
    left_out, _ = _beyond(len(ordered), confidence)
    return ordered[left_out], ordered[-1 - left_out]


def attained(count: int, confidence: float = 0.95) -> float:
    """Return the confidence of `median_interval` for `count` values."""
    return _beyond(count, confidence)[1]


def _beyond(count: int, confidence: float) -> tuple[int, float]:
    """How many values may be left out at each end, and how sure the interval of the others is."""
    tosses = 2**count
    ways = tail = 1  # of fewer than `left_out` + 1 heads in `count` tosses
    left_out = 0
    while True:
        ways = ways * (count - left_out) // (left_out + 1)
        if left_out + 1 > (count - 1) // 2 or 2 * (tail + ways) / tosses > 1 - confidence + _ROUND:
            return left_out, 1 - 2 * tail / tosses
        tail += ways
        left_out += 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of two arms, measured alternately; index i of both is one pair."""

    subject_s: tuple[float, ...]
    baseline_s: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Baseline time over subject time of each pair; above 1 the subject is faster."""
        return tuple(b / s for s, b in zip(self.subject_s, self.baseline_s, strict=True))

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the median ratio by `median_interval`."""
        return median_interval(self.ratios, confidence)


def compare(
    subject: Work,
    baseline: Work,
    *,
    device: torch.device,
    pairs: int = 20,
    at_least: int = 3,
    budget_s: float = 30.0,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time both arms in ABBA order, so that slow drift of the machine affects both equally.

    Stops after `pairs` pairs, or after `budget_s` seconds with at least `at_least` pairs.
    """
    subject_s: list[float] = []
    baseline_s: list[float] = []
    start = clock()
    while len(subject_s) < pairs:
        if len(subject_s) >= at_least and clock() - start > budget_s:
            break
        arms = [(subject, subject_s), (baseline, baseline_s)]
        for work, samples in arms if len(subject_s) % 2 == 0 else reversed(arms):
            samples.append(timed(work, device, clock=clock))
    return Comparison(tuple(subject_s), tuple(baseline_s))
