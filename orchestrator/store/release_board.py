"""The release board: versions of a product by platforms, and pass rates over time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar

from sqlalchemy import DateTime, Row, Select, and_, cast, exists, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.ingested import Ingested
from orchestrator.domain.outcome import Counts, Outcome, worst
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, is_postgres, json_text, slices, whole_runs
from orchestrator.store.tables import (
    AttemptRow,
    CellPlanRow,
    CellRollupRow,
    CellRow,
    IngestRow,
    JobRollupRow,
    LeaseRow,
    RunRow,
    VerdictRow,
    VerdictRunRow,
)


@dataclass(frozen=True, slots=True)
class Version:
    """Name of a release."""

    subject: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCell:
    """The newest evidence of a version from one cell of one matrix."""

    run: str
    matrix: str
    name: str
    """Name of the cell: the platform's id, with the environment if there are several."""
    outcome: Outcome | None
    reason: str
    counts: Counts
    at: datetime
    """Launch time of the run; of ingested evidence, the stated time."""
    simulated: bool
    """Whether the machine was simulated: no gate accepts such evidence."""
    origin: str
    """``ingested (structured)`` of evidence that no agent produced; else empty."""
    jobs: frozenset[str]
    """Jobs of the cell in that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version with its cells."""

    of: Version
    newest_run: str
    cells: Sequence[ReleaseCell]
    """The newest cell of each matrix and name, and older cells with jobs that no newer cell has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCell:
    """A cell name of a product's runs."""

    name: str
    matrix: str
    first_run: str
    newest_run: str
    position: int
    """Position in its newest run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """The newest verdict of a gate about a version."""

    id: str
    gate: str
    of: Version
    decision: Decision
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """An unfinished run with the number of its cells by state."""

    run: str
    matrix: str
    of: Version
    launched_at: datetime
    cells: Mapping[CellState, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRate:
    """Test counts of one suite in one cell on one day, over all runs."""

    cell: str
    job: str
    day: date
    runs: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class NewestRun:
    """The newest whole run of a product."""

    product: str
    run: str
    matrix: str
    version: str
    word: str
    """The outcome, or the state of an unfinished run."""
    jobs: frozenset[tuple[str, str]]
    """Its jobs, each with its cell's name."""
    jobs_before: frozenset[tuple[str, str]]
    """Jobs of the previous run of the same matrix, each with its cell's name."""
    is_ingested: bool
    """Whether any cell of the run was ingested."""


@dataclass(frozen=True, slots=True)
class DayOutcome:
    """Outcome of a cell name on a day: the worst of the newest outcome of each matrix."""

    product: str
    cell: str
    day: date
    run: str
    word: str
    matrix: str
    origin: str
    """``ingested (structured)`` of evidence that no agent produced; else empty."""
    jobs: frozenset[str]
    """Jobs that the run had there."""


MOST_PLACES = 300
"""Maximum pairs of product and platform that `ReleaseStore.days` returns."""
_COUNTS = tuple(Counts().as_dict())


