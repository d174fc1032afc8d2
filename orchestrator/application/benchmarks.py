"""Benchmarks over runs: lists, series, trends, changes of level, comparisons of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from fractions import Fraction
from itertools import groupby, pairwise
from statistics import median

from orchestrator.application.context import Context
from orchestrator.application.ports.statistics import Detector, Trend, Watched
from orchestrator.domain.benchmark_series import (
    BenchmarkSeries,
    ChangePoint,
    EnvironmentDifference,
    SeriesChange,
    SeriesPoint,
)
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.environment_fingerprint import environment_diff, fingerprint
from orchestrator.domain.grouping import grouped
from orchestrator.domain.outcome import Counts
from orchestrator.store.benchmarks import (
    Benchmark,
    BenchmarkOverview,
    CellMetric,
    Measuring,
    Point,
    Track,
)
from orchestrator.store.release_board import DayRate
from orchestrator.store.run_comparison import Pair
from orchestrator.store.stores import Stores


@dataclass(frozen=True, slots=True)
class Day:
    """Test counts of one day."""

    day: date
    runs: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class RateTrend:
    """Pass rates of one suite on one platform by day, oldest first; only days with tests."""

    cell: str
    job: str
    """The suite's job; empty for all suites together."""
    days: Sequence[Day]

    @property
    def latest(self) -> Day:
        """Return the newest day."""
        return self.days[-1]

    @property
    def change(self) -> Fraction | None:
        """Return the change of the pass rate since the previous day with a rate, or None."""
        now = self.latest.counts.pass_rate
        before = (day.counts.pass_rate for day in reversed(self.days[:-1]))
        earlier = next((rate for rate in before if rate is not None), None)
        return None if now is None or earlier is None else now - earlier


def rate_trends(rates: Iterable[DayRate]) -> Mapping[tuple[str, str], RateTrend]:
    """Return trends by platform and suite; ``""`` means all suites of a platform.

    For all suites together, the day's number of runs is that of the suite with the most runs.
    """
    found: dict[tuple[str, str], dict[date, Day]] = {}
    for rate in rates:
        for job in (rate.job, ""):
            days = found.setdefault((rate.cell, job), {})
            known = days.get(rate.day, Day(rate.day, 0, Counts()))
            runs = max(known.runs, rate.runs)
            days[rate.day] = Day(rate.day, runs, known.counts + rate.counts)
    return {
        (cell, job): RateTrend(cell, job, [days[day] for day in sorted(days)])
        for (cell, job), days in found.items()
    }


class MetricChange(StrEnum):
    """Change of a metric between two runs, relative to its noise."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERS = "differs"
    """The values differ, but the metric does not state whether higher or lower is better."""
    SINGLE = "single"
    """One of the two runs has a single sample, so its spread is unknown."""
    ALIKE = "alike"
    """The spreads overlap."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One benchmark, measured in both cells of a pair."""

    pair: int
    """Index of the pair in the list of pairs."""
    benchmark: Benchmark
    before: Point
    after: Point

    @property
    def change(self) -> float | None:
        """Return the relative change of the median, 0.05 for 5 % higher; None without a ratio."""
        return self.after.value / self.before.value - 1 if self.before.value else None

    @property
    def loss(self) -> float:
        """Return the relative loss, 0.05 for 5 % worse, negative for better.

        0 if the metric has no direction, or the change no ratio.
        """
        if self.change is None or self.benchmark.direction not in ("higher", "lower"):
            return 0.0
        return self.change if self.benchmark.direction == "lower" else -self.change

    @property
    def is_apart(self) -> bool:
        """Whether the spreads do not overlap; for single samples, whether the values differ."""
        one, other = self.before, self.after
        return one.high < other.low or other.high < one.low

    @property
    def verdict(self) -> MetricChange:
        """Return the class of the change."""
        if not self.is_apart:
            return MetricChange.ALIKE
        if min(self.before.samples, self.after.samples) < 2:
            return MetricChange.SINGLE
        if not self.loss:
            return MetricChange.DIFFERS
        return MetricChange.WORSE if self.loss > 0 else MetricChange.BETTER


