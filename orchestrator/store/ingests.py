"""Ingested cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Select, func, insert, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import Cause, CellState, Run, RunSpec, RunState
from orchestrator.domain.grouping import grouped
from orchestrator.domain.ingested import Ingested, RunAnnotation
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.results import keep_artifacts
from orchestrator.store.runs import keep_annotations, run_values, tell
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into, run_row
from orchestrator.store.tables import (
    AttemptRow,
    CellPlanRow,
    CellRow,
    IngestRow,
    RunRow,
    RunSpecRow,
    TransitionRow,
)


class CellTakenError(ValueError):
    """The run already has a cell of this name with other evidence; nothing was stored."""


class RunBusyError(RuntimeError):
    """The run is unfinished; cells can be added only to finished ones."""


@dataclass(frozen=True, slots=True)
class StartedIngest:
    """An ingested cell whose evidence is stored, or being stored."""

    run_id: str
    cell_id: str
    attempt_id: str
    finished: bool


class _ElsewhereError(Exception):
    """Another process has begun the same ingestion at the same time."""


class IngestStore:
    """Ingested cells. A run with an unfinished one is in state INGESTING."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def find(self, fingerprint: str) -> StartedIngest | None:
        """Return the cell of an identical upload; None without one."""
        with self._sessions.read() as session:
            return _found(session, fingerprint)

    def begin(
        self,
        run: Run,
        spec: RunSpec,
        cell: tuple[str, CellPlan],
        ingested: Ingested,
        *,
        attempt_id: str,
        artifacts: Sequence[ArtifactRecord],
        annotations: Sequence[RunAnnotation],
        cause: Cause | None = None,
    ) -> StartedIngest:
        """Store the cell with an open attempt, in a new or a finished run.

        The run becomes INGESTING and the cell COLLECTING, so that no controller runs the cell.
        Jobs that a finished run lacks are added to its specification. The artifacts are stored now,
        so that an interrupted ingestion can be finished from them. `cause` is the stated reason why
        there are no results. A second call with the same fingerprint returns the first cell.
        Raises CellTakenError or RunBusyError.
        """
        try:
            with self._sessions.write() as session:
                if (known := _found(session, ingested.fingerprint)) is not None:
                    return known
                if not _insert_run(session, run, spec):
                    there = run_row(session, run.id, lock=True)
                    # The process that held the lock may have begun the same ingestion.
                    if (known := _found(session, ingested.fingerprint)) is not None:
                        return known
                    _make_room(session, there, spec, cell[1].id)
                opened = _opened(attempt_id, cause, at=ingested.ingested_at)
                row = _add_cell(session, run.id, cell, opened)
                values = {"cell": row.pk, "fingerprint": ingested.fingerprint, "document": ingested}
                made = insert_into(session, IngestRow).values(values).on_conflict_do_nothing()
                if not changed(session, made):
                    raise _ElsewhereError
                keep_artifacts(session, row.pk, artifacts)
                keep_annotations(session, run.id, annotations)
                said = {"state": CellState.COLLECTING.value}
                tell(session, run.id, "cell", cell=row.name, data=said)
                return StartedIngest(run.id, row.id, attempt_id, finished=False)
        except _ElsewhereError:
            elsewhere = self.find(ingested.fingerprint)
            if elsewhere is None:
                raise
            return elsewhere

    def unfinished(self) -> tuple[tuple[StartedIngest, Ingested], ...]:
        """Return cells with incomplete evidence, or whose run is unfinished."""
        query = _begun().where(RunRow.state == RunState.INGESTING).order_by(CellRow.pk)
        with self._sessions.read() as session:
            rows = session.execute(query.add_columns(IngestRow.document))
            return tuple(
                (StartedIngest(run, cell, attempt, finished=False), document)
                for run, cell, attempt, _, document in rows
            )

    def of_run(self, run_id: str) -> Mapping[str, Ingested]:
        """Return ingestions by cell id."""
        query = (
            select(CellRow.id, IngestRow.document)
            .join(IngestRow, IngestRow.cell == CellRow.pk)
            .where(CellRow.run_id == run_id)
        )
        return {cell: document for cell, document in self._sessions.rows(query)}  # noqa: C416

    def of_runs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Ingested]]:
        """Return ingestions by run; runs without any are left out."""
        query = (
            select(CellRow.run_id, IngestRow.document)
            .join(IngestRow, IngestRow.cell == CellRow.pk)
            .where(CellRow.run_id.in_(run_ids))
            .order_by(CellRow.pk)
        )
        return grouped((run, document) for run, document in self._sessions.rows(query))


