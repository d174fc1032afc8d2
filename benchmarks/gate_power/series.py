"""Simulated histories of eighty nights, for the product's detector and for plain rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.gate_power.noise import NIGHTS, Values, generator
from orchestrator.adapters.statistics import StepDetector

POINTS = 80
SIZE = 0.02
STEP = 0.05
AGO = (3, 5, 8)
"""Ages of the step, in nights."""
NEAR = 2
"""Maximum distance in nights between a step and the change point that counts as found."""
HISTORY = 20
SERIES = 600


@dataclass(slots=True)
class Seen:
    """Results for one family of noise."""

    noise: str
    series: int = 0
    alarms: int = 0
    """Number of series without a step in which a step was found."""
    sure: int = 0
    """Number of these series that were not reported as noisy."""
    noisy: int = 0
    found: dict[int, int] = field(default_factory=dict)
    """By age of the step: number of steps found in series that were not reported as noisy."""
    rules: dict[str, list[int]] = field(default_factory=dict)
    """By rule: series with a false alarm, and steps found within the last `AGO`."""
    p: float = 0.0


def observe(noise: str, *, series: int = SERIES) -> Seen:
    """Examine `series` series without a step, and as many with a step of each age."""
    seen, detector = Seen(noise), StepDetector()
    seen.found = dict.fromkeys(AGO, 0)
    seen.rules = {name: [0, 0] for name in RULES}
    for number in range(series):
        values = NIGHTS[noise](generator("series", noise, number), (POINTS,), SIZE)
        seen.series += 1
        trend = detector.detect(np.exp(values).tolist())
        seen.alarms += bool(trend.changes)
        seen.sure += bool(trend.changes) and not trend.is_noisy
        seen.noisy += trend.is_noisy
        for ago in AGO:
            seen.found[ago] += _is_found(detector, seen, _stepped(values, ago), ago)
        for name, rule in RULES.items():
            seen.rules[name][0] += bool(rule(values).any())
            seen.rules[name][1] += bool(rule(_stepped(values, AGO[-1]))[-AGO[-1] :].any())
    return seen


def _stepped(values: Values, ago: int) -> Values:
    return values + np.log1p(STEP) * (np.arange(POINTS) >= POINTS - ago)


def _is_found(detector: StepDetector, seen: Seen, values: Values, ago: int) -> bool:
    trend = detector.detect(np.exp(values).tolist())
    seen.p += sum(change.p for change in trend.changes)
    near = (abs(change.index - (POINTS - ago)) <= NEAR for change in trend.changes)
    return any(near) and not trend.is_noisy


def _seven_percent(values: Values) -> Values:
    """Return alarms by night: 7 % above the night before."""
    return np.diff(values[HISTORY - 1 :]) > np.log(1.07)


def _z_of_five(values: Values) -> Values:
    """Return alarms by night: five standard deviations above the mean of twenty nights before."""
    before = np.lib.stride_tricks.sliding_window_view(values, HISTORY)[:-1]
    spread = before.std(axis=1, ddof=1)
    return values[HISTORY:] - before.mean(axis=1) > 5 * spread


RULES: Mapping[str, Callable[[Values], Values]] = {
    "7 % rule": _seven_percent,
    "z = 5 rule": _z_of_five,
}