def deltas_of(stores: Stores, pairs: Sequence[Pair]) -> Sequence[Delta]:
    """Return every benchmark measured in both cells of a pair, largest loss first."""
    if not pairs:
        return ()
    found = stores.benchmarks.beside(pairs)
    known = stores.benchmarks.known([number for _, number in found])
    deltas = [Delta(pair, known[number], *points) for (pair, number), points in found.items()]
    return sorted(deltas, key=_rank)


def _rank(delta: Delta) -> tuple[bool, float, str, int]:
    return not delta.is_apart, -round(delta.loss, 6), delta.benchmark.name, delta.pair


FEWEST = 8
"""Minimum number of runs for a change point."""


class LevelChange(StrEnum):
    """Change of a series' level."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERS = "differs"
    """The level differs, but the metric does not state whether higher or lower is better."""
    STEADY = "steady"
    SHORT = "short"
    """Too few runs for a change point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkStatus:
    """A benchmark on a platform over the newest runs."""

    benchmark: Benchmark
    platform: str
    """The cell's name."""
    cells: Sequence[int]
    values: Sequence[float]
    change: ChangePoint | None
    """The last change point; None if there is none."""

    @property
    def loss(self) -> float:
        """Return the relative loss of the last level, 0.05 for 5 % worse; negative is better.

        0.0 without a direction or a change point.
        """
        if self.change is None or self.benchmark.direction not in ("higher", "lower"):
            return 0.0
        change = self.change.change
        return change if self.benchmark.direction == "lower" else -change

    @property
    def moved(self) -> LevelChange:
        """Return the class of the last change of the level."""
        if len(self.values) < FEWEST:
            return LevelChange.SHORT
        if self.change is None:
            return LevelChange.STEADY
        if not self.loss:
            return LevelChange.DIFFERS
        return LevelChange.WORSE if self.loss > 0 else LevelChange.BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFilter:
    """Filter for benchmarks; empty fields do not restrict."""

    job: str = ""
    contains: str = ""
    platform: str = ""
    moved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPage:
    """A page of benchmarks, largest loss first."""

    items: Sequence[BenchmarkStatus]
    newest: Mapping[int, Point]
    """Measurement of the newest run, by index in `items`."""
    cells: Mapping[int, Measuring]
    counts: Mapping[LevelChange, int]
    """Counts by change, over all matching benchmarks."""
    total: int
    platforms: Sequence[str]
    several: Collection[str]
    """Names that several benchmarks of different units or parameters share."""


def list_benchmarks(
    context: Context,
    product: str,
    benchmark_filter: BenchmarkFilter,
    *,
    runs: int,
    limit: int,
    skip: int,
) -> BenchmarkPage:
    """Return benchmarks of a product over its newest runs with measurements."""
    store = context.stores.benchmarks
    overview = store.overview(
        product, runs=runs, job=benchmark_filter.job, contains=benchmark_filter.contains
    )
    going = _going(context, overview, benchmark_filter.platform)
    names = Counter(benchmark.name for benchmark in overview.benchmarks)
    counts = dict.fromkeys(LevelChange, 0)
    for one in going:
        counts[one.moved] += 1
    wanted = [one for one in going if benchmark_filter.moved in ("", one.moved)]
    wanted.sort(key=lambda one: (-one.loss, one.benchmark.name, one.benchmark.number, one.platform))
    items = wanted[skip : skip + limit]
    points = store.points([one.benchmark.number for one in items], [one.cells[-1] for one in items])
    return BenchmarkPage(
        items=items,
        newest={at: points[one.benchmark.number, one.cells[-1]] for at, one in enumerate(items)},
        cells=overview.cells,
        counts=counts,
        total=len(wanted),
        several={name for name, many in names.items() if many > 1},
        platforms=sorted({cell.cell for cell in overview.cells.values()}),
    )


