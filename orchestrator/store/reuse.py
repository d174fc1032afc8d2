"""Reusable results of jobs, and last green runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import Select, exists, func, literal, select
from sqlalchemy.orm import Session, aliased

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.reuse_inputs import Prepared, Reuse, ReuseInputs
from orchestrator.store.column_types import short
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import cell_row, changed, insert_into
from orchestrator.store.tables import (
    AttemptEnvironmentRow,
    AttemptRow,
    CellPlanRow,
    CellReuseRow,
    CellRollupRow,
    CellRow,
    IngestRow,
    LeaseRow,
    ReusableResultRow,
    RunRow,
    RunSpecRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGreen:
    """The newest run in which a platform passed."""

    run_id: str
    cell_id: str
    """Id of the cell of the platform's first environment."""
    cell: str
    """Name of the cell of the platform's first environment."""
    collected: Mapping[str, int]
    """Number of collected tests, by the name of each environment's cell."""
    streak: int
    """Consecutive runs, up to this one, in which the platform passed; at most 100. Runs that reuse
    earlier evidence are not counted."""


STREAK_LIMIT = 100
_AT_ONCE = 50
_LAST = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class ReuseQuery:
    """Parameters of the query."""

    product: str
    platform: str
    before_run: str
    """Only older runs; empty: all."""
    ingested: bool
    """Whether ingested evidence counts."""


@dataclass(frozen=True, slots=True)
class _Cell:
    run: str
    id: str
    name: str
    outcome: Outcome | None
    collected: int
    is_reused: bool
    """Whether a job of the cell did not run, because earlier evidence is reused."""


def last_green(session: Session, reuse_query: ReuseQuery) -> LastGreen | None:
    """Return the newest run in which the platform passed."""
    for run, cells in _runs(session, reuse_query):
        if all(cell.outcome is Outcome.PASSED for cell in cells):
            earlier = ReuseQuery(
                reuse_query.product, reuse_query.platform, run, reuse_query.ingested
            )
            return LastGreen(
                run_id=run,
                cell_id=cells[0].id,
                cell=cells[0].name,
                collected={cell.name: cell.collected for cell in cells},
                streak=min(_counts(cells) + streak(session, earlier), STREAK_LIMIT),
            )
    return None


def streak(session: Session, reuse_query: ReuseQuery) -> int:
    """Return the number of consecutive passing runs from the newest on.

    A run that reuses earlier evidence neither counts nor ends the streak.
    """
    number = 0
    for _, cells in _runs(session, reuse_query):
        if number == STREAK_LIMIT or any(c.outcome is not Outcome.PASSED for c in cells):
            break
        number += _counts(cells)
    return number


def _counts(cells: Sequence[_Cell]) -> int:
    """Return 0 for a run that reuses evidence, else 1."""
    return 0 if any(cell.is_reused for cell in cells) else 1


def is_whole(session: Session, run_id: str) -> bool:
    """Whether the run includes every job of its matrix."""
    row = session.get(RunSpecRow, run_id)
    return row is None or row.spec.only is None


def _runs(session: Session, reuse_query: ReuseQuery) -> Iterator[tuple[str, list[_Cell]]]:
    """Yield the platform's runs, newest first, each with its cells."""
    for run, cells in groupby(_cells(session, reuse_query), key=lambda cell: cell.run):
        yield run, list(cells)