class ReleaseStore:
    """Runs by the version that they validate.

    Runs of some jobs alone (reruns of what failed, second machines, bisections) are left out. Each
    method is one transaction of a fixed number of statements.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def products(self) -> list[str]:
        """Return the products of all runs, newest run first."""
        newest = func.max(RunRow.id).desc()
        query = select(RunRow.product).group_by(RunRow.product).order_by(newest)
        return list(self._sessions.scalars(query))

    def page(
        self, product: str, *, matrix: str = "", limit: int, before: str | None = None
    ) -> ListPage[Release, str]:
        """Return versions of a product; `before` is a cursor, `matrix` restricts to one matrix."""
        newest = func.max(RunRow.id)
        query = (
            select(RunRow.subject_name, RunRow.subject_version, newest)
            .where(*_of(product, matrix), RunRow.rerun_of.is_(None))
            .group_by(RunRow.subject_name, RunRow.subject_version)
            .order_by(newest.desc())
            .limit(limit + 1)
        )
        if before:
            query = query.having(newest < before)
        with self._sessions.read() as session:
            found = [(Version(name, version), run) for name, version, run in session.execute(query)]
            shown = found[:limit]
            cells = _newest_cells(session, product, matrix, [of for of, _ in shown])
        items = [
            Release(of=of, newest_run=run, cells=[cell for its, cell in cells if its == of])
            for of, run in shown
        ]
        return ListPage(items, shown[-1][1] if len(found) > limit else None)

    def cells(self, product: str) -> list[KnownCell]:
        """Return every cell name of every matrix of the product's runs."""
        newest = func.max(CellRow.run_id)
        spans = (
            select(
                CellRow.name.label("name"),
                RunRow.matrix_name.label("matrix"),
                func.min(CellRow.run_id).label("first"),
                newest.label("newest"),
            )
            .join(RunRow, RunRow.id == CellRow.run_id)
            .where(RunRow.product == product, RunRow.rerun_of.is_(None))
            .group_by(CellRow.name, RunRow.matrix_name)
            .subquery()
        )
        query = (
            select(spans.c.name, spans.c.matrix, spans.c.first, spans.c.newest, CellRow.position)
            .join(CellRow, and_(CellRow.run_id == spans.c.newest, CellRow.name == spans.c.name))
            .order_by(spans.c.newest.desc(), CellRow.position)
        )
        return [
            KnownCell(name=name, matrix=of, first_run=first, newest_run=last, position=place)
            for name, of, first, last, place in self._sessions.rows(query)
        ]

    def verdicts(self, product: str, versions: Sequence[Version]) -> list[ReleaseVerdict]:
        """Return the newest verdict of each gate about each version, by gate."""
        newest = (
            select(
                func.max(VerdictRow.pk).label("pk"),
                RunRow.subject_name.label("subject"),
                RunRow.subject_version.label("version"),
            )
            .join(VerdictRunRow, VerdictRunRow.verdict == VerdictRow.pk)
            .join(RunRow, RunRow.id == VerdictRunRow.run_id)
            .where(RunRow.product == product, _is_of(versions))
            .group_by(VerdictRow.gate, RunRow.subject_name, RunRow.subject_version)
            .subquery()
        )
        told = (VerdictRow.pk, VerdictRow.gate, VerdictRow.decision, VerdictRow.created_at)
        query = (
            select(*told, newest.c.subject, newest.c.version)
            .join(newest, newest.c.pk == VerdictRow.pk)
            .order_by(VerdictRow.gate, VerdictRow.pk)
        )
        return [
            ReleaseVerdict(id=f"V-{pk:04d}", gate=gate, of=Version(*of), decision=decision, at=at)
            for pk, gate, decision, at, *of in self._sessions.rows(query)
        ]

    def live(self, product: str, *, limit: int) -> list[LiveRun]:
        """Return unfinished runs, newest first, reruns included."""
        newest = (
            select(RunRow)
            .where(RunRow.product == product, RunRow.state != RunState.FINISHED)
            .order_by(RunRow.id.desc())
            .limit(limit)
        )
        counted = select(CellRow.run_id, CellRow.state, func.count()).group_by(
            CellRow.run_id, CellRow.state
        )
        with self._sessions.read() as session:
            rows = session.scalars(newest).all()
            if not rows:
                return []
            cells: dict[str, dict[CellState, int]] = {row.id: {} for row in rows}
            for run, state, many in session.execute(counted.where(CellRow.run_id.in_(cells))):
                cells[run][state] = many
        return [
            LiveRun(
                run=row.id,
                matrix=row.matrix_name,
                of=Version(row.subject_name, row.subject_version),
                launched_at=row.created_at,
                cells=cells[row.id],
            )
            for row in rows
        ]

    def newest_runs(self) -> list[NewestRun]:
        """Return the newest whole run of each product, the newest first."""
        newest = (
            select(func.max(RunRow.id))
            .where(RunRow.rerun_of.is_(None))
            .group_by(RunRow.product)
            .order_by(func.max(RunRow.id).desc())
            .limit(MOST_PLACES)
        )
        with self._sessions.read() as session:
            rows = session.scalars(select(RunRow).where(RunRow.id.in_(newest))).all()
            ids = [row.id for row in rows]
            of_run = select(CellRow.run_id).join(IngestRow, IngestRow.cell == CellRow.pk)
            ingested = set(session.scalars(of_run.where(CellRow.run_id.in_(ids))))
            before = _runs_before(session, ids)
            jobs = _jobs_of(session, [*ids, *before.values()])
        return [
            NewestRun(
                row.product,
                row.id,
                row.matrix_name,
                row.subject_version,
                str(row.outcome or row.state),
                jobs.get(row.id, frozenset()),
                jobs.get(before.get(row.id, ""), frozenset()),
                row.id in ingested,
            )
            for row in sorted(rows, key=lambda row: row.id, reverse=True)
        ]

    def days(self, *, since: datetime) -> list[DayOutcome]:
        """Return the outcome of each product, cell name and UTC day, newest runs first.

        It is the worst of the newest outcomes of each matrix and set of jobs, because a run of
        another matrix or of fewer jobs does not repeat the other tests.
        """
        with self._sessions.read() as session:
            day = _day(session).label("day")
            jobs = json_text(session, CellPlanRow.plan, "jobs").label("jobs")
            same = (RunRow.product, CellRow.name, day, RunRow.matrix_name, jobs)
            order = func.row_number().over(partition_by=same, order_by=RunRow.id.desc())
            cell = (CellRow.pk, CellRow.outcome)
            ranked = (
                select(*same, RunRow.id.label("run"), *cell, order.label("place"))
                .join(CellRow, CellRow.run_id == RunRow.id)
                .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
                .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
                .where(RunRow.created_at >= since, CellRow.state == CellState.DONE)
                .where(whole_runs(session))
                .subquery()
            )
            query = (
                select(ranked, IngestRow.document)
                .join(IngestRow, IngestRow.cell == ranked.c.pk, isouter=True)
                .where(ranked.c.place == 1)
                .order_by(ranked.c.run.desc())
            )
            found = [_day_outcome(row) for row in session.execute(query)]
        found = _without_repeated(
            (one for one in found if one.day >= since.date()),
            lambda one: ((one.product, one.cell, one.day, one.matrix), one.jobs),
        )
        worst_of: dict[tuple[str, str, date], DayOutcome] = {}
        for one in found:
            key = (one.product, one.cell, one.day)
            worst_of[key] = _worse(worst_of.setdefault(key, one), one)
        found = list(worst_of.values())
        places = list(dict.fromkeys((one.product, one.cell) for one in found))[:MOST_PLACES]
        shown = set(places)
        return [one for one in found if (one.product, one.cell) in shown]

    def rates(self, product: str, *, matrix: str = "", since: datetime) -> list[DayRate]:
        """Return counts by cell, suite and UTC day from `since` on, in this order."""
        with self._sessions.read() as session:
            day = _day(session).label("day")
            sums = [func.sum(getattr(JobRollupRow, name)) for name in _COUNTS]
            query = (
                select(CellRow.name, JobRollupRow.job, day, func.count(), *sums)
                .join(CellRow, CellRow.pk == JobRollupRow.cell)
                .join(RunRow, RunRow.id == CellRow.run_id)
                .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
                .where(*_of(product, matrix), RunRow.created_at >= since, whole_runs(session))
                .group_by(CellRow.name, JobRollupRow.job, day)
                .order_by(CellRow.name, JobRollupRow.job, day)
            )
            found = [
                DayRate(
                    cell=name,
                    job=job,
                    day=_read_day(at),
                    runs=runs,
                    counts=Counts(*map(int, counted)),
                )
                for name, job, at, runs, *counted in session.execute(query)
            ]
        return [one for one in found if one.day >= since.date()]


