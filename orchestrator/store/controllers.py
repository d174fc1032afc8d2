"""Liveness of controllers, by the database's clock."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, select, update

from orchestrator.store.sessions import UNMARKED, Sessions
from orchestrator.store.sql import changed, database_time_s, insert_into
from orchestrator.store.tables import ControllerRow


class ControllerStore:
    """Heartbeats of controllers, so that a dead one's cells are taken over."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def beat(self, controller_id: str) -> None:
        """Store a heartbeat at the database's clock."""
        with self._sessions.write() as session:
            insert = insert_into(session, ControllerRow)
            row = {"id": controller_id, "last_seen_s": database_time_s(session)}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["id"], set_={"last_seen_s": insert.excluded.last_seen_s}
            )
            session.execute(statement.execution_options(**UNMARKED))

    def dead(self, *, grace_s: float) -> list[str]:
        """Return ids whose last heartbeat is older than the grace period."""
        with self._sessions.read() as session:
            long_ago = ControllerRow.last_seen_s < database_time_s(session) - grace_s
            query = select(ControllerRow.id).where(long_ago).order_by(ControllerRow.id)
            return list(session.scalars(query))

    def claim(self, controller_id: str, *, grace_s: float) -> bool:
        """Take over from a dead controller; True for exactly one of concurrent callers.

        The caller must call `leave` within `grace_s` seconds; later another controller may claim.
        """
        with self._sessions.write() as session:
            now_s = database_time_s(session)
            dead = (ControllerRow.id == controller_id, ControllerRow.last_seen_s < now_s - grace_s)
            return (
                changed(session, update(ControllerRow).where(*dead).values(last_seen_s=now_s)) == 1
            )

    def note(self, controller_ids: Iterable[str]) -> None:
        """Register controllers without heartbeat as dead; existing ones are unchanged."""
        rows = [{"id": controller_id, "last_seen_s": 0.0} for controller_id in controller_ids]
        if rows:
            with self._sessions.write() as session:
                insert = insert_into(session, ControllerRow).values(rows)
                session.execute(insert.on_conflict_do_nothing())

    def leave(self, controller_id: str) -> None:
        """Delete a controller whose work is taken over."""
        with self._sessions.write() as session:
            changed(session, delete(ControllerRow).where(ControllerRow.id == controller_id))
