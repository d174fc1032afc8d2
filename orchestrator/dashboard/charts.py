"""Small SVG charts.

They contain no text (the page prints it beside them) and no inline styles (CSS classes colour
them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: its SVG tag, its tone and its attributes."""

    tag: str
    tone: str
    attributes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart's shapes, with the size of its box in units."""

    width: int
    height: int
    shapes: tuple[Shape, ...]
    name: str
    """CSS class of the chart."""


def sparkline(
    values: Sequence[float | None],
    *,
    low: float,
    high: float,
    width: int = 120,
    height: int = 24,
) -> Picture:
    """Return a line chart of values over time; the line breaks at a missing value.

    Args:
        values: The values in the order of time.
        low: The value of the lower edge.
        high: The value of the upper edge.
        width: Width in SVG units.
        height: Height in SVG units.
    """
    points = [
        None if value is None else (_x(at, len(values), width), _y(value, low, high, height))
        for at, value in enumerate(values)
    ]
    lines = [_line(some) for some in _stretches(points) if len(some) > 1]
    last = next((point for point in reversed(points) if point is not None), None)
    alone = [_dot(some[0], "line") for some in _stretches(points) if len(some) == 1]
    end = [_dot(last, "end")] if last is not None else []
    return Picture(width, height, (*lines, *alone, *end), "sparkline")


def bar(parts: Sequence[tuple[str, float]], *, width: int = 120, height: int = 6) -> Picture:
    """Return a bar with a part for each (tone, amount) but zeros; small parts stay visible."""
    whole = sum(amount for _, amount in parts)
    shapes: list[Shape] = []
    left = 0.0
    for tone, amount in parts:
        if not amount or not whole:
            continue
        length = max(1.5, width * amount / whole)
        length = min(length, width - left)
        shapes.append(_box(tone, left, 0, length, height))
        left += length
    return Picture(width, height, tuple(shapes), "bar")


_HEIGHTS = {"good": 0.35, "quiet": 0.2, "busy": 0.2, "warn": 0.7, "bad": 1.0}
"""Heights of the strip's marks: failures differ by more than their colour."""


def strip(tones: Sequence[str], *, each: int = 4, height: int = 18) -> Picture:
    """Return a row of results in chronological order; an empty tone leaves a gap."""
    shapes = [
        _box(tone, at * each, height * (1 - _HEIGHTS[tone]), each - 1, height * _HEIGHTS[tone])
        for at, tone in enumerate(tones)
        if tone
    ]
    return Picture(max(len(tones), 1) * each, height, tuple(shapes), "strip")


def columns(amounts: Sequence[float], *, each: int = 12, height: int = 64) -> Picture:
    """Return a chart with a column for each amount; small amounts stay visible.

    Args:
        amounts: The amounts in the order of the columns.
        each: Width of a column with its gap, in SVG units.
        height: Height in SVG units.
    """
    most = max(amounts, default=0.0)
    shapes = [Shape("line", "axis", _line_at(each * len(amounts), height))]
    for at, amount in enumerate(amounts):
        if amount > 0 and most > 0:
            tall = max(1.5, (height - 1) * amount / most)
            shapes.append(_box("column", at * each + 1, height - 1 - tall, each - 2, tall))
    return Picture(each * max(len(amounts), 1), height, tuple(shapes), "day-columns")


def _x(at: int, many: int, width: int) -> float:
    return 2 + (width - 4) * (at / (many - 1) if many > 1 else 1)


def _y(value: float, low: float, high: float, height: int) -> float:
    share = (value - low) / (high - low) if high > low else 1.0
    return 2 + (height - 4) * (1 - min(max(share, 0.0), 1.0))


def _stretches(
    points: Sequence[tuple[float, float] | None],
) -> Iterator[list[tuple[float, float]]]:
    some: list[tuple[float, float]] = []
    for point in (*points, None):
        if point is not None:
            some.append(point)
        elif some:
            yield some
            some = []


def _line(points: Sequence[tuple[float, float]]) -> Shape:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Shape("polyline", "line", (("points", path),))


def _dot(point: tuple[float, float], tone: str) -> Shape:
    x, y = point
    return Shape("circle", tone, (("cx", f"{x:.1f}"), ("cy", f"{y:.1f}"), ("r", "1.8")))


def _box(tone: str, x: float, y: float, width: float, height: float) -> Shape:
    places = (("x", x), ("y", y), ("width", width), ("height", height))
    return Shape("rect", tone, tuple((name, f"{value:.1f}") for name, value in places))


def _line_at(width: float, height: int) -> tuple[tuple[str, str], ...]:
    """Return the base line of the columns."""
    y = f"{height - 0.5:.1f}"
    return (("x1", "0"), ("y1", y), ("x2", f"{width:.1f}"), ("y2", y))