def _begun() -> Select[str, str, str, RunState]:
    return (
        select(RunRow.id, CellRow.id, AttemptRow.id, RunRow.state)
        .join(CellRow, CellRow.run_id == RunRow.id)
        .join(IngestRow, IngestRow.cell == CellRow.pk)
        .join(AttemptRow, AttemptRow.cell == CellRow.pk)
    )


def _found(session: Session, fingerprint: str) -> StartedIngest | None:
    query = _begun().where(IngestRow.fingerprint == fingerprint)
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    run, cell, attempt, state = row
    return StartedIngest(run, cell, attempt, finished=state is RunState.FINISHED)


def _insert_run(session: Session, run: Run, spec: RunSpec) -> bool:
    """Create the run, unless it exists; return whether it was created."""
    values = {**run_values(run, spec), "state": RunState.INGESTING}
    new = insert_into(session, RunRow).values(values).on_conflict_do_nothing()
    if not changed(session, new):
        return False
    session.execute(insert(RunSpecRow).values(run_id=run.id, spec=spec))
    return True


def _make_room(session: Session, run: RunRow, spec: RunSpec, name: str) -> None:
    """Reopen the finished run for another cell."""
    if run.state is not RunState.FINISHED:
        raise RunBusyError(
            f"run {run.id} is {run.state}: a cell can be added once it is finished; "
            f"`seatrial watch {run.id}` tells when"
        )
    taken = select(func.count()).where(CellRow.run_id == run.id, CellRow.name == name)
    if session.scalar(taken):
        raise CellTakenError(
            f"run {run.id} has a cell {name!r} already, with other evidence; "
            "ingest into a new run, or name another --environment"
        )
    run.state = RunState.INGESTING
    _learn(session, run.id, spec)
    session.flush()
    tell(session, run.id, "run", data={"state": RunState.INGESTING.value})


def _learn(session: Session, run_id: str, spec: RunSpec) -> None:
    """Add the cell's jobs to the run."""
    row = session.get_one(RunSpecRow, run_id)
    known = row.spec.manifest
    ids = {job.id for job in known.job}
    more = tuple(job for job in spec.manifest.job if job.id not in ids)
    row.spec = replace(row.spec, manifest=replace(known, job=known.job + more))


def _opened(attempt_id: str, cause: Cause | None, *, at: datetime) -> dict[str, object]:
    values: dict[str, object] = {"id": attempt_id, "number": 1, "opened_at": at}
    if cause is not None:
        values["cause_outcome"] = cause.outcome
        values |= {"cause_reason": cause.reason, "cause_detail": cause.detail}
    return values


def _add_cell(
    session: Session, run_id: str, cell: tuple[str, CellPlan], opened: Mapping[str, object]
) -> CellRow:
    (cell_id, plan), at = cell, opened["opened_at"]
    last = session.scalar(select(func.max(CellRow.position)).where(CellRow.run_id == run_id))
    row = CellRow(
        id=cell_id,
        run_id=run_id,
        name=plan.id,
        position=0 if last is None else last + 1,
        state=CellState.COLLECTING,
        entered_at=at,
    )
    session.add(row)
    session.flush()
    session.add(CellPlanRow(cell=row.pk, plan=plan))
    session.execute(insert(AttemptRow).values({**opened, "cell": row.pk}))
    step = {"attempt": 1, "from_state": CellState.QUEUED, "to_state": CellState.COLLECTING}
    session.execute(insert(TransitionRow).values(cell=row.pk, at=at, reason="ingested", **step))
    session.flush()
    return row
