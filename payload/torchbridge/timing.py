"""Timing that can be believed: warm-up to steady state, interleaved arms, every sample kept.

All times are seconds of wall clock around work that has been waited for.
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
    """Seconds of `clock` that `work` takes, the device idle before and after."""
    synchronise(device)
    start = clock()
    work()
    synchronise(device)
    return clock() - start


def until_steady(
    seconds: Callable[[], float], *, budget_s: float, at_least: int = 1
) -> list[float]:
    """What `seconds` tells until three in a row are within a tenth of each other, or the budget is
    over; `at_least` of them.
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
    """Run until it is steady, as `until_steady` has it; how many calls were made."""
    limits = {"budget_s": budget_s, "at_least": at_least}
    return len(until_steady(lambda: timed(work, device, clock=clock), **limits))


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of some samples, in the samples' unit."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Spread of one sample or more."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the median that `values` were drawn around, whatever their spread.

    Its ends are two of the values: each of n lies below the median as often as a coin shows heads,
    which says how many may be left out at either end. So it covers at least as often as it says,
    for heavy tails too, as long as no value knows of another. Where n values cannot be so sure it
    is their range, which is as sure as `attained` says: 6 are needed for 95 %, 8 for 99 %.

    Raises:
        ValueError: no value, or `confidence` is not between 0 and 1.
    """
    if not values or not 0 < confidence < 1:
        raise ValueError(f"no interval of {len(values)} values at confidence {confidence}")
    ordered = sorted(values)
    left_out, _ = _beyond(len(ordered), confidence)
    return ordered[left_out], ordered[-1 - left_out]


def attained(count: int, confidence: float = 0.95) -> float:
    """How sure the `median_interval` of so many values is: `confidence` or more, if it can be."""
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
    """Two arms timed in turn; `subject_s[i]` and `baseline_s[i]` are neighbours in time."""

    subject_s: tuple[float, ...]
    baseline_s: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Baseline time over subject time, per pair; above 1 the subject is faster."""
        return tuple(b / s for s, b in zip(self.subject_s, self.baseline_s, strict=True))

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the median ratio, as `median_interval` has it."""
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
    """Time both arms in ABBA order: until `pairs`, or past `budget_s` with `at_least` pairs.

    Neither arm profits from a slow drift of the machine, since each goes first every other time.
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
