"""Cells, their labels, their attempts, and their transitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from sqlalchemy import and_, bindparam, exists, func, insert, null, select, update
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import (
    TRANSITIONS,
    Attempt,
    Cause,
    Cell,
    CellState,
    IllegalTransitionError,
    Lease,
    LeaseState,
    Run,
    RunSpec,
    RunState,
    Transition,
)
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.ingested import Ingested
from orchestrator.domain.matrix import CellPlan
from orchestrator.store.attempt_evidence import EvidencePosition, position_of, target_of
from orchestrator.store.benchmark_rollup import write_points, write_rollup
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.leases import lease_of
from orchestrator.store.runs import run_of, tell
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, cell_row, changed, lock, slices
from orchestrator.store.tables import (
    AttemptRow,
    CellPlanRow,
    CellRow,
    EnvironmentReportRow,
    IngestRow,
    LeaseRow,
    RunRow,
    RunSpecRow,
    TransitionRow,
)


@dataclass(frozen=True, slots=True)
class DatedCell:
    """A cell of one of many runs."""

    name: str
    platform: str
    """The platform's id."""
    dated_at: datetime | None
    """The stated time of ingested evidence; None if the launch time of the run counts."""


Cells = Mapping[int, DatedCell]

# Statements of every poll and every step, built once: that takes as long as executing them.
_STATUS = (
    select(CellRow, RunRow, AttemptRow)
    .join(RunRow, RunRow.id == CellRow.run_id)
    .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
    .where(CellRow.id == bindparam("of_cell"))
    .order_by(AttemptRow.number.desc())
    .limit(1)
)
_FIRST_STATUS = (
    _STATUS.add_columns(RunSpecRow.spec, CellPlanRow.plan)
    .join(RunSpecRow, RunSpecRow.run_id == CellRow.run_id)
    .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
)
"""The status with the launch parameters, which are read only once."""
_ATTEMPT_STATE = (
    select(AttemptRow, CellRow, RunRow, LeaseRow)
    .join(CellRow, CellRow.pk == AttemptRow.cell)
    .join(RunRow, RunRow.id == CellRow.run_id)
    .join(
        LeaseRow,
        and_(LeaseRow.attempt == AttemptRow.pk, LeaseRow.state != LeaseState.GONE),
        isouter=True,
    )
    .where(AttemptRow.id == bindparam("of_attempt"))
    .order_by(LeaseRow.pk.desc())
    .limit(1)
)
_OTHER = aliased(CellRow)
_ADMISSION = (
    select(
        CellRow,
        AttemptRow,
        select(func.count())
        .where(
            _OTHER.run_id == CellRow.run_id,
            _OTHER.state.not_in((CellState.QUEUED, CellState.DONE)),
        )
        .correlate(CellRow)
        .scalar_subquery(),
    )
    .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
    .where(CellRow.id == bindparam("of_cell"))
)
"""A cell, each of its attempts, and the number of the run's cells between PLACING and RELEASING."""
_LAST_STATE = (
    select(TransitionRow.to_state)
    .where(TransitionRow.cell == bindparam("of_cell"))
    .order_by(TransitionRow.pk.desc())
    .limit(1)
    .scalar_subquery()
)
_LAST_NUMBER = (
    select(func.coalesce(func.max(AttemptRow.number), 0))
    .where(AttemptRow.cell == bindparam("of_cell"))
    .scalar_subquery()
)
_ADD_TRANSITION = insert(TransitionRow).values(
    cell=bindparam("of_cell"),
    at=bindparam("now"),
    attempt=_LAST_NUMBER,
    from_state=func.coalesce(_LAST_STATE, CellState.QUEUED.value),
    to_state=bindparam("into"),
    reason=bindparam("because"),
)
"""A step from the cell's last state, of its last attempt (0 without one)."""


def cells_of(session: Session, cells: Iterable[int]) -> Cells:
    """Return cells by number."""
    query = (
        select(CellRow.pk, CellRow.name, CellPlanRow.plan, IngestRow.document)
        .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
        .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
    )
    found: dict[int, DatedCell] = {}
    for some in slices(sorted(cells)):
        for pk, name, plan, ingested in session.execute(query.where(CellRow.pk.in_(some))):
            dated = ingested.dated_at if ingested is not None else None
            found[pk] = DatedCell(name, plan.platform.id, dated)
    return found