def _going(context: Context, overview: BenchmarkOverview, platform: str) -> list[BenchmarkStatus]:
    known = {benchmark.number: benchmark for benchmark in overview.benchmarks}
    series = {key: one for key, one in overview.series.items() if platform in ("", key[1])}
    places = {number: cell.environment for number, cell in overview.cells.items()}
    watched = [Watched(one.values, [places[cell] for cell in one.cells]) for one in series.values()]
    changes = context.gate.detector.changes(watched)
    return [
        BenchmarkStatus(
            benchmark=known[number],
            platform=name,
            cells=one.cells,
            values=one.values,
            change=steps[-1] if steps else None,
        )
        for ((number, name), one), steps in zip(series.items(), changes, strict=True)
    ]


SAMPLED = 250
"""Maximum runs with all samples; beyond it samples would hide the medians."""
MOST_SAMPLES = 16
"""Maximum samples per run."""
_NEAR = 2
"""Number of runs before and after a change point in which an environment change counts, because a
change point is not more exact.
"""
_FEW = 8
_TENTH = 20
"""One of so many values is below the noise band, and as many above it."""


@dataclass(frozen=True, slots=True)
class Level:
    """The level of consecutive runs with one environment, between two change points."""

    first: int
    last: int
    """Index of the last point."""
    middle: float
    low: float
    high: float
    """Upper end of the range that has nine of ten values; with few values, all of them."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change point with the changes of the environment."""

    change: ChangePoint
    is_worse: bool | None
    """Whether the change is for the worse; None if the metric has no direction."""
    environment: Sequence[tuple[str, str, str]]
    """Differences of the environment: (name, value before, value since)."""
    is_known: bool
    """Whether the environments on both sides are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTrend:
    """A benchmark on a platform with its change points."""

    track: Track
    trend: Trend
    levels: Sequence[Level]
    steps: Sequence[Step]

    @property
    def points(self) -> Sequence[Point]:
        """Return the points in the order of runs."""
        return self.track.points

    def cell(self, at: int) -> Measuring:
        """Return the cell of a point."""
        return self.track.cells[self.track.points[at].cell]

    def is_apart(self, at: int) -> bool:
        """Whether a point's environment differs from the previous one's."""
        return at > 0 and self.cell(at).environment != self.cell(at - 1).environment


def trend_of(context: Context, benchmark: Benchmark, *, platform: str, runs: int) -> BenchmarkTrend:
    """Return the series of a benchmark over a platform's newest `runs`, with its change points."""
    track = context.stores.benchmarks.track(benchmark, cell=platform, runs=runs)
    values = [point.value for point in track.points]
    places = [track.cells[point.cell].environment for point in track.points]
    trend = context.gate.detector.detect(values, places) if values else Trend()
    return BenchmarkTrend(
        track=track,
        trend=trend,
        levels=tuple(_levels(values, places, trend)),
        steps=tuple(_steps(context, track, trend)),
    )


def samples_of(context: Context, trend: BenchmarkTrend) -> Mapping[int, Sequence[float]]:
    """Return the samples by cell; empty if the trend has more than `SAMPLED` runs."""
    if len(trend.points) > SAMPLED:
        return {}
    cells = [point.cell for point in trend.points]
    store = context.stores.benchmarks
    return store.samples(trend.track.benchmark, cells, most=MOST_SAMPLES)


def _levels(values: Sequence[float], places: Sequence[str], trend: Trend) -> Sequence[Level]:
    moved = (at for at in range(1, len(places)) if places[at] != places[at - 1])
    edges = sorted({0, *(change.index for change in trend.changes), *moved, len(values)})
    return [_level(values, first, end - 1) for first, end in pairwise(edges)]


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
    documents: Mapping[int, Mapping[str, object]],
) -> Step:
    probed = [documents.get(track.points[at].cell) for at in near]
    known = [one for one in probed if one]
    subject = track.cells[track.points[change.index].cell].subject
    found = [
        row for old, new in pairwise(known) for row in environment_diff(old, new, subject=subject)
    ]
    direction = track.benchmark.direction
    worse = (change.change > 0) == (direction == "lower")
    return Step(
        change=change,
        is_worse=worse if direction in ("lower", "higher") else None,
        environment=tuple(dict.fromkeys(found)) if change.environment_changed else (),
        is_known=len(known) == len(probed),
    )