def _of(product: str, matrix: str) -> Iterator[ColumnElement[bool]]:
    yield RunRow.product == product
    if matrix:
        yield RunRow.matrix_name == matrix


def _is_of(versions: Sequence[Version]) -> ColumnElement[bool]:
    names = [(one.subject, one.version) for one in versions]
    return tuple_(RunRow.subject_name, RunRow.subject_version).in_(names)


def _day(session: Session) -> ColumnElement[date | str]:
    """Select the UTC day of the run's launch, or the stated one of `IngestRow`; text in SQLite."""
    stated = json_text(session, IngestRow.document, "dated_at")
    if is_postgres(session):
        at = func.coalesce(cast(stated, DateTime(timezone=True)), RunRow.created_at)
        return func.date(func.timezone("UTC", at))
    return func.coalesce(func.date(stated), func.date(RunRow.created_at))


def _read_day(day: date | str) -> date:
    return day if isinstance(day, date) else date.fromisoformat(day)


def _read_jobs(listed: str | None) -> frozenset[str]:
    return frozenset(json.loads(listed)) if listed else frozenset()


_One = TypeVar("_One")


def _without_repeated(
    newest_first: Iterable[_One], key: Callable[[_One], tuple[object, frozenset[str]]]
) -> list[_One]:
    """Return the items without those whose jobs a newer item of the same place has all."""
    seen: dict[object, list[frozenset[str]]] = {}
    left = []
    for one in newest_first:
        place, jobs = key(one)
        if not any(jobs <= newer for newer in seen.setdefault(place, [])):
            left.append(one)
        seen[place].append(jobs)
    return left


def _runs_before(session: Session, runs: Sequence[str]) -> Mapping[str, str]:
    """Return by run the previous whole run of the same product and matrix."""
    row, older = RunRow, aliased(RunRow)
    same = (older.product == row.product, older.matrix_name == row.matrix_name)
    newest = select(func.max(older.id)).where(*same, older.id < row.id, older.rerun_of.is_(None))
    query = select(row.id, newest.correlate(row).scalar_subquery()).where(row.id.in_(runs))
    return {run: before for run, before in session.execute(query) if before is not None}