_CACHED_CELLS = 1_000
_NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class CellLife:
    """A cell with its plan, attempts and transitions."""

    cell: Cell
    plan: CellPlan
    attempts: Sequence[Attempt] = ()
    """In order."""
    transitions: Sequence[Transition] = ()
    """In order."""
    environment: Mapping[str, object] | None = None
    """The environment of the last attempt that reported one; None without one."""
    ingested: Ingested | None = None
    """Provenance of an ingested cell; None for any other."""


@dataclass(frozen=True, slots=True)
class CellStatus:
    """Everything stored about a cell that decides whether another attempt of it begins."""

    run: Run
    spec: RunSpec
    cell: Cell
    plan: CellPlan
    last: Attempt | None
    """The newest attempt; None without one."""


@dataclass(frozen=True, slots=True)
class AttemptState:
    """Everything stored of an attempt that a poll needs."""

    run: Run
    spec: RunSpec
    cell: Cell
    plan: CellPlan
    attempt: Attempt
    position: EvidencePosition
    """The position up to which its evidence is stored."""
    lease: Lease | None
    """The newest lease that is not gone; None without one."""
    is_collected: bool = False
    """Whether the files of its jobs were collected."""


class CellStore:
    """Cells with their attempts and transitions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._launched: dict[str, tuple[str, RunSpec, CellPlan]] = {}
        """Cache of immutable launch data by cell, of the newest cells only."""

    def get(self, cell_id: str) -> Cell:
        """Return the cell. Raises UnknownIdError."""
        with self._sessions.read() as session:
            return _cell(cell_row(session, cell_id))

    def of_run(self, run_id: str) -> list[Cell]:
        """Return the cells in matrix order."""
        query = select(CellRow).where(CellRow.run_id == run_id).order_by(CellRow.position)
        return [_cell(row) for row in self._sessions.scalars(query)]

    def of_runs(self, run_ids: Sequence[str]) -> dict[str, list[Cell]]:
        """Return cells by run, in matrix order; runs without cells are left out."""
        query = select(CellRow).where(CellRow.run_id.in_(run_ids))
        found: dict[str, list[Cell]] = {}
        with self._sessions.read() as session:
            for row in session.scalars(query.order_by(CellRow.run_id, CellRow.position)):
                found.setdefault(row.run_id, []).append(_cell(row))
        return found

    def lives(self, cell_ids: Sequence[str], *, whole: bool = True) -> dict[str, CellLife]:
        """Return known cells by id, with their plans and attempts.

        With `whole` they also have transitions, environment and ingestion.
        """
        mine = CellRow.id.in_(cell_ids)
        more = (EnvironmentReportRow.document, IngestRow.document) if whole else (null(), null())
        query = (
            select(CellRow, CellPlanRow.plan, AttemptRow, *more)
            .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
            .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
            .where(mine)
            .order_by(CellRow.pk, AttemptRow.number)
        )
        if whole:
            reported = EnvironmentReportRow.attempt == AttemptRow.pk
            query = query.join(EnvironmentReportRow, reported, isouter=True)
            query = query.join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
        with self._sessions.read() as session:
            taken = _steps(session, mine) if whole else {}
            found: dict[str, CellLife] = {}
            for cell, plan, attempt, environment, ingested in session.execute(query):
                life = found.get(cell.id) or CellLife(
                    _cell(cell), plan, (), tuple(taken.get(cell.id, ())), None, ingested
                )
                if attempt is not None:
                    attempts = (*life.attempts, _attempt(attempt, cell.id))
                    seen = environment if environment is not None else life.environment
                    life = replace(life, attempts=attempts, environment=seen)
                found[cell.id] = life
            return found

    def plan(self, cell_id: str) -> CellPlan:
        """Return the cell's plan. Raises UnknownIdError."""
        query = select(CellPlanRow.plan).join(CellRow, CellRow.pk == CellPlanRow.cell)
        with self._sessions.read() as session:
            plan = session.scalar(query.where(CellRow.id == cell_id))
        if plan is None:
            raise UnknownIdError("cell", cell_id)
        return plan

    def concluded(self, run_id: str) -> list[tuple[Cell, CellPlan]]:
        """Return a run's cells with their plans, in matrix order; none if one is not done."""
        undone = aliased(CellRow)
        mine = exists().where(undone.run_id == run_id, undone.state != CellState.DONE)
        query = (
            select(CellRow, CellPlanRow.plan)
            .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
            .where(CellRow.run_id == run_id, ~mine)
            .order_by(CellRow.position)
        )
        return [(_cell(row), plan) for row, plan in self._sessions.rows(query)]

    def unfinished(self) -> tuple[str, ...]:
        """Return ids of unfinished cells, oldest first, without ingested ones."""
        ingesting = select(RunRow.id).where(RunRow.state == RunState.INGESTING)
        undone = CellRow.state != CellState.DONE, CellRow.run_id.not_in(ingesting)
        query = select(CellRow.id).where(*undone).order_by(CellRow.pk)
        return tuple(self._sessions.scalars(query))

    def awaiting_run_end(self) -> tuple[str, ...]:
        """Return ids of done cells whose run has only done cells and is not finished itself."""
        at_work = select(CellRow.run_id).where(CellRow.state != CellState.DONE)
        over = select(RunRow.id).where(RunRow.state == RunState.RUNNING, RunRow.id.not_in(at_work))
        query = select(CellRow.id).where(CellRow.run_id.in_(over)).order_by(CellRow.pk)
        return tuple(self._sessions.scalars(query))

    def admit(self, cell_id: str, attempt_id: str, *, max_parallel: int, at: datetime) -> bool:
        """Open an attempt and enter PLACING if the run has capacity; return whether it is open.

        A run has capacity while fewer than `max_parallel` of its cells are between PLACING and
        RELEASING, checked under the run row's lock. True for an attempt that is already open.

        Raises IllegalTransitionError or UnknownIdError.
        """
        with self._sessions.write() as session:
            mine = CellRow.id == cell_id
            lock(session, select(CellRow.pk).where(mine))
            run_id = select(CellRow.run_id).where(mine).scalar_subquery()
            lock(session, select(RunRow.id).where(RunRow.id == run_id))
            rows = session.execute(_ADMISSION, {"of_cell": cell_id}).all()
            if not rows:
                raise UnknownIdError("cell", cell_id)
            cell, _, at_work = rows[0]
            attempts = {one.id: one for _, one, _ in rows if one is not None}
            if (attempt := attempts.get(attempt_id)) is not None:
                return attempt.closed_at is None
            if cell.state is not CellState.QUEUED:
                raise IllegalTransitionError(f"{cell.name}: {cell.state} -> placing")
            if at_work >= max_parallel:
                return False
            number = max((one.number for one in attempts.values()), default=0) + 1
            opened = {"id": attempt_id, "cell": cell.pk, "number": number, "opened_at": at}
            session.execute(insert(AttemptRow).values(opened))
            _moved(session, cell.id, CellState.PLACING, at=at)
            return True

    def enter(self, cell_id: str, state: CellState, *, at: datetime, reason: str = "") -> Cell:
        """Enter a state, with a transition and a run event; nothing when there or past."""
        with self._sessions.write() as session:
            row = _moved(session, cell_id, state, at=at, reason=reason)
            return _cell(row or cell_row(session, cell_id))

    def record_collection(self, attempt_id: str, *, at: datetime) -> None:
        """Store when the files of the attempt's jobs were collected."""
        mine = update(AttemptRow).where(AttemptRow.id == attempt_id)
        with self._sessions.write() as session:
            changed(session, mine.values(collected_at=at))

    def requeue(self, attempt_id: str, outcome: Cause, *, at: datetime) -> None:
        """Close the attempt and queue the cell again; idempotent."""
        with self._sessions.write() as session:
            cell = _locked(session, attempt_row(session, attempt_id).cell)
            attempt = attempt_row(session, attempt_id, lock=True)
            if attempt.closed_at is not None:
                return
            attempt.outcome, attempt.closed_at = outcome.outcome, at
            if attempt.cause_outcome is None:
                _blame(attempt, outcome)
            session.flush()
            _moved(session, cell.id, CellState.QUEUED, at=at, reason=outcome.reason)

    def conclude(self, cell_id: str, outcome: Cause, *, at: datetime) -> None:
        """Close the open attempt, set the cell's outcome and enter DONE.

        The cell's roll-up is written in the same transaction.
        """
        with self._sessions.write() as session:
            said = {"outcome": outcome.outcome, "reason": outcome.reason, "detail": outcome.detail}
            cell = _stepped(session, cell_id, CellState.DONE, said, at=at, reason=outcome.reason)
            if cell is None:
                return
            mine = (AttemptRow.cell == cell.pk, AttemptRow.closed_at.is_(None))
            closed = {"outcome": outcome.outcome, "closed_at": at}
            changed(session, update(AttemptRow).where(*mine).values(closed))
            write_rollup(session, cell.pk, at=at)
            write_points(session, cell.pk)
            _tell_step(session, cell, CellState.DONE)

    def attempt(self, attempt_id: str) -> Attempt:
        """Return the attempt. Raises UnknownIdError."""
        query = select(AttemptRow, CellRow.id).join(CellRow, CellRow.pk == AttemptRow.cell)
        with self._sessions.read() as session:
            found = session.execute(query.where(AttemptRow.id == attempt_id)).one_or_none()
            if found is None:
                raise UnknownIdError("attempt", attempt_id)
            return _attempt(found[0], found[1])

    def status(self, cell_id: str) -> CellStatus:
        """Return the cell with its run and its last attempt. Raises UnknownIdError."""
        with self._sessions.read() as session:
            query = _STATUS if cell_id in self._launched else _FIRST_STATUS
            found = session.execute(query, {"of_cell": cell_id}).one_or_none()
            if found is None:
                raise UnknownIdError("cell", cell_id)
            cell, run, last, *launched = found
            if launched:
                self._remember(cell, *launched)
            spec, plan = self._launched_with(session, cell)
            attempt = _attempt(last, cell_id) if last is not None else None
            return CellStatus(run_of(run), spec, _cell(cell), plan, attempt)

    def attempt_state(self, attempt_id: str) -> AttemptState:
        """Return the attempt with run, cell and machine in one statement. Raises UnknownIdError."""
        with self._sessions.read() as session:
            found = session.execute(_ATTEMPT_STATE, {"of_attempt": attempt_id}).one_or_none()
            if found is None:
                raise UnknownIdError("attempt", attempt_id)
            attempt, cell, run, lease = found
            spec, plan = self._launched_with(session, cell)
            return AttemptState(
                run_of(run),
                spec,
                _cell(cell),
                plan,
                _attempt(attempt, cell.id),
                position_of(attempt, target_of(attempt, cell, run.product)),
                lease_of(lease, attempt_id) if lease is not None else None,
                attempt.collected_at is not None,
            )

    def run_id(self, cell_id: str) -> str:
        """Return the id of the cell's run. Raises UnknownIdError."""
        if (known := self._launched.get(cell_id)) is not None:
            return known[0]
        return self.get(cell_id).run_id

    def _launched_with(self, session: Session, cell: CellRow) -> tuple[RunSpec, CellPlan]:
        if cell.id not in self._launched:
            query = (
                select(RunSpecRow.spec, CellPlanRow.plan)
                .select_from(CellRow)
                .join(RunSpecRow, RunSpecRow.run_id == CellRow.run_id)
                .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
            )
            self._remember(cell, *session.execute(query.where(CellRow.pk == cell.pk)).one())
        return self._launched[cell.id][1:]

    def _remember(self, cell: CellRow, spec: RunSpec, plan: CellPlan) -> None:
        while len(self._launched) >= _CACHED_CELLS:
            self._launched.pop(next(iter(self._launched)), None)
        self._launched[cell.id] = cell.run_id, spec, plan

    def attempts(self, cell_id: str) -> list[Attempt]:
        """Return the cell's attempts by number."""
        with self._sessions.read() as session:
            return _attempts(session, CellRow.id == cell_id).get(cell_id, [])

    def record_cause(self, attempt_id: str, cause: Cause) -> None:
        """Store a cause outside of the jobs; the first one is kept."""
        with self._sessions.write() as session:
            attempt = attempt_row(session, attempt_id, lock=True)
            if attempt.cause_outcome is None:
                _blame(attempt, cause)

    def transitions(self, cell_id: str) -> list[Transition]:
        """Return the cell's transitions, oldest first."""
        with self._sessions.read() as session:
            return _steps(session, CellRow.id == cell_id).get(cell_id, [])


