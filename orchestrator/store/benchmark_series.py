"""What benchmarks measured, run by run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from orchestrator.domain.facts import MetricFact
from orchestrator.domain.interleaving import BASELINE
from orchestrator.store.cell_labels import Cells, cells_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import slices
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    EnvironmentRow,
    JobResultRow,
    LeaseRow,
    MetricRow,
    RunRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One metric that a cell of a run stated."""

    run: str
    cell: str
    """The cell's name."""
    platform: str
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""
    fact: MetricFact
    probed: Mapping[str, object] = field(default_factory=dict)
    """What the agent told of its environment."""


Probed = Mapping[int, Mapping[str, object]]
"""By the attempt's number."""


class BenchmarkSeriesStore:
    """Metrics of many runs. Each method is one transaction."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_benchmark(
        self, job: str, metric: str, *, product: str | None, runs: int
    ) -> list[Measured]:
        """What a product's newest so many runs measured; None means any product.

        In the order of the runs. Of a job that was tried again the last attempt counts; machines
        that were simulated do not; of paired benchmarks the subject's turns are here.
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
class _Row:
    """A metric, and the run that it belongs to."""

    metric: MetricRow
    cell: int
    run: str
    version: str
    launched: datetime


def _rows(session: Session, job: str, metric: str, runs: Iterable[str]) -> Iterable[_Row]:
    """The job's present attempt's, on machines that exist."""
    current = and_(JobResultRow.cell == CellRow.pk, JobResultRow.job == MetricRow.job)
    simulated = select(LeaseRow.pk).where(LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated)
    query = (
        select(MetricRow, CellRow.pk, RunRow.id, RunRow.subject_version, RunRow.created_at)
        .join(AttemptRow, AttemptRow.pk == MetricRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(JobResultRow, current, isouter=True)
        .where(CellRow.run_id.in_(runs), MetricRow.job == job, MetricRow.name == metric)
        .where(or_(MetricRow.arm.is_(None), MetricRow.arm != BASELINE), ~simulated.exists())
        .where(or_(JobResultRow.attempt.is_(None), JobResultRow.attempt == AttemptRow.pk))
        .order_by(RunRow.id, CellRow.position, MetricRow.attempt, MetricRow.seq)
    )
    return (_Row(*row) for row in session.execute(query))


def _probed(session: Session, attempts: Iterable[int]) -> Probed:
    query = select(EnvironmentRow.attempt, EnvironmentRow.document)
    return {
        attempt: document
        for some in slices(sorted(attempts))
        for attempt, document in session.execute(query.where(EnvironmentRow.attempt.in_(some)))
    }


def _measured(row: _Row, cells: Cells, probed: Probed) -> Measured:
    cell, metric = cells[row.cell], row.metric
    return Measured(
        run=row.run,
        cell=cell.name,
        platform=cell.platform,
        version=row.version,
        at=cell.dated_at or row.launched,
        probed=probed.get(metric.attempt, {}),
        fact=MetricFact(
            seq=metric.seq,
            job=metric.job,
            name=metric.name,
            samples=tuple(float(sample) for sample in metric.samples),
            unit=metric.unit,
            direction=metric.direction,
            params=metric.params,
            arm=metric.arm or "",
            turn=metric.turn,
            readings=metric.readings or {},
        ),
    )
