"""A trend as a picture: what a browser draws it from, and the same as shapes without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.application.benchmark_trend import BenchmarkTrend, Level
from orchestrator.dashboard.charts import Picture, Shape
from orchestrator.dashboard.measurement_text import honest, percent

WIDTH = 960
HEIGHT = 260
_EDGE = 6
_PAD = 0.06
"""Of the height, above and below."""
_FAR = 1.5
"""Samples farther out than so many heights of the medians' range are not drawn."""
_MOST_MARKS = 12
_NUMBERS = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Scale:
    """What the edges of a picture stand for."""

    low: float
    high: float
    first: float
    """Seconds since the epoch."""
    last: float
    outside: int
    """Samples that lie beyond."""


def scale_of(trend: BenchmarkTrend, samples: Mapping[int, Sequence[float]]) -> Scale:
    """From the values, not from zero: changes of some percent must be seen."""
    low = min((point.low for point in trend.points), default=0.0)
    high = max((point.high for point in trend.points), default=1.0)
    far = _FAR * (high - low)
    every = [sample for some in samples.values() for sample in some]
    near = [sample for sample in every if low - far <= sample <= high + far]
    low, high = min([low, *near]), max([high, *near])
    pad = _PAD * (high - low) or abs(high) * _PAD or 1.0
    times = [trend.cell(at).at.timestamp() for at in range(len(trend.points))]
    first, last = min(times, default=0.0), max(times, default=1.0)
    return Scale(low - pad, high + pad, first, last, len(every) - len(near))


def marks_of(trend: BenchmarkTrend) -> Sequence[tuple[int, str]]:
    """Where versions began: (point, version); where these are many, releases, or lines of them."""
    versions = [trend.cell(at).version for at in range(len(trend.points))]
    for shorter in (str, _release, _line):
        named = [shorter(version) for version in versions]
        steps = enumerate(pairwise(named), start=1)
        found = [(at, new) for at, (old, new) in steps if new and new != old]
        if len(found) <= _MOST_MARKS:
            return found
    return []


def _release(version: str) -> str:
    """``2.7.0rc1`` and ``2.7.0.dev3`` are on the way to ``2.7.0``."""
    found = _NUMBERS.match(version)
    return found[0] if found else ""


def _line(version: str) -> str:
    """``2.7`` of ``2.7.1``."""
    return ".".join(_release(version).split(".")[:2])


def data_of(
    trend: BenchmarkTrend, scale: Scale, samples: Mapping[int, Sequence[float]], unit: str
) -> dict[str, object]:
    """What the chart is drawn from in a browser."""
    return {
        "unit": unit,
        "y": [scale.low, scale.high],
        "points": _points(trend, samples, unit),
        "levels": [
            {"first": one.first, "last": one.last, "low": one.low, "high": one.high}
            for one in trend.levels
        ],
        "changes": [
            {
                "index": step.change.index,
                "change": step.change.change,
                "p": step.change.p,
                "said": percent(step.change.change),
                "tone": {True: "bad", False: "good", None: "busy"}[step.is_worse],
            }
            for step in trend.steps
        ],
        "versions": [{"index": at, "version": version} for at, version in marks_of(trend)],
    }


def _points(
    trend: BenchmarkTrend, samples: Mapping[int, Sequence[float]], unit: str
) -> Sequence[Mapping[str, object]]:
    numbers: dict[str, int] = {}
    found = []
    for at, point in enumerate(trend.points):
        cell = trend.cell(at)
        told = {
            "run": cell.run,
            "version": cell.version,
            "at": cell.at.timestamp(),
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "n": point.samples,
            "environment": numbers.setdefault(cell.environment, len(numbers)),
            "said": f"{honest(point.value, point.high - point.low)} {unit}".rstrip(),
            "samples": samples.get(point.cell, ()),
        }
        found.append(told)
    return found


def still(trend: BenchmarkTrend, scale: Scale) -> Picture:
    """For who has no script: bands, lines within an environment, and where the level steps."""
    draw = _Still(trend, scale)
    shapes = (*draw.bands(), *draw.marks(), *draw.lines(), *draw.steps())
    return Picture(WIDTH, HEIGHT, tuple(shapes), "plot")


class _Still:
    """Turns points into shapes."""

    def __init__(self, trend: BenchmarkTrend, scale: Scale) -> None:
        self._trend, self._scale = trend, scale

    def _x(self, at: int) -> float:
        scale = self._scale
        span = scale.last - scale.first
        share = (self._trend.cell(at).at.timestamp() - scale.first) / span if span else 0.5
        return _EDGE + (WIDTH - 2 * _EDGE) * share

    def _y(self, value: float) -> float:
        scale = self._scale
        return HEIGHT * (1 - (value - scale.low) / (scale.high - scale.low))

    def bands(self) -> Iterator[Shape]:
        """Where nine of ten values of a level are."""
        return map(self._band, self._trend.levels)

    def _band(self, level: Level) -> Shape:
        left, right = self._x(level.first), self._x(level.last)
        top, bottom = self._y(level.high), self._y(level.low)
        sizes = {"x": left, "y": top, "width": max(right - left, 2), "height": bottom - top}
        return Shape("rect", "band", _written(sizes))

    def marks(self) -> Iterator[Shape]:
        """Where versions began."""
        for at, _ in marks_of(self._trend):
            yield self._upright(at, "axis")

    def lines(self) -> Iterator[Shape]:
        """Never from one environment to another."""
        some: list[int] = []
        for at in range(len(self._trend.points)):
            if self._trend.is_apart(at):
                yield from self._line(some)
                some = []
            some.append(at)
        yield from self._line(some)

    def _line(self, some: Sequence[int]) -> Iterator[Shape]:
        places = [(self._x(at), self._y(self._trend.points[at].value)) for at in some]
        if len(places) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield Shape("polyline", "line", (("points", path),))
        for x, y in places if len(places) == 1 else ():
            yield Shape("circle", "line", _written({"cx": x, "cy": y, "r": 2.0}))

    def steps(self) -> Iterator[Shape]:
        """Where the level changed."""
        for step in self._trend.steps:
            tone = {True: "step bad", False: "step good", None: "step"}[step.is_worse]
            yield self._upright(step.change.index, tone)

    def _upright(self, at: int, tone: str) -> Shape:
        x = self._x(at)
        return Shape("line", tone, _written({"x1": x, "y1": 0.0, "x2": x, "y2": HEIGHT}))


def _written(sizes: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{size:.1f}") for name, size in sizes.items())
