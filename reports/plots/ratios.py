"""Figures of change: each value set against what it was, on either side of a line at one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports import format as fmt
from reports.model.plot import Plot
from reports.plots import svg
from reports.plots.svg import BAR, LEFT, RIGHT, ROW, TOP

_REACHES = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
"""How far the scale goes on either side of one: the first that holds every value."""


@dataclass(frozen=True, slots=True)
class RatioRow:
    """One value set against another; above one it is better."""

    label: str
    group: str
    ratio: float
    low: float
    high: float
    """How far both spreads let it be; the ratio itself where nothing is known of them."""
    kind: str
    """Class of the style."""
    told: str


def ratios(name: str, title: str, told: str, rows: Sequence[RatioRow], *, note: str) -> Plot:
    """Dots with whiskers on one logarithmic scale, with better to the right of its middle."""
    values = [v for row in rows for v in (row.low, row.ratio, row.high)]
    values = [v for v in values if v > 0 and math.isfinite(v)]
    furthest = max((max(v, 1 / v) for v in values), default=1.0)
    reach = next((reach for reach in _REACHES if furthest <= reach), furthest)
    body: list[str] = []
    y, group = float(TOP + 4), ""
    for row in rows:
        if row.group != group:
            group = row.group
            body.append(svg.text(12, y + 12, group, kind="note", limit=100))
            y += ROW - 6
        body += _row(row, y, reach)
        y += ROW
    ticks = _axis(reach, y)
    body.append(svg.text(12, y + 36, note, kind="note", limit=115))
    return svg.figure(name, title, told, [*ticks, *body], height=round(y) + 48)


def _x(value: float, reach: float) -> float:
    share = math.log(value) / math.log(reach) if value > 0 else -1.0
    return (LEFT + RIGHT) / 2 + (RIGHT - LEFT) / 2 * max(-1.0, min(1.0, share))


def _row(row: RatioRow, y: float, reach: float) -> list[str]:
    middle = y + BAR / 2
    parts = [svg.label(y, row.label), svg.value(y, row.told)]
    if row.high > row.low:
        ends = _x(row.low, reach), _x(row.high, reach)
        parts.append(svg.line(ends[0], middle, ends[1], middle, "whisker"))
    return [*parts, svg.mark(_x(row.ratio, reach), middle, row.kind)]


def _axis(reach: float, y: float) -> list[str]:
    parts = [
        svg.text((LEFT + RIGHT) / 2 - 12, TOP - 8, "← worse", kind="note", anchor="end"),
        svg.text((LEFT + RIGHT) / 2 + 12, TOP - 8, "better →", kind="note"),
    ]
    for value in (1 / reach, 1.0, reach):
        x = _x(value, reach)
        parts.append(svg.line(x, TOP - 2, x, y + 2, "axis" if value == 1 else "grid"))
        parts.append(svg.text(x, y + 16, fmt.ratio(value), kind="note", anchor="middle"))
    return parts
