"""Run events, numbered under the run row's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, func, insert, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import lock
from orchestrator.store.tables import RunEventRow, RunRow


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A pointer to something new in a run."""

    number: int
    """From 1, without gaps, in the order of commits."""
    kind: str
    """``cell``, ``evidence``, ``log``, ``run`` or ``report``."""
    cell: str
    """The cell's name, or empty."""
    data: Mapping[str, object] = field(default_factory=dict)


_LAST: ColumnElement[int] = func.coalesce(func.max(RunEventRow.number), 0)
_ADD = insert(RunEventRow).from_select(
    ["run_id", "number", "kind", "cell", "data"],
    select(
        RunRow.id,
        select(_LAST + 1).where(RunEventRow.run_id == RunRow.id).scalar_subquery(),
        bindparam("of_kind", type_=RunEventRow.kind.type),
        bindparam("in_cell", type_=RunEventRow.cell.type),
        bindparam("with_data", type_=RunEventRow.data.type),
    ).where(RunRow.id == bindparam("to_run")),
)
"""One event, with the number after the run's last one; nothing where there is no such run."""


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
    """Add events, each a kind with data, within the caller's transaction, as its last lock."""
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
            select(RunEventRow)
            .where(RunEventRow.run_id == run_id, RunEventRow.number > number)
            .order_by(RunEventRow.number)
            .limit(limit)
        )
        with self._sessions.read() as session:
            rows = session.scalars(query).all()
            return [RunEvent(row.number, row.kind, row.cell, row.data) for row in rows]

    def last(self, run_id: str) -> int:
        """Return the newest event's number; 0 without any."""
        with self._sessions.read() as session:
            return session.scalar(select(_LAST).where(RunEventRow.run_id == run_id)) or 0

    def add(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Append one event; not idempotent."""
        with self._sessions.write() as session:
            tell(session, run_id, kind, data=data)
