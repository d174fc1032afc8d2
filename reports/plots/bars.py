"""Plots of bars: shares of a whole, values with their spread, and every sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports import format as fmt
from reports.model.blocks import Plot
from reports.plots import svg
from reports.plots.svg import BAR, LEFT, RIGHT, ROW, TOP

DOTS = 120
"""Of one row; of more samples as many quantiles are drawn."""
TICKS = 5
"""Maximum number of steps of the scale."""
_LOG_FROM = 50
"""The largest value by the smallest, from which on the scale is logarithmic."""


@dataclass(frozen=True, slots=True)
class StripRow:
    """The samples of one measurement."""

    label: str
    samples: tuple[float, ...]
    median: float
    printed: str


def strips(name: str, title: str, text: str, rows: Sequence[StripRow], *, unit: str) -> Plot:
    """Draw a strip plot: a line of dots for each row, with a mark at the median."""
    values = [sample for row in rows for sample in row.samples]
    scale = _Scale.from_values(values)
    body = list(_axis(scale, TOP + len(rows) * ROW, unit))
    for number, row in enumerate(rows):
        y = TOP + number * ROW
        body += [svg.label(y, row.label), svg.value(y, row.printed)]
        body += [svg.dot(scale.x(sample), y + BAR / 2) for sample in _thinned(row.samples)]
        middle = scale.x(row.median)
        body.append(svg.line(middle, y, middle, y + BAR, "median"))
    return svg.figure(name, title, text, body, height=TOP + len(rows) * ROW + 44)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool

    @classmethod
    def from_values(cls, values: Sequence[float]) -> _Scale:
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
    """Return the next larger round number."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((n * power for n in (1, 2, 5) if n * power >= rough), 10 * power)


def _some(ticks: tuple[float, ...]) -> tuple[float, ...]:
    """Return as many of the ticks as have room."""
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
    """Return all values, or a limited number of quantiles."""
    ranked = sorted(samples)
    if len(ranked) <= DOTS:
        return ranked
    last = len(ranked) - 1
    return [ranked[round(number * last / (DOTS - 1))] for number in range(DOTS)]


_MARGIN, _LETTER = 8, 6.6
"""Pixels of a segment, and of each letter, that are there before its figure is written into it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a stacked bar."""

    kind: str
    """Class of the style."""
    word: str
    size: float
    printed: str
    """Its figure, for a person."""


@dataclass(frozen=True, slots=True)
class StackedRow:
    """One bar of parts."""

    label: str
    segments: tuple[Segment, ...]
    value: str
    """Told at its end."""


def stacked(
    name: str, title: str, text: str, rows: Sequence[StackedRow], *, shared_scale: bool
) -> Plot:
    """Draw stacked bars: of equal length, or (`shared_scale`) as long as their sums."""
    sums = [sum(segment.size for segment in row.segments) for row in rows]
    largest = max(sums, default=0.0)
    body: list[str] = []
    for number, (row, total) in enumerate(zip(rows, sums, strict=True)):
        y = TOP + number * ROW
        body += [svg.label(y, row.label), svg.value(y, row.value)]
        scale = (RIGHT - LEFT) / ((largest if shared_scale else total) or 1)
        body += _segments(row.segments, y, scale)
    bottom = TOP + len(rows) * ROW + 6
    seen = {s.word for row in rows for s in row.segments if s.size}
    words = dict.fromkeys((s.kind, s.word) for row in rows for s in row.segments)
    legend, last = svg.legend(bottom, [entry for entry in words if entry[1] in seen])
    return svg.figure(name, title, text, [*body, *legend], height=round(last) + 24)


def _segments(segments: Sequence[Segment], y: float, scale: float) -> list[str]:
    parts, x = [], float(LEFT)
    for segment in segments:
        width = segment.size * scale
        if not width:
            continue
        # What is there is seen, however small its share.
        shown = max(width, 1.5)
        parts.append(svg.rect(x, y, shown, segment.kind, text=f"{segment.word}: {segment.printed}"))
        if width >= _MARGIN + _LETTER * len(segment.printed):
            middle = x + width / 2
            parts.append(svg.text(middle, y + 12, segment.printed, kind="in", anchor="middle"))
        x += shown
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRow:
    """One value of a chart with the range that it lies in."""

    label: str
    group: str
    """Name of the row's group; rows of a group are drawn together below the name."""
    low: float
    high: float
    """Ends of the range; equal to the value where its spread is unknown."""
    printed: str
    """The value as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRow(RangeRow):
    """One value with its spread."""

    value: float
    series: int
    """Number of the colour: a platform has the same one everywhere."""


def spreads(name: str, title: str, text: str, rows: Sequence[SpreadRow], *, note: str) -> Plot:
    """Draw grouped bars from zero, with whiskers from low to high."""
    largest = max((row.high for row in rows), default=0.0) or 1.0
    scale = (RIGHT - LEFT) / largest
    body: list[str] = []
    y, group = float(TOP), ""
    for row in rows:
        if row.group != group:
            group = row.group
            body.append(svg.text(12, y + 12, group, kind="note", limit=100))
            y += ROW - 6
        body += [svg.label(y, row.label), svg.value(y, row.printed)]
        body.append(svg.rect(LEFT, y, max(row.value * scale, 1), f"s{row.series % 6}"))
        if row.high > row.low:
            body += _whisker(LEFT + row.low * scale, LEFT + row.high * scale, y + BAR / 2)
        y += ROW
    body.append(svg.text(12, y + 10, note, kind="note", limit=120))
    return svg.figure(name, title, text, body, height=round(y) + 22)


def _whisker(low: float, high: float, y: float) -> list[str]:
    return [
        svg.line(low, y, high, y, "whisker"),
        svg.line(low, y - 4, low, y + 4, "whisker"),
        svg.line(high, y - 4, high, y + 4, "whisker"),
    ]
