"""Machines of providers without a cloud."""

from __future__ import annotations

from sqlalchemy import delete, select

from orchestrator.domain.machine import Machine
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into
from orchestrator.store.tables import StaticHostRow


class StaticHostStore:
    """Machines of providers without a cloud."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def write(self, provider: str, machine: Machine) -> None:
        """Insert or replace a machine."""
        with self._sessions.write() as session:
            insert = insert_into(session, StaticHostRow)
            row = {"provider": provider, "id": machine.id, "machine": machine}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["provider", "id"], set_={"machine": insert.excluded.machine}
            )
            session.execute(statement)

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """Return the machine, or None."""
        with self._sessions.read() as session:
            row = session.get(StaticHostRow, (provider, machine_id))
            return row.machine if row else None

    def erase(self, provider: str, machine_id: str) -> None:
        """Delete a machine; no error where it is unknown."""
        mine = (StaticHostRow.provider == provider, StaticHostRow.id == machine_id)
        with self._sessions.write() as session:
            changed(session, delete(StaticHostRow).where(*mine))

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Return every machine of the provider, by id."""
        query = (
            select(StaticHostRow)
            .where(StaticHostRow.provider == provider)
            .order_by(StaticHostRow.id)
        )
        with self._sessions.read() as session:
            return tuple(row.machine for row in session.scalars(query))
