"""Runs, their annotations, and their event feed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import bindparam, delete, exists, func, insert, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import CellState, Run, RunEvent, RunSpec, RunState, tested_build
from orchestrator.domain.commit import Commit
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.manifest import UNTRUSTED
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.outcome import Outcome
from orchestrator.store.column_types import short
from orchestrator.store.errors import KeyTakenError, UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import Records, changed, insert_into, lock, run_row, values_of
from orchestrator.store.tables import (
    RUN_EVENTS,
    AnnotationRow,
    CellPlanRow,
    CellRow,
    IdempotencyKeyRow,
    RunRow,
    RunSpecRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAsked:
    """Filter for runs; empty fields do not restrict."""

    outcome: Outcome | None = None
    state: RunState | None = None
    subject: str = ""
    version: str = ""
    """Prefix of the version."""
    matrix: str = ""
    commit: str = ""
    """First digits of the commit."""
    branch: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class RunNames:
    """Values for the filter of runs."""

    subjects: Sequence[str] = ()
    matrices: Sequence[str] = ()
    branches: Sequence[str] = ()


class KeyClaim(StrEnum):
    """State of an idempotency key."""

    NEW = "new"
    REPLAY = "replay"
    OTHER_BODY = "other_body"
    IN_FLIGHT = "in_flight"


_FOUND_LIMIT = 10
_LAST_CHARACTER = chr(0x10FFFF)
_ANY = RunsAsked()


class RunStore:
    """Runs and their idempotency keys."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def claim_key(
        self, key: str, fingerprint: str, *, at: datetime, stale_before: datetime
    ) -> tuple[KeyClaim, str | None]:
        """Claim an idempotency key; REPLAY comes with the run's id.

        A claim without a run that is older than `stale_before` belongs to a dead request and is
        taken over.
        """
        key = short(key)
        claim = {"key": key, "fingerprint": fingerprint, "claimed_at": at}
        with self._sessions.write() as session:
            fresh = insert_into(session, IdempotencyKeyRow).values(claim).on_conflict_do_nothing()
            if changed(session, fresh):
                return KeyClaim.NEW, None
            row = session.scalars(
                select(IdempotencyKeyRow).where(IdempotencyKeyRow.key == key).with_for_update()
            ).one()
            return _claim_again(row, fingerprint, at=at, stale_before=stale_before)

    def drop_key(self, key: str) -> None:
        """Release a claimed key after a refusal, unless it has a run."""
        with self._sessions.write() as session:
            unbound = (IdempotencyKeyRow.key == short(key), IdempotencyKeyRow.run_id.is_(None))
            session.execute(delete(IdempotencyKeyRow).where(*unbound))

    def create(
        self, run: Run, spec: RunSpec, cells: Sequence[tuple[str, CellPlan]], *, key: str | None
    ) -> None:
        """Store the run with its cells and bind the key. Raises KeyTakenError."""
        with self._sessions.write() as session:
            new = insert_into(session, RunRow).values(run_values(run, spec))
            if not changed(session, new.on_conflict_do_nothing()):
                return
            session.execute(insert(RunSpecRow).values(run_id=run.id, spec=spec))
            _add_cells(session, run, cells)
            if key is not None:
                _bind(session, short(key), run.id)

    def get(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        with self._sessions.read() as session:
            row = session.get(RunRow, run_id)
            return run_of(row) if row else None

    def find(self, prefix: str) -> tuple[str, ...]:
        """Return ids of runs with this prefix, newest first, at most 10.

        `latest` is the newest run.
        """
        query = select(RunRow.id).order_by(RunRow.id.desc())
        if prefix == "latest":
            query = query.limit(1)
        else:
            last = prefix + _LAST_CHARACTER
            query = query.where(RunRow.id >= prefix, RunRow.id <= last).limit(_FOUND_LIMIT)
        return tuple(self._sessions.scalars(query))

    def spec(self, run_id: str) -> RunSpec:
        """Return the run's launch parameters. Raises UnknownIdError."""
        with self._sessions.read() as session:
            row = session.get(RunSpecRow, run_id)
            if row is None:
                raise UnknownIdError("run", run_id)
            return row.spec

    def launched(self, run_id: str) -> tuple[Run, RunSpec] | None:
        """Return the run and its launch parameters, or None."""
        query = select(RunRow, RunSpecRow.spec).join(RunSpecRow, RunSpecRow.run_id == RunRow.id)
        with self._sessions.read() as session:
            found = session.execute(query.where(RunRow.id == run_id)).one_or_none()
            return (run_of(found[0]), found[1]) if found else None

    def page(
        self, *, limit: int, before: str | None, filters: RunsAsked = _ANY
    ) -> tuple[list[Run], str | None]:
        """Return a page of runs, newest first, with the next cursor."""
        query = (
            select(RunRow).where(*_conditions(filters)).order_by(RunRow.id.desc()).limit(limit + 1)
        )
        if before is not None:
            query = query.where(RunRow.id < before)
        with self._sessions.read() as session:
            rows = session.scalars(query).all()
            runs = [run_of(row) for row in rows[:limit]]
        return runs, runs[-1].id if runs and len(rows) > limit else None

    def names(self) -> RunNames:
        """Return distinct names of matrices, subjects and products."""
        query = select(RunRow.subject_name, RunRow.matrix_name, RunRow.branch).distinct()
        with self._sessions.read() as session:
            found = session.execute(query).all()
        columns = (sorted({row[at] for row in found if row[at]}) for at in range(3))
        return RunNames(*map(tuple, columns))

    def request_cancel(self, run_id: str, *, at: datetime) -> Run:
        """Request cancellation, once and only of an unfinished run; return the run.

        Nothing is interrupted: each poll of a cell's flow reads the row
        (`application/cell/flow_context.record_cancel`). The poll that is under way ends first; one
        that prepares a machine uploads the payload and installs packages, which takes minutes. The
        next poll follows within `adapters/wakeups.CALM_S`. A run event informs the clients that
        follow the run.

        Raises:
            UnknownIdError: There is no such run.
        """
        with self._sessions.write() as session:
            row = run_row(session, run_id, lock=True)
            if row.cancel_requested_at is None and row.state is RunState.RUNNING:
                row.cancel_requested_at = at
                session.flush()
                tell(session, run_id, "run", data={"cancel": True})
            return run_of(row)

    def finish(
        self,
        run_id: str,
        outcome: Outcome,
        *,
        at: datetime,
        cells: int | None = None,
        report: Mapping[str, object] | None = None,
    ) -> bool:
        """Finish the run, once; True if this call did.

        Args:
            run_id: The run.
            outcome: Its outcome.
            at: When its last cell was done.
            cells: The number of cells that the outcome was derived from. The run is finished only
                if it has no others and all are done, checked under the run row's lock: an
                ingestion may add a cell.
            report: Data of an event of kind ``report``, before the event of the finished run.

        Raises:
            UnknownIdError: There is no such run.
        """
        over = update(RunRow).where(RunRow.id == run_id, RunRow.state != RunState.FINISHED)
        if cells is not None:
            mine = select(func.count()).select_from(CellRow).where(CellRow.run_id == run_id)
            undone = exists().where(CellRow.run_id == run_id, CellRow.state != CellState.DONE)
            over = over.where(mine.scalar_subquery() == cells, ~undone)
        values = {"state": RunState.FINISHED, "outcome": outcome, "finished_at": at}
        said = {"state": RunState.FINISHED.value, "outcome": outcome.value}
        with self._sessions.write() as session:
            lock(session, select(RunRow.id).where(RunRow.id == run_id))
            if not changed(session, over.values(values)):
                run_row(session, run_id)
                return False
            news = [("report", report)] if report is not None else []
            tell_all(session, run_id, [*news, ("run", said)])
            return True

    def unfinished(self) -> tuple[str, ...]:
        """Return ids of unfinished runs."""
        query = select(RunRow.id).where(RunRow.state != RunState.FINISHED).order_by(RunRow.id)
        return tuple(self._sessions.scalars(query))


def _conditions(filters: RunsAsked) -> Iterator[ColumnElement[bool]]:
    if filters.outcome is not None:
        yield RunRow.outcome == filters.outcome
    if filters.state is not None:
        yield RunRow.state == filters.state
    if filters.subject:
        yield RunRow.subject_name == filters.subject
    if filters.version:
        yield RunRow.subject_version.startswith(filters.version, autoescape=True)
    if filters.matrix:
        yield RunRow.matrix_name == filters.matrix
    yield from _of_commit(filters)


def _of_commit(filters: RunsAsked) -> Iterator[ColumnElement[bool]]:
    if filters.commit:
        yield RunRow.commit_sha.startswith(filters.commit.lower(), autoescape=True)
    if filters.branch:
        yield RunRow.branch == filters.branch
    if filters.author:
        yield RunRow.author == filters.author


def _claim_again(
    row: IdempotencyKeyRow, fingerprint: str, *, at: datetime, stale_before: datetime
) -> tuple[KeyClaim, str | None]:
    if row.run_id is None and row.claimed_at < stale_before:
        row.fingerprint, row.claimed_at = fingerprint, at
        return KeyClaim.NEW, None
    if row.fingerprint != fingerprint:
        return KeyClaim.OTHER_BODY, None
    return (KeyClaim.REPLAY, row.run_id) if row.run_id else (KeyClaim.IN_FLIGHT, None)


def _bind(session: Session, key: str, run_id: str) -> None:
    unbound = (IdempotencyKeyRow.key == key, IdempotencyKeyRow.run_id.is_(None))
    if not changed(session, update(IdempotencyKeyRow).where(*unbound).values(run_id=run_id)):
        raise KeyTakenError(f"the idempotency key {key!r} is not this request's any more")


def _add_cells(session: Session, run: Run, cells: Sequence[tuple[str, CellPlan]]) -> None:
    rows = [
        CellRow(
            id=cell_id,
            run_id=run.id,
            name=plan.id,
            position=position,
            state=CellState.QUEUED,
            entered_at=run.created_at,
        )
        for position, (cell_id, plan) in enumerate(cells)
    ]
    session.add_all(rows)
    session.flush()
    plans = [
        CellPlanRow(cell=row.pk, plan=plan) for row, (_, plan) in zip(rows, cells, strict=True)
    ]
    session.add_all(plans)
    session.flush()


def run_values(run: Run, spec: RunSpec) -> dict[str, object]:
    """Return the columns of a new run."""
    commit = run.commit
    return values_of(
        RunRow,
        run,
        product=spec.manifest.name,
        build=tested_build(run, spec),
        commit_sha=commit.sha,
        branch=commit.branch,
        author=commit.author,
        is_dirty=commit.is_dirty,
    )


def run_of(row: RunRow) -> Run:
    """Return the run of a row."""
    commit = Commit(sha=row.commit_sha, branch=row.branch, author=row.author, is_dirty=row.is_dirty)
    return filled(Run, row, commit=commit, untrusted=row.product.startswith(UNTRUSTED))


class AnnotationStore:
    """Annotations of runs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, run_id: str, annotations: Sequence[RunAnnotation]) -> None:
        """Append annotations; an identical one is stored once."""
        if annotations:
            with self._sessions.write() as session:
                keep_annotations(session, run_id, annotations)

    def of_run(self, run_id: str) -> tuple[RunAnnotation, ...]:
        """Return a run's annotations in the order in which they were added."""
        query = select(AnnotationRow.document).where(AnnotationRow.run_id == run_id)
        return tuple(self._sessions.scalars(query.order_by(AnnotationRow.pk)))


def keep_annotations(session: Session, run_id: str, annotations: Sequence[RunAnnotation]) -> None:
    """Append new annotations within the caller's transaction."""
    rows = [
        {"run_id": run_id, "digest": _digest(run_id, one), "document": one} for one in annotations
    ]
    if rows:
        session.execute(insert_into(session, AnnotationRow).on_conflict_do_nothing(), rows)


def _digest(run_id: str, annotation: RunAnnotation) -> str:
    said = json.dumps([run_id, asdict(annotation)], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()


_LAST: ColumnElement[int] = func.coalesce(func.max(RUN_EVENTS.c.number), 0)
_ADD = insert(RUN_EVENTS).from_select(
    ["run_id", "number", "kind", "cell", "data"],
    select(
        RunRow.id,
        select(_LAST + 1).where(RUN_EVENTS.c.run_id == RunRow.id).scalar_subquery(),
        bindparam("of_kind", type_=RUN_EVENTS.c.kind.type),
        bindparam("in_cell", type_=RUN_EVENTS.c.cell.type),
        bindparam("with_data", type_=RUN_EVENTS.c.data.type),
    ).where(RunRow.id == bindparam("to_run")),
)
"""One event, with the number after the run's last one; nothing if there is no such run."""


def tell(
    session: Session, run_id: str, kind: str, *, cell: str = "", data: Mapping[str, object]
) -> None:
    """Add an event within the caller's transaction, as its last lock."""
    tell_all(session, run_id, [(kind, data)], cell=cell)


def tell_all(
    session: Session,
    run_id: str,
    news: Sequence[tuple[str, Mapping[str, object]]],
    *,
    cell: str = "",
) -> None:
    """Add events, each a kind with data, within the caller's transaction, as its last lock.

    Raises UnknownIdError.
    """
    if not news:
        return
    lock(session, select(RunRow.id).where(RunRow.id == run_id))
    rows = [
        {"to_run": run_id, "of_kind": kind, "in_cell": cell, "with_data": dict(data)}
        for kind, data in news
    ]
    added = session.connection().execute(_ADD, rows, execution_options={"preserve_rowcount": True})
    if added.rowcount != len(rows):
        raise UnknownIdError("run", run_id)


class RunEventStore:
    """Run events, numbered per run under the run row's lock."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def after(self, run_id: str, number: int, *, limit: int = 500) -> list[RunEvent]:
        """Return events with a higher number, in order."""
        query = (
            select(Records(RunEvent, RUN_EVENTS))
            .where(RUN_EVENTS.c.run_id == run_id, RUN_EVENTS.c.number > number)
            .order_by(RUN_EVENTS.c.number)
            .limit(limit)
        )
        return list(self._sessions.scalars(query))

    def last(self, run_id: str) -> int:
        """Return the newest event's number; 0 without any."""
        return self._sessions.scalar(select(_LAST).where(RUN_EVENTS.c.run_id == run_id)) or 0

    def add(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Append one event; not idempotent."""
        with self._sessions.write() as session:
            tell(session, run_id, kind, data=data)
