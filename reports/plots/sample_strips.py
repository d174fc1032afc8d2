"""Figures of samples: every one a dot, so that a spread cannot hide behind its median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports import format as fmt
from reports.model.plot import Plot
from reports.plots import svg
from reports.plots.svg import BAR, LEFT, RIGHT, ROW, TOP

DOTS = 120
"""Of one row; of more samples as many quantiles are drawn."""
TICKS = 5
"""At most so many steps of the scale."""
_LOG_FROM = 50
"""The largest value by the smallest, from which on the scale is logarithmic."""


@dataclass(frozen=True, slots=True)
class StripRow:
    """The samples of one measurement."""

    label: str
    samples: tuple[float, ...]
    median: float
    told: str


def strips(name: str, title: str, told: str, rows: Sequence[StripRow], *, unit: str) -> Plot:
    """A line of dots for each row on one scale, with a mark at the median."""
    values = [sample for row in rows for sample in row.samples]
    scale = _Scale.of(values)
    body = list(_axis(scale, TOP + len(rows) * ROW, unit))
    for number, row in enumerate(rows):
        y = TOP + number * ROW
        body += [svg.label(y, row.label), svg.value(y, row.told)]
        body += [svg.dot(scale.x(sample), y + BAR / 2) for sample in _thinned(row.samples)]
        middle = scale.x(row.median)
        body.append(svg.line(middle, y, middle, y + BAR, "median"))
    return svg.figure(name, title, told, body, height=TOP + len(rows) * ROW + 44)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Scale:
        low, high = min(values), max(values)
        if low > 0 and high / low >= _LOG_FROM:
            first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
            every = tuple(10.0**power for power in range(first, last + 1))
            return cls(every[0], every[-1], _some(every), True)
        step = _step((high - min(low, 0.0)) / TICKS)
        first, last = math.floor(min(low, 0.0) / step), math.ceil(high / step)
        every = tuple(number * step for number in range(first, last + 1))
        return cls(every[0], every[-1], every, False)

    def x(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return LEFT + (RIGHT - LEFT) * ((at - low) / (high - low) if high > low else 0.5)


def _step(rough: float) -> float:
    """The next larger round number."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((n * power for n in (1, 2, 5) if n * power >= rough), 10 * power)


def _some(ticks: tuple[float, ...]) -> tuple[float, ...]:
    """As many as can stand beside each other, with the ends."""
    every = -(-(len(ticks) - 1) // TICKS)
    return ticks[::every] if every > 1 else ticks


def _axis(scale: _Scale, y: float, unit: str) -> list[str]:
    parts = []
    for tick in scale.ticks:
        x = scale.x(tick)
        parts.append(svg.line(x, TOP - 6, x, y + 2, "grid"))
        parts.append(svg.text(x, y + 16, fmt.number(tick), kind="note", anchor="middle"))
    kind = ", logarithmic scale" if scale.is_log else ""
    note = f"{unit or 'no unit'}{kind}; each dot is a sample, the mark is the median"
    parts.append(svg.text(LEFT, y + 34, note, kind="note", limit=85))
    return parts


def _thinned(samples: Sequence[float]) -> list[float]:
    """All of them, or so many quantiles."""
    ranked = sorted(samples)
    if len(ranked) <= DOTS:
        return ranked
    last = len(ranked) - 1
    return [ranked[round(number * last / (DOTS - 1))] for number in range(DOTS)]
