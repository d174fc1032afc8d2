"""One benchmark on one platform over many runs: levels, the noise around them, and the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from orchestrator.application.context import Context
from orchestrator.application.ports.trends import ChangePoint, Trend
from orchestrator.domain.fingerprint import environment_diff
from orchestrator.store.benchmarks import Benchmark, Measuring, Point, Track

SAMPLED = 250
"""Runs up to which the samples themselves are told: beyond, they would hide the medians."""
MOST_SAMPLES = 16
"""Of one run."""
_NEAR = 2
"""Runs round a step in which an environment may have changed: no step is placed more exactly."""
_FEW = 8
_TENTH = 20
"""A twentieth of the values lies below the noise band, and one above."""


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of runs between two steps."""

    first: int
    last: int
    """Its first and its last point."""
    middle: float
    low: float
    high: float
    """Nine of ten values are between these; of few values all of them."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change point, and what else changed there."""

    change: ChangePoint
    is_worse: bool | None
    """None where nobody said which direction is better."""
    environment: Sequence[tuple[str, str, str]]
    """(what, before, since)."""
    is_known: bool
    """Whether the environments on both sides were told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTrend:
    """A benchmark on a platform."""

    track: Track
    trend: Trend
    levels: Sequence[Level]
    steps: Sequence[Step]

    @property
    def points(self) -> Sequence[Point]:
        """In the order of the runs."""
        return self.track.points

    def cell(self, at: int) -> Measuring:
        """Where a point was measured."""
        return self.track.cells[self.track.points[at].cell]

    def is_apart(self, at: int) -> bool:
        """Whether a point was measured in another environment than the one before."""
        return at > 0 and self.cell(at).environment != self.cell(at - 1).environment


def trend_of(context: Context, benchmark: Benchmark, *, platform: str, runs: int) -> BenchmarkTrend:
    """How it went over so many of the platform's newest runs."""
    track = context.stores.benchmarks.track(benchmark, cell=platform, runs=runs)
    values = [point.value for point in track.points]
    places = [track.cells[point.cell].environment for point in track.points]
    trend = context.gate.detector.detect(values, places) if values else Trend()
    return BenchmarkTrend(
        track=track,
        trend=trend,
        levels=tuple(_levels(values, trend)),
        steps=tuple(_steps(context, track, trend)),
    )


def samples_of(context: Context, trend: BenchmarkTrend) -> Mapping[int, Sequence[float]]:
    """By the cell; empty where the runs are too many."""
    if len(trend.points) > SAMPLED:
        return {}
    cells = [point.cell for point in trend.points]
    store = context.stores.benchmarks
    return store.samples(trend.track.benchmark, cells, most=MOST_SAMPLES)


def _levels(values: Sequence[float], trend: Trend) -> Sequence[Level]:
    edges = [0, *(change.index for change in trend.changes), len(values)]
    return [_level(values, first, end - 1) for first, end in pairwise(edges) if end > first]


def _level(values: Sequence[float], first: int, last: int) -> Level:
    ordered = sorted(values[first : last + 1])
    out = len(ordered) // _TENTH if len(ordered) >= _FEW else 0
    return Level(first, last, median(ordered), ordered[out], ordered[-1 - out])


def _steps(context: Context, track: Track, trend: Trend) -> Sequence[Step]:
    near = {change.index: _round(change.index, len(track.points)) for change in trend.changes}
    cells = {track.points[at].cell for places in near.values() for at in places}
    told = context.stores.benchmarks.environments(sorted(cells)) if cells else {}
    return [_step(track, change, near[change.index], told) for change in trend.changes]


def _round(index: int, many: int) -> Sequence[int]:
    return range(max(0, index - _NEAR - 1), min(many, index + _NEAR + 1))


def _step(
    track: Track,
    change: ChangePoint,
    near: Sequence[int],
    told: Mapping[int, Mapping[str, object]],
) -> Step:
    probed = [told.get(track.points[at].cell) for at in near]
    known = [one for one in probed if one]
    found = [row for old, new in pairwise(known) for row in environment_diff(old, new)]
    direction = track.benchmark.direction
    worse = (change.change > 0) == (direction == "lower")
    return Step(
        change=change,
        is_worse=worse if direction in ("lower", "higher") else None,
        environment=tuple(dict.fromkeys(found)) if change.environment_changed else (),
        is_known=len(known) == len(probed),
    )
