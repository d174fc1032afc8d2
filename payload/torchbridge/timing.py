"""Timing of work: warm-up to a steady state, interleaved comparison, confidence intervals.

All times are wall-clock seconds, measured with the device synchronised before and after.

Two arms are compared in quads: subject, baseline, baseline, subject, then with the roles swapped.
Within a quad linear drift cancels, and noise that lasts longer than a quad affects both arms alike,
so the ratios of quads are nearly independent and a distribution-free interval of their median is
valid. It does not cover effects that last for the whole process (memory placement), or changes over
many quads of how much faster one arm is.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from torchbridge.device import synchronise

Work = Callable[[], object]
Clock = Callable[[], float]
T = TypeVar("T")

QUAD = ("subject", "baseline", "baseline", "subject")
SWAPPED = ("baseline", "subject", "subject", "baseline")
_ROUND = 1e-12  # tolerance of 1 - confidence for rounding


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
    """Call `seconds` until its last 3 results are within 10 %, or all results sum to `budget_s`.

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
    """Call `work` until its times are steady, as by `until_steady`; return the number of calls."""
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
        """Return the median and the quartiles of one or more samples."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return a distribution-free confidence interval of the median of independent values.

    Its ends are order statistics, chosen by the binomial distribution: each value lies below the
    median with probability 1/2. If there are too few values for `confidence`, the interval is their
    range; `attained` returns its confidence. 95 % needs 6 values, 99 % needs 8.

    Raises:
        ValueError: there is no value, or `confidence` is not between 0 and 1.
    """
    if not values or not 0 < confidence < 1:
        raise ValueError(f"no interval of {len(values)} values at confidence {confidence}")
    ordered = sorted(values)
    left_out, _ = _beyond(len(ordered), confidence)
    return ordered[left_out], ordered[-1 - left_out]


def attained(count: int, confidence: float = 0.95) -> float:
    """Return the confidence that `median_interval` attains with `count` values."""
    return _beyond(count, confidence)[1]


def _beyond(count: int, confidence: float) -> tuple[int, float]:
    """Return how many values the interval leaves out at each end, and the interval's confidence."""
    tosses = 2**count
    ways = tail = 1  # tosses with `left_out` heads, and with at most as many
    left_out = 0
    while True:
        ways = ways * (count - left_out) // (left_out + 1)
        if left_out + 1 > (count - 1) // 2 or 2 * (tail + ways) / tosses > 1 - confidence + _ROUND:
            return left_out, 1 - 2 * tail / tosses
        tail += ways
        left_out += 1


def order(quad: int) -> tuple[str, ...]:
    """Return the order of the arms in quad number `quad`; it alternates from quad to quad."""
    return SWAPPED if quad % 2 else QUAD


def in_quads(measure: Callable[[str], T], enough: Callable[[list[T]], bool]) -> list[T]:
    """Call `measure` for the arms of whole quads until `enough(results)`; return the results."""
    results: list[T] = []
    while not enough(results):
        results.extend(map(measure, order(len(results) // 4)))
    return results


def quad_ratios(arms: Sequence[str], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the ratio of baseline to subject time for each complete quad, by geometric means.

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
    """Median of the quads' ratios with its confidence interval; above 1 the subject is faster.

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
        """Return the median and its interval for one or more ratios of quads."""
        low, high = median_interval(ratios, confidence)
        count = len(ratios)
        return cls(statistics.median(ratios), low, high, attained(count, confidence), count)

    @property
    def width(self) -> float:
        """Width of the interval, relative to the median."""
        return (self.high - self.low) / self.median

    def __str__(self) -> str:
        return f"{self.median:.3f}x [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds per call of two arms, each in chronological order, and the ratio of their times."""

    subject_s: tuple[float, ...]
    baseline_s: tuple[float, ...]
    ratio: Ratio


def compare(
    subject: Work,
    baseline: Work,
    *,
    device: torch.device,
    quads: int = 10,
    at_least: int = 2,
    budget_s: float = 30.0,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Time both arms in quads, and return their times and ratio.

    Stops after `quads` quads, or after `budget_s` seconds with at least `at_least` quads.
    """
    works, start = {"subject": subject, "baseline": baseline}, clock()

    def enough(taken: list[tuple[str, float]]) -> bool:
        done = len(taken) // 4
        return done >= quads or (done >= at_least and clock() - start > budget_s)

    taken = in_quads(lambda arm: (arm, timed(works[arm], device, clock=clock)), enough)
    ratio = Ratio.from_quads(quad_ratios(*zip(*taken, strict=True)))
    of_arm = (tuple(s for arm, s in taken if arm == name) for name in works)
    return Comparison(*of_arm, ratio)