def _cells(session: Session, reuse_query: ReuseQuery) -> Iterator[_Cell]:
    """Yield done cells of the platform on real machines, page by page."""
    simulated = exists().where(
        AttemptRow.cell == CellRow.pk, LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated
    )
    reused = exists().where(CellReuseRow.cell == CellRow.pk, CellReuseRow.source.is_not(None))
    query = (
        select(CellRow, CellPlanRow.plan, CellRollupRow, RunRow.rerun_of, reused)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
        .join(CellRollupRow, CellRollupRow.cell == CellRow.pk)
        .where(RunRow.product == reuse_query.product, CellRow.state == CellState.DONE, ~simulated)
        .where(CellRow.name.startswith(reuse_query.platform, autoescape=True))
        .order_by(CellRow.run_id.desc(), CellRow.position)
        .limit(_AT_ONCE)
    )
    if not reuse_query.ingested:
        query = query.where(~exists().where(IngestRow.cell == CellRow.pk))
    run, position = reuse_query.before_run or _LAST, -1
    while True:
        older = CellRow.run_id < run
        later = (CellRow.run_id == run) & (CellRow.position > position)
        rows = session.execute(query.where(older | later if position >= 0 else older)).all()
        for row, plan, rollup, origin, is_reused in rows:
            run, position = row.run_id, row.position
            platform = plan.platform
            if platform.id != reuse_query.platform or platform.provider == "fake":
                continue
            if origin is None or is_whole(session, run):
                counts = Counts(**{name: getattr(rollup, name) for name in Counts().as_dict()})
                yield _Cell(run, row.id, row.name, row.outcome, counts.collected, is_reused)
        if len(rows) < _AT_ONCE:
            return


@dataclass(frozen=True, slots=True)
class ReusableResult:
    """A passed job's evidence with its reuse inputs."""

    run: str
    cell: str
    """The unique id of the cell."""
    job: str
    at: datetime
    """When the evidence was produced."""
    prepared: Prepared