def _jobs_of(session: Session, runs: Sequence[str]) -> Mapping[str, frozenset[tuple[str, str]]]:
    """Return the jobs of runs, each with its cell's name."""
    jobs = json_text(session, CellPlanRow.plan, "jobs")
    query = select(CellRow.run_id, CellRow.name, jobs).join(
        CellPlanRow, CellPlanRow.cell == CellRow.pk
    )
    found: dict[str, set[tuple[str, str]]] = {}
    for some in slices(sorted(runs)):
        for run, cell, listed in session.execute(query.where(CellRow.run_id.in_(some))):
            found.setdefault(run, set()).update((cell, job) for job in _read_jobs(listed))
    return {run: frozenset(those) for run, those in found.items()}


def _worse(one: DayOutcome, other: DayOutcome) -> DayOutcome:
    """Return the worse outcome; of equal ones the first."""
    pair = (Outcome(one.word), Outcome(other.word))
    return one if worst(pair) is pair[0] else other


def _newest_cells(
    session: Session, product: str, matrix: str, versions: Sequence[Version]
) -> list[tuple[Version, ReleaseCell]]:
    rows = _without_repeated(
        session.execute(_newest(session, product, matrix, versions)).all(),
        lambda row: ((*row[2:5], row[6]), _read_jobs(row[9])),
    )
    pks = [row[0] for row in rows]
    simulated = set(session.scalars(_simulated(session, pks)))
    ingested = _ingested(session, pks)
    return [
        (
            Version(subject, version),
            ReleaseCell(
                run=run,
                matrix=of,
                name=name,
                outcome=outcome,
                reason=reason,
                counts=Counts(*(many or 0 for many in counted)),
                at=ingested[pk].dated_at if pk in ingested else launched,
                simulated=pk in simulated,
                origin=_origin(ingested.get(pk)),
                jobs=_read_jobs(jobs),
            ),
        )
        for pk, run, subject, version, of, launched, name, outcome, reason, jobs, *counted in rows
    ]


def _newest(
    session: Session, product: str, matrix: str, versions: Sequence[Version]
) -> Select[*tuple[Any, ...]]:
    """Select the newest cell per version, matrix, name and jobs, as rows of `_newest_cells`."""
    jobs = json_text(session, CellPlanRow.plan, "jobs").label("jobs")
    same = (RunRow.subject_name, RunRow.subject_version, RunRow.matrix_name, CellRow.name, jobs)
    order = func.row_number().over(partition_by=same, order_by=RunRow.id.desc()).label("place")
    ranked = (
        select(CellRow.pk.label("pk"), jobs, order)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
        .where(*_of(product, matrix), _is_of(versions), whole_runs(session))
        .where(CellRow.state == CellState.DONE)
        .subquery()
    )
    run = (RunRow.id, RunRow.subject_name, RunRow.subject_version, RunRow.matrix_name)
    cell = (RunRow.created_at, CellRow.name, CellRow.outcome, CellRow.reason, ranked.c.jobs)
    return (
        select(CellRow.pk, *run, *cell, *(getattr(CellRollupRow, name) for name in _COUNTS))
        .join(ranked, ranked.c.pk == CellRow.pk)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellRollupRow, CellRollupRow.cell == CellRow.pk, isouter=True)
        .where(ranked.c.place == 1)
        .order_by(RunRow.id.desc(), CellRow.position)
    )


def _simulated(session: Session, cells: Sequence[int]) -> Select[int]:
    """Select cells with simulated machines."""
    leased = exists().where(
        AttemptRow.cell == CellPlanRow.cell, LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated
    )
    is_fake = json_text(session, CellPlanRow.plan, "platform", "provider") == "fake"
    return select(CellPlanRow.cell).where(CellPlanRow.cell.in_(cells), or_(leased, is_fake))


def _day_outcome(row: Row[*tuple[Any, ...]]) -> DayOutcome:
    return DayOutcome(
        row.product,
        row.name,
        _read_day(row.day),
        row.run,
        str(row.outcome),
        row.matrix_name,
        _origin(row.document),
        _read_jobs(row.jobs),
    )


def _origin(ingested: Ingested | None) -> str:
    return ingested.origin if ingested is not None else ""


def _ingested(session: Session, cells: Sequence[int]) -> Mapping[int, Ingested]:
    """Return the provenance of ingested cells."""
    query = select(IngestRow.cell, IngestRow.document).where(IngestRow.cell.in_(cells))
    return {row.cell: row.document for row in session.execute(query)}
