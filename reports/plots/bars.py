"""Figures of bars: shares of a whole, and values with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.model.plot import Plot
from reports.plots import svg
from reports.plots.svg import BAR, LEFT, RIGHT, ROW, TOP

_MARGIN, _LETTER = 8, 6.6
"""Pixels of a segment, and of each letter, that are there before its figure is written into it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a stacked bar."""

    kind: str
    """Class of the style."""
    word: str
    size: float
    told: str
    """Its figure, for a person."""


@dataclass(frozen=True, slots=True)
class StackedRow:
    """One bar of parts."""

    label: str
    segments: tuple[Segment, ...]
    value: str
    """Told at its end."""


def stacked(
    name: str, title: str, told: str, rows: Sequence[StackedRow], *, shared_scale: bool
) -> Plot:
    """Bars of parts: each as long as the others, or (`shared_scale`) as long as its sum."""
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
    return svg.figure(name, title, told, [*body, *legend], height=round(last) + 24)


def _segments(segments: Sequence[Segment], y: float, scale: float) -> list[str]:
    parts, x = [], float(LEFT)
    for segment in segments:
        width = segment.size * scale
        if not width:
            continue
        # What is there is seen, however small its share.
        shown = max(width, 1.5)
        parts.append(svg.rect(x, y, shown, segment.kind, told=f"{segment.word}: {segment.told}"))
        if width >= _MARGIN + _LETTER * len(segment.told):
            middle = x + width / 2
            parts.append(svg.text(middle, y + 12, segment.told, kind="in", anchor="middle"))
        x += shown
    return parts


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """One value with its spread."""

    label: str
    group: str
    """Rows of one group stand together below its name."""
    value: float
    low: float
    high: float
    told: str
    series: int
    """Which colour: the same platform has the same one."""


def spreads(name: str, title: str, told: str, rows: Sequence[SpreadRow], *, note: str) -> Plot:
    """Bars from zero with whiskers from low to high, in groups."""
    largest = max((row.high for row in rows), default=0.0) or 1.0
    scale = (RIGHT - LEFT) / largest
    body: list[str] = []
    y, group = float(TOP), ""
    for row in rows:
        if row.group != group:
            group = row.group
            body.append(svg.text(12, y + 12, group, kind="note", limit=100))
            y += ROW - 6
        body += [svg.label(y, row.label), svg.value(y, row.told)]
        body.append(svg.rect(LEFT, y, max(row.value * scale, 1), f"s{row.series % 6}"))
        if row.high > row.low:
            body += _whisker(LEFT + row.low * scale, LEFT + row.high * scale, y + BAR / 2)
        y += ROW
    body.append(svg.text(12, y + 10, note, kind="note", limit=120))
    return svg.figure(name, title, told, body, height=round(y) + 22)


def _whisker(low: float, high: float, y: float) -> list[str]:
    return [
        svg.line(low, y, high, y, "whisker"),
        svg.line(low, y - 4, low, y + 4, "whisker"),
        svg.line(high, y - 4, high, y + 4, "whisker"),
    ]
