"""Timing that can be believed: warm-up to steady state, interleaved arms, every sample kept.

All times are seconds of wall clock around work that has been waited for.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torchbridge.device import synchronise

Work = Callable[[], object]


def timed(work: Work, device: torch.device) -> float:
    """Seconds that `work` takes, the device idle before and after."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def warm_up(work: Work, device: torch.device, *, budget_s: float = 5.0, at_least: int = 2) -> int:
    """Run until three calls in a row are within a tenth of each other, or past `budget_s`.

    Returns how many calls were made, `at_least` or more.
    """
    samples: list[float] = []
    while len(samples) < at_least or sum(samples) < budget_s:
        samples.append(timed(work, device))
        last = samples[-3:]
        if len(last) == 3 and max(last) - min(last) <= 0.1 * min(last):
            break
    return len(samples)


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms timed in turn; `subject_s[i]` and `baseline_s[i]` are neighbours in time."""

    subject_s: tuple[float, ...]
    baseline_s: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Baseline time over subject time, per pair; above 1 the subject is faster."""
        return tuple(b / s for s, b in zip(self.subject_s, self.baseline_s, strict=True))

    def interval(self, *, confidence: float = 0.95, draws: int = 2000) -> tuple[float, float]:
        """Bootstrap confidence interval of the median ratio (the same for the same samples)."""
        rng, ratios = random.Random(0), self.ratios
        medians = sorted(
            statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(draws)
        )
        tail = int(draws * (1 - confidence) / 2)
        return medians[tail], medians[-1 - tail]


def compare(
    subject: Work,
    baseline: Work,
    *,
    device: torch.device,
    pairs: int = 20,
    at_least: int = 3,
    budget_s: float = 30.0,
) -> Comparison:
    """Time both arms in ABBA order: until `pairs`, or past `budget_s` with `at_least` pairs.

    Neither arm profits from a slow drift of the machine, since each goes first every other time.
    """
    subject_s: list[float] = []
    baseline_s: list[float] = []
    start = time.perf_counter()
    while len(subject_s) < pairs:
        if len(subject_s) >= at_least and time.perf_counter() - start > budget_s:
            break
        arms = [(subject, subject_s), (baseline, baseline_s)]
        for work, samples in arms if len(subject_s) % 2 == 0 else reversed(arms):
            samples.append(timed(work, device))
    return Comparison(tuple(subject_s), tuple(baseline_s))