def _attempts(session: Session, mine: ColumnElement[bool]) -> dict[str, list[Attempt]]:
    """Return attempts by cell id, in the order of their numbers."""
    query = select(CellRow.id, AttemptRow).join(AttemptRow, AttemptRow.cell == CellRow.pk)
    found: dict[str, list[Attempt]] = {}
    for cell_id, row in session.execute(query.where(mine).order_by(AttemptRow.number)):
        found.setdefault(cell_id, []).append(_attempt(row, cell_id))
    return found


def _steps(session: Session, mine: ColumnElement[bool]) -> dict[str, list[Transition]]:
    """Return transitions by cell id, oldest first."""
    query = select(CellRow.id, TransitionRow).join(TransitionRow, TransitionRow.cell == CellRow.pk)
    found: dict[str, list[Transition]] = {}
    for cell_id, row in session.execute(query.where(mine).order_by(TransitionRow.pk)):
        step = Transition(row.at, row.attempt, row.from_state, row.to_state, row.reason)
        found.setdefault(cell_id, []).append(step)
    return found


def _locked(session: Session, cell_pk: int) -> CellRow:
    query = select(CellRow).where(CellRow.pk == cell_pk).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _moved(
    session: Session,
    cell_id: str,
    state: CellState,
    also: Mapping[str, object] = _NOTHING,
    *,
    at: datetime,
    reason: str = "",
) -> CellRow | None:
    """Take one step of the state table, with its transition and run event; return the row.

    The event locks the run, so the transaction must take no further lock. Arguments and errors are
    those of `_stepped`.
    """
    row = _stepped(session, cell_id, state, also, at=at, reason=reason)
    if row is not None:
        _tell_step(session, row, state)
    return row


