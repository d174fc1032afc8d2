"""Run events, numbered under the run row's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
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
    last = session.scalar(
        update(RunRow)
        .where(RunRow.id == run_id)
        .values(event_seq=RunRow.event_seq + len(news))
        .returning(RunRow.event_seq),
        execution_options={"synchronize_session": False},
    )
    if last is None:
        raise UnknownIdError("run", run_id)
    rows = [
        {"run_id": run_id, "number": number, "kind": kind, "cell": cell, "data": dict(data)}
        for number, (kind, data) in enumerate(news, start=last - len(news) + 1)
    ]
    session.execute(insert(RunEventRow).values(rows))


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
            newest = select(RunRow.event_seq).where(RunRow.id == run_id)
            return session.scalar(newest) or 0

    def add(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Append one event; not idempotent."""
        with self._sessions.write() as session:
            tell(session, run_id, kind, data=data)