class ReusableResultStore:
    """Jobs with reusable results, by their reuse inputs.

    Each method is one transaction. Only jobs that ran have one: the cell of a reused job names the
    cell that it ran in, however often it is reused.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def prepare(self, attempt_id: str, prepared: Prepared) -> None:
        """Insert or replace the attempt's prepared environment. Raises UnknownIdError."""
        with self._sessions.write() as session:
            insert = insert_into(session, AttemptEnvironmentRow)
            document = literal(prepared, AttemptEnvironmentRow.document.type)
            row = select(AttemptRow.pk, document).where(AttemptRow.id == attempt_id)
            statement = insert.from_select(["attempt", "document"], row).on_conflict_do_update(
                index_elements=["attempt"], set_={"document": insert.excluded.document}
            )
            if not changed(session, statement):
                raise UnknownIdError("attempt", attempt_id)

    def preparations(self, cell_id: str) -> list[Prepared]:
        """Return the preparations of a cell's attempts, in order; unprepared ones are left out."""
        query = (
            select(AttemptEnvironmentRow.document)
            .join(AttemptRow, AttemptRow.pk == AttemptEnvironmentRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number)
        )
        return list(self._sessions.scalars(query))

    def newest_preparations(self, limit: int) -> list[Prepared]:
        """Return the preparations of the newest attempts of all runs, newest first."""
        query = (
            select(AttemptEnvironmentRow.document)
            .order_by(AttemptEnvironmentRow.attempt.desc())
            .limit(limit)
        )
        return list(self._sessions.scalars(query))

    def prove(self, cell_id: str, made: ReuseInputs, jobs: Mapping[str, datetime]) -> None:
        """Store passed jobs as reusable, with the time of their evidence; the first entry is kept.

        Args:
            cell_id: A cell with a prepared attempt; the last one is the source.
            made: The reuse inputs of that attempt.
            jobs: Time at which the evidence was produced, by job.
        """
        cell = select(CellRow.pk).where(CellRow.id == cell_id).scalar_subquery()
        last = (
            select(func.max(AttemptRow.pk))
            .join(AttemptEnvironmentRow, AttemptEnvironmentRow.attempt == AttemptRow.pk)
            .where(AttemptRow.cell == cell)
        )
        row = {
            "cell": cell,
            "attempt": last.scalar_subquery(),
            "requested_digest": made.asked,
            "product": short(made.product),
            "platform": short(made.platform.get("id", "")),
            "environment": short(made.environment),
        }
        rows = [row | {"job": short(job), "produced_at": at} for job, at in jobs.items()]
        with self._sessions.write() as session:
            new = insert_into(session, ReusableResultRow).values(rows)
            session.execute(new.on_conflict_do_nothing())

    def find(self, requested: str, job: str, *, limit: int) -> list[ReusableResult]:
        """Return reusable results with these requested inputs in done cells, newest first."""
        mine = (
            ReusableResultRow.requested_digest == requested,
            ReusableResultRow.job == short(job),
        )
        return self._read(_proofs().where(*mine).limit(limit))

    def newest(
        self, product: str, platform: str, environment: str, job: str
    ) -> ReusableResult | None:
        """Return the newest reusable result of a job on a platform and environment, or None.

        Its inputs may be any.
        """
        mine = (
            ReusableResultRow.product == short(product),
            ReusableResultRow.platform == short(platform),
            ReusableResultRow.environment == short(environment),
            ReusableResultRow.job == short(job),
        )
        return next(iter(self._read(_proofs().where(*mine).limit(1))), None)

    def decide(self, cell_id: str, reuses: Sequence[Reuse], *, at: datetime) -> None:
        """Store the reuse decision of each of the cell's jobs, once: the first one is kept.

        Raises UnknownIdError.
        """
        with self._sessions.write() as session:
            cell = cell_row(session, cell_id, lock=True).pk
            known = select(CellReuseRow.job).where(CellReuseRow.cell == cell).limit(1)
            if not reuses or session.scalar(known) is not None:
                return
            names = {one.cell for one in reuses if one.cell}
            numbers: dict[str, int] = dict(
                session.execute(select(CellRow.id, CellRow.pk).where(CellRow.id.in_(names))).all()
            )
            for one in reuses:
                if one.cell and one.cell not in numbers:
                    raise UnknownIdError("cell", one.cell)
                session.add(
                    CellReuseRow(
                        cell=cell,
                        job=short(one.job),
                        source=numbers.get(one.cell),
                        produced_at=one.at,
                        reason=one.why,
                        decided_at=at,
                    )
                )

    def decided(self, cell_id: str) -> Mapping[str, Reuse]:
        """Return decisions by job; empty if reuse was not requested or not decided."""
        return self.decisions([cell_id]).get(cell_id, {})

    def decisions(self, cell_ids: Sequence[str]) -> Mapping[str, Mapping[str, Reuse]]:
        """Return decisions of many cells, by cell id; cells without any are left out."""
        asking = aliased(CellRow)
        query = (
            select(asking.id, CellReuseRow, CellRow.id, CellRow.run_id)
            .join(CellReuseRow, CellReuseRow.cell == asking.pk)
            .join(CellRow, CellRow.pk == CellReuseRow.source, isouter=True)
            .where(asking.id.in_(cell_ids))
            .order_by(asking.pk, CellReuseRow.job)
        )
        found: dict[str, dict[str, Reuse]] = {}
        with self._sessions.read() as session:
            for asks, row, cell, run in session.execute(query):
                found.setdefault(asks, {})[row.job] = Reuse(
                    job=row.job, why=row.reason, run=run or "", cell=cell or "", at=row.produced_at
                )
        return found

    def _read(self, query: Select[ReusableResultRow, str, str, Prepared]) -> list[ReusableResult]:
        return [
            ReusableResult(run, cell, row.job, row.produced_at, prepared)
            for row, cell, run, prepared in self._sessions.rows(query)
        ]


def _proofs() -> Select[ReusableResultRow, str, str, Prepared]:
    return (
        select(ReusableResultRow, CellRow.id, CellRow.run_id, AttemptEnvironmentRow.document)
        .join(CellRow, CellRow.pk == ReusableResultRow.cell)
        .join(AttemptEnvironmentRow, AttemptEnvironmentRow.attempt == ReusableResultRow.attempt)
        .where(CellRow.state == CellState.DONE)
        .order_by(ReusableResultRow.produced_at.desc(), ReusableResultRow.cell.desc())
    )
