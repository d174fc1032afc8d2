"""Queries of benchmarks: values by run, and series."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Row, Select, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.event_facts import BASELINE, MetricFact
from orchestrator.domain.ingested import Ingested
from orchestrator.store.benchmark_rollup import unmeasured, unpack, write_points
from orchestrator.store.cell_results import metric_of
from orchestrator.store.cells import Cells, cells_of
from orchestrator.store.column_types import short
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import slices
from orchestrator.store.tables import (
    AttemptRow,
    BenchmarkPointRow,
    BenchmarkRow,
    CellBenchmarkSummaryRow,
    CellRow,
    EnvironmentReportRow,
    IngestRow,
    JobResultRow,
    LeaseRow,
    MetricRow,
    RunRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMetric:
    """A metric of a cell of a run."""

    run: str
    cell: str
    """Name of the cell."""
    platform: str
    subject: str
    """Name of the subject."""
    version: str
    """Version of the subject."""
    at: datetime
    """Launch time of the run; of ingested evidence, the stated time."""
    fact: MetricFact
    probed: Mapping[str, object] = field(default_factory=dict)
    """The agent's report of the environment."""


Probed = Mapping[int, Mapping[str, object]]
"""Environment reports by attempt."""


class BenchmarkSeriesStore:
    """Metrics of many runs. Each method is one transaction."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_benchmark(
        self, job: str, metric: str, *, product: str | None, runs: int
    ) -> list[CellMetric]:
        """Return measurements of a product's newest runs; None means any product.

        They are in the order of the runs. Only the last attempt of a job and only real machines
        count; a paired benchmark has the subject's turns.
        """
        newest = select(RunRow.id).order_by(RunRow.id.desc()).limit(runs)
        if product is not None:
            newest = newest.where(RunRow.product == product)
        with self._sessions.read() as session:
            ids = session.scalars(newest).all()
            rows = [
                row for some in slices(sorted(ids)) for row in _rows(session, job, metric, some)
            ]
            cells = cells_of(session, {row.cell for row in rows})
            probed = _probed(session, {row.metric.attempt for row in rows})
        return [_measured(row, cells, probed) for row in rows]


@dataclass(frozen=True, slots=True)
class _MetricRow:
    """A metric with its run."""

    metric: MetricRow
    cell: int
    run: str
    subject: str
    version: str
    launched: datetime


def _rows(session: Session, job: str, metric: str, runs: Iterable[str]) -> Iterable[_MetricRow]:
    """Return metrics of each job's present attempt, on real machines."""
    current = and_(JobResultRow.cell == CellRow.pk, JobResultRow.job == MetricRow.job)
    simulated = select(LeaseRow.pk).where(LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated)
    query = (
        select(MetricRow, CellRow.pk)
        .add_columns(RunRow.id, RunRow.subject_name, RunRow.subject_version, RunRow.created_at)
        .join(AttemptRow, AttemptRow.pk == MetricRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(JobResultRow, current, isouter=True)
        .where(CellRow.run_id.in_(runs), MetricRow.job == job, MetricRow.name == metric)
        .where(or_(MetricRow.arm.is_(None), MetricRow.arm != BASELINE), ~simulated.exists())
        .where(or_(JobResultRow.attempt.is_(None), JobResultRow.attempt == AttemptRow.pk))
        .order_by(RunRow.id, CellRow.position, MetricRow.attempt, MetricRow.seq)
    )
    return (_MetricRow(*row) for row in session.execute(query))


def _probed(session: Session, attempts: Iterable[int]) -> Probed:
    query = select(EnvironmentReportRow.attempt, EnvironmentReportRow.document)
    return {
        attempt: document
        for some in slices(sorted(attempts))
        for attempt, document in session.execute(
            query.where(EnvironmentReportRow.attempt.in_(some))
        )
    }


def _measured(row: _MetricRow, cells: Cells, probed: Probed) -> CellMetric:
    cell, metric = cells[row.cell], row.metric
    return CellMetric(
        run=row.run,
        cell=cell.name,
        platform=cell.platform,
        subject=row.subject,
        version=row.version,
        at=cell.dated_at or row.launched,
        probed=probed.get(metric.attempt, {}),
        fact=metric_of(metric),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A metric with one unit, one direction and one set of parameters."""

    number: int
    """Permanent number of the benchmark."""
    job: str
    name: str
    unit: str
    direction: str
    params: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """A finished cell with measurements."""

    run: str
    cell: str
    """Name of the cell."""
    subject: str
    """Name of the subject."""
    version: str
    """Version of the subject."""
    at: datetime
    """Launch time of the run; of ingested evidence, the stated time."""
    environment: str
    """Fingerprint of its environment; empty if it is unknown."""


class Point(NamedTuple):
    """A measurement of a benchmark in a cell."""

    cell: int
    """Key of the cell, among the cells of the answer."""
    value: float
    """Median of the samples."""
    low: float
    high: float
    """Quartiles; with fewer than five samples the extremes."""
    samples: int


class Series(NamedTuple):
    """Measurements of a benchmark on a platform, in the order of runs."""

    cells: Sequence[int]
    """Keys of the cells of the answer."""
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class BenchmarkOverview:
    """Every benchmark over a product's newest runs."""

    benchmarks: Sequence[Benchmark] = ()
    cells: Mapping[int, Measuring] = field(default_factory=dict)
    series: Mapping[tuple[int, str], Series] = field(default_factory=dict)
    """Series by benchmark number and cell name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One benchmark on one platform."""

    benchmark: Benchmark
    cells: Mapping[int, Measuring] = field(default_factory=dict)
    points: Sequence[Point] = ()
    """Points in the order of runs."""
    older: int = 0
    """Number of earlier runs that measured the benchmark."""


_BENCHMARK = (
    BenchmarkRow.pk,
    BenchmarkRow.job,
    BenchmarkRow.name,
    BenchmarkRow.unit,
    BenchmarkRow.direction,
    BenchmarkRow.params,
)
_POINT = tuple(getattr(BenchmarkPointRow, name) for name in Point._fields)
_CELLS_AT_ONCE = 20
_Known = Select[int, str, str, str, str, dict[str, object]]
_Cell = Row[int, str, str, str, str, datetime, str, Ingested | None]


class BenchmarkStore:
    """Benchmarks of finished cells. Each method is one transaction.

    Only the last attempt of a job and only real machines count; a paired benchmark has the
    subject's turns.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def overview(
        self, product: str, *, runs: int, job: str = "", contains: str = ""
    ) -> BenchmarkOverview:
        """Return a product's benchmarks over its newest runs with measurements.

        Args:
            product: The payload's name.
            runs: Number of newest runs.
            job: Only benchmarks of this job; empty: of any job.
            contains: Only benchmarks whose name contains this text, ignoring case.
        """
        with self._sessions.read() as session:
            benchmarks = _read(session, _benchmarks(product, job=job, contains=contains))
            cells = _cells_of(session, _newest(product, runs))
            query = select(CellBenchmarkSummaryRow.cell, CellBenchmarkSummaryRow.packed)
            packed = {
                cell: value
                for some in slices(list(cells))
                for cell, value in session.execute(
                    query.where(CellBenchmarkSummaryRow.cell.in_(some))
                )
            }
        mine = {benchmark.number for benchmark in benchmarks}
        return BenchmarkOverview(benchmarks, cells, _series(cells, packed, mine))

    def points(
        self, benchmarks: Sequence[int], cells: Sequence[int]
    ) -> Mapping[tuple[int, int], Point]:
        """Return points with spreads, by benchmark number and cell."""
        query = select(BenchmarkPointRow.benchmark, *_POINT).where(
            BenchmarkPointRow.benchmark.in_(set(benchmarks)),
            BenchmarkPointRow.cell.in_(set(cells)),
        )
        with self._sessions.read() as session:
            found = session.execute(query).all()
        return {(number, point[0]): Point(*point) for number, *point in found}

    def jobs(self, product: str) -> Sequence[str]:
        """Return jobs with benchmarks."""
        query = select(BenchmarkRow.job).where(BenchmarkRow.product == product).distinct()
        return self._sessions.scalars(query.order_by(BenchmarkRow.job))

    def variants(self, product: str, job: str, metric: str) -> Sequence[Benchmark]:
        """Return every benchmark of this name: each unit, direction and set of parameters."""
        query = _benchmarks(product, job=job).where(BenchmarkRow.name == metric)
        with self._sessions.read() as session:
            return _read(session, query)

    def platforms(self, benchmark: int) -> Sequence[str]:
        """Return the names of the cells that measured the benchmark, newest run first."""
        query = (
            select(CellRow.name)
            .join(BenchmarkPointRow, BenchmarkPointRow.cell == CellRow.pk)
            .where(BenchmarkPointRow.benchmark == benchmark)
            .group_by(CellRow.name)
            .order_by(func.max(CellRow.run_id).desc(), CellRow.name)
        )
        return self._sessions.scalars(query)

    def track(self, benchmark: Benchmark, *, cell: str, runs: int) -> Track:
        """Return the benchmark's points on a platform over the newest runs."""
        mine = (BenchmarkPointRow.benchmark == benchmark.number, CellRow.name == cell)
        on = BenchmarkPointRow.cell == CellRow.pk
        query = select(*_POINT).join(CellRow, on).where(*mine).order_by(CellRow.run_id.desc())
        counting = select(func.count()).select_from(BenchmarkPointRow).join(CellRow, on)
        with self._sessions.read() as session:
            points = [Point(*row) for row in session.execute(query.limit(runs))][::-1]
            whole = len(points)
            if whole == runs:
                whole = session.scalar(counting.where(*mine)) or 0
            some = [point.cell for point in points]
            cells = _cells_of(session, _measuring().where(CellRow.pk.in_(some)))
        older = whole - len(points)
        return Track(benchmark=benchmark, cells=cells, points=points, older=older)

    def samples(
        self, benchmark: Benchmark, cells: Sequence[int], *, most: int
    ) -> Mapping[int, Sequence[float]]:
        """Return the samples of points, by cell.

        If there are more than `most`, return samples at equal steps of the sorted ones.
        """
        point = BenchmarkPointRow
        stated = and_(
            MetricRow.attempt == point.attempt,
            MetricRow.seq.between(point.first_seq, point.last_seq),
        )
        query = (
            select(point.cell, MetricRow.samples, MetricRow.params)
            .join(MetricRow, stated)
            .where(MetricRow.job == benchmark.job, MetricRow.name == benchmark.name)
            .where(MetricRow.unit == benchmark.unit, point.benchmark == benchmark.number)
            .where(or_(MetricRow.arm.is_(None), MetricRow.arm != BASELINE))
        )
        found: dict[int, list[float]] = {}
        with self._sessions.read() as session:
            for some in slices(cells):
                for cell, samples, params in session.execute(query.where(point.cell.in_(some))):
                    if params == benchmark.params:
                        found.setdefault(cell, []).extend(samples)
        return {cell: _thinned(samples, most) for cell, samples in found.items()}

    def environments(self, cells: Sequence[int]) -> Mapping[int, Mapping[str, object]]:
        """Return the environment reports of cells."""
        query = (
            select(AttemptRow.cell, EnvironmentReportRow.document)
            .join(AttemptRow, AttemptRow.pk == EnvironmentReportRow.attempt)
            .order_by(AttemptRow.cell, AttemptRow.number)
        )
        with self._sessions.read() as session:
            return {
                cell: document
                for some in slices(cells)
                for cell, document in session.execute(query.where(AttemptRow.cell.in_(some)))
            }

    def beside(
        self, pairs: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[int, int], tuple[Point, Point]]:
        """Return the points (before, after) of benchmarks that both cells of a pair measured.

        The keys are (index of the pair, number of the benchmark). `pairs` are cell ids.
        """
        old, new = (aliased(BenchmarkPointRow) for _ in range(2))
        first, second = (aliased(CellRow) for _ in range(2))
        # For SQLite, which uses no index for pairs.
        some, others = (
            one.id.in_({pair[side] for pair in pairs}) for side, one in enumerate((first, second))
        )
        query = (
            select(first.id, second.id, old.benchmark, *_columns(old), *_columns(new))
            .join(old, old.cell == first.pk)
            .join(new, new.benchmark == old.benchmark)
            .join(second, second.pk == new.cell)
            .where(some, others, tuple_(first.id, second.id).in_(pairs))
        )
        place = {pair: at for at, pair in enumerate(pairs)}
        found: dict[tuple[int, int], tuple[Point, Point]] = {}
        with self._sessions.read() as session:
            for before, after, number, *points in session.execute(query):
                half = len(points) // 2
                both = Point(*points[:half]), Point(*points[half:])
                found[place[before, after], number] = both
        return dict(sorted(found.items()))

    def known(self, benchmarks: Sequence[int]) -> Mapping[int, Benchmark]:
        """Return benchmarks by number."""
        query = select(*_BENCHMARK)
        with self._sessions.read() as session:
            return {
                one.number: one
                for some in slices(sorted(set(benchmarks)))
                for one in _read(session, query.where(BenchmarkRow.pk.in_(some)))
            }

    def roll_up(self, *, limit: int) -> int:
        """Roll up cells that have no rollup; return their number."""
        with self._sessions.read() as session:
            cells = session.scalars(unmeasured(limit)).all()
        for at in range(0, len(cells), _CELLS_AT_ONCE):
            with self._sessions.write() as session:
                for cell in cells[at : at + _CELLS_AT_ONCE]:
                    write_points(session, cell)
        return len(cells)


def _columns(points: type[BenchmarkPointRow]) -> Iterator[ColumnElement[object]]:
    return (getattr(points, name) for name in Point._fields)


def _benchmarks(product: str, *, job: str = "", contains: str = "") -> _Known:
    query = select(*_BENCHMARK).where(BenchmarkRow.product == product).order_by(BenchmarkRow.pk)
    if job:
        query = query.where(BenchmarkRow.job == short(job))
    if contains:
        query = query.where(BenchmarkRow.name.icontains(contains, autoescape=True))
    return query


def _read(session: Session, query: _Known) -> list[Benchmark]:
    """Return the benchmarks of a query; it reads columns, since ORM objects are slow."""
    return [
        Benchmark(number=pk, job=job, name=name, unit=unit, direction=direction, params=params)
        for pk, job, name, unit, direction, params in session.execute(query)
    ]


def _measuring() -> Select[int, str, str, str, str, datetime, str, Ingested]:
    """Select the columns of `_Cell`."""
    return (
        select(
            *(CellRow.pk, RunRow.id, CellRow.name),
            *(RunRow.subject_name, RunRow.subject_version, RunRow.created_at),
            *(CellBenchmarkSummaryRow.environment, IngestRow.document),
        )
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellBenchmarkSummaryRow, CellBenchmarkSummaryRow.cell == CellRow.pk)
        .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
        .order_by(RunRow.id, CellRow.position)
    )


def _newest(product: str, runs: int) -> Select[int, str, str, str, str, datetime, str, Ingested]:
    """Return the cells of the newest runs with points."""
    has_points = (
        select(CellBenchmarkSummaryRow.cell)
        .join(CellRow, CellRow.pk == CellBenchmarkSummaryRow.cell)
        .where(CellRow.run_id == RunRow.id, CellBenchmarkSummaryRow.points > 0)
    )
    newest = (
        select(RunRow.id)
        .where(RunRow.product == product, has_points.exists())
        .order_by(RunRow.id.desc())
        .limit(runs)
    )
    return _measuring().where(CellRow.run_id.in_(newest), CellBenchmarkSummaryRow.points > 0)


def _cells_of(
    session: Session, query: Select[int, str, str, str, str, datetime, str, Ingested]
) -> dict[int, Measuring]:
    return {row[0]: _cell(row) for row in session.execute(query)}


def _cell(row: _Cell) -> Measuring:
    _, run, name, subject, version, launched, environment, ingested = row
    dated = ingested.dated_at if ingested is not None else None
    return Measuring(
        run=run,
        cell=name,
        subject=subject,
        version=version,
        at=dated or launched,
        environment=environment,
    )


def _series(
    cells: Mapping[int, Measuring], packed: Mapping[int, bytes], mine: Collection[int]
) -> Mapping[tuple[int, str], Series]:
    """Return series in the order of cells; equal sets of benchmarks are transposed together."""
    alike: dict[tuple[str, Sequence[int]], tuple[list[int], list[Sequence[float]]]] = {}
    for cell, measuring in cells.items():
        numbers, values = unpack(packed[cell])
        some, rows = alike.setdefault((measuring.cell, numbers), ([], []))
        some.append(cell)
        rows.append(values)
    found: dict[tuple[int, str], list[Series]] = {}
    for (name, numbers), (some, rows) in alike.items():
        for number, column in zip(numbers, zip(*rows, strict=True), strict=True):
            if number in mine:
                found.setdefault((number, name), []).append(Series(some, column))
    place = {cell: at for at, cell in enumerate(cells)}
    return {key: _joined(parts, place) for key, parts in found.items()}


def _joined(parts: Sequence[Series], place: Mapping[int, int]) -> Series:
    if len(parts) == 1:
        return parts[0]
    pairs = [pair for part in parts for pair in zip(part.cells, part.values, strict=True)]
    pairs.sort(key=lambda pair: place[pair[0]])
    return Series([cell for cell, _ in pairs], [value for _, value in pairs])


def _thinned(samples: Sequence[float], most: int) -> Sequence[float]:
    ordered = sorted(one for one in samples if isinstance(one, int | float))
    if len(ordered) <= most:
        return ordered
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(at * step)] for at in range(most)]