LOWER = "lower"


def series_of(
    context: Context, benchmark: str, *, product: str | None, platform: str | None, runs: int
) -> tuple[BenchmarkSeries, ...]:
    """Return the series of a benchmark: one per cell, unit and set of parameters.

    Args:
        context: The ports.
        benchmark: ``job/metric``.
        product: The payload's name; None means any.
        platform: The platform's id; None means every one.
        runs: Number of newest runs that are read.
    """
    job, _, metric = benchmark.partition("/")
    if not metric:
        return ()
    found = context.stores.benchmark_series.of_benchmark(job, metric, product=product, runs=runs)
    mine = [one for one in found if platform in (None, one.platform) and one.fact.samples]
    mine.sort(key=_kind)
    groups = (list(some) for _, some in groupby(mine, key=_kind))
    return tuple(_series(some, context.gate.detector) for some in groups)


def _kind(one: CellMetric) -> tuple[str, ...]:
    """Return the key that comparable measurements share."""
    fact = one.fact
    params = sorted((str(name), str(value)) for name, value in fact.params.items())
    return one.cell, one.platform, fact.unit, fact.direction, repr(params)


def _series(some: Sequence[CellMetric], detector: Detector) -> BenchmarkSeries:
    by_run = grouped((one.run, one) for one in some)
    rows = sorted(by_run.values(), key=lambda measured: (measured[-1].at, measured[-1].run))
    points = tuple(map(_point, rows))
    first = some[0]
    trend = detector.detect(
        [point.value for point in points], [point.environment for point in points]
    )
    return BenchmarkSeries(
        job=first.fact.job,
        metric=first.fact.name,
        cell=first.cell,
        platform=first.platform,
        unit=first.fact.unit,
        direction=first.fact.direction,
        params=first.fact.params,
        points=points,
        changes=tuple(
            _change(one, [row[-1] for row in rows], first.fact.direction) for one in trend.changes
        ),
        autocorrelation=trend.autocorrelation,
        is_noisy=trend.is_noisy,
        doubts=trend.doubts,
    )


def _change(change: ChangePoint, points: Sequence[CellMetric], direction: str) -> SeriesChange:
    """Return a change point with its run and the environment differences around it."""
    near = range(max(1, change.index - 2), min(len(points), change.index + 3))
    rows = (
        environment_diff(points[at - 1].probed, points[at].probed, subject=points[at].subject)
        for at in near
    )
    differences = tuple(
        EnvironmentDifference(what=what, before=before, since=since)
        for row in rows
        for what, before, since in row
    )
    return extended(
        SeriesChange,
        change,
        run=points[change.index].run,
        is_worse=(change.change > 0) == (direction == LOWER),
        environment=differences if change.environment_changed else (),
    )


def _point(measurements: Sequence[CellMetric]) -> SeriesPoint:
    """Return a run's measurement as a point: the unpaired one, else the subject's paired turns."""
    plain = [one for one in measurements if not one.fact.arm]
    values = list(_samples(plain)) if plain else [median(one.fact.samples) for one in measurements]
    last = measurements[-1]
    return SeriesPoint(
        run=last.run,
        version=last.version,
        at=last.at,
        value=median(values),
        samples=sum(len(one.fact.samples) for one in plain or measurements),
        environment=fingerprint(last.probed, subject=last.subject),
    )


def _samples(measurements: Iterable[CellMetric]) -> Iterable[float]:
    return (sample for one in measurements for sample in one.fact.samples)