def _stepped(
    session: Session,
    cell_id: str,
    state: CellState,
    also: Mapping[str, object] = _NOTHING,
    *,
    at: datetime,
    reason: str = "",
) -> CellRow | None:
    """Take one step of the state table, with its transition; return the changed row.

    Returns None, and changes nothing, if the cell is in this state or past it.

    Args:
        session: The caller's transaction.
        cell_id: The cell.
        state: The state to enter.
        also: Further columns of the cell to set.
        at: Now.
        reason: Why, for the transition.

    Raises:
        UnknownIdError: There is no such cell.
        IllegalTransitionError: No step leads from the cell's state to this one.
    """
    step = _step_into(state).values(also) if also else _step_into(state)
    told: dict[str, object] = {"of_cell": cell_id, "now": at}
    row = session.scalar(step, told, execution_options={"populate_existing": True})
    if row is None:
        cell = _cell(cell_row(session, cell_id))
        if not cell.has_reached(state) or state is CellState.QUEUED:
            cell.to(state, at=at)
        return None
    told = {"of_cell": row.pk, "now": at, "into": state, "because": reason}
    session.connection().execute(_ADD_TRANSITION, told)
    return row


def _tell_step(session: Session, row: CellRow, state: CellState) -> None:
    """Add the run event of a step; it takes the last lock of its transaction."""
    data: dict[str, object] = {"state": state.value}
    if state is CellState.DONE and row.outcome is not None:
        data["outcome"] = row.outcome.value
    tell(session, row.run_id, "cell", cell=row.name, data=data)


@cache
def _step_into(state: CellState) -> ReturningUpdate[CellRow]:
    """Return the statement of a step from any state that leads to this one; each is built once."""
    origins = [one for one, targets in TRANSITIONS.items() if state in targets]
    here = update(CellRow).where(CellRow.id == bindparam("of_cell"), CellRow.state.in_(origins))
    return here.values(state=state, entered_at=bindparam("now")).returning(CellRow)


def _blame(attempt: AttemptRow, cause: Cause) -> None:
    attempt.cause_outcome = cause.outcome
    attempt.cause_reason, attempt.cause_detail = cause.reason, cause.detail


def _cell(row: CellRow) -> Cell:
    return filled(Cell, row)


def _attempt(row: AttemptRow, cell_id: str) -> Attempt:
    cause = None
    if row.cause_outcome is not None:
        cause = Cause(row.cause_outcome, row.cause_reason, row.cause_detail)
    return filled(Attempt, row, cell_id=cell_id, cause=cause)
