"""Which controllers live, by the database's own clock."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, select, update

from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, database_time_s, insert_into
from orchestrator.store.tables import ControllerRow


class ControllerStore:
    """Which controllers live, so that a dead one's cells are taken over."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def beat(self, controller_id: str) -> None:
        """Say that it lives now, by the database's clock."""
        with self._sessions.write() as session:
            insert = insert_into(session, ControllerRow)
            row = {"id": controller_id, "last_seen_s": database_time_s(session)}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["id"], set_={"last_seen_s": insert.excluded.last_seen_s}
            )
            session.execute(statement)

    def dead(self, *, grace_s: float) -> list[str]:
        """Ids that were last heard of longer ago than the grace."""
        with self._sessions.read() as session:
            long_ago = ControllerRow.last_seen_s < database_time_s(session) - grace_s
            query = select(ControllerRow.id).where(long_ago).order_by(ControllerRow.id)
            return list(session.scalars(query))

    def claim(self, controller_id: str, *, grace_s: float) -> bool:
        """Take over from a dead one; True for exactly one of those who try at once.

        Whoever did so has the grace for it, then says `leave`; else the next one may.
        """
        with self._sessions.write() as session:
            now_s = database_time_s(session)
            dead = (ControllerRow.id == controller_id, ControllerRow.last_seen_s < now_s - grace_s)
            return (
                changed(session, update(ControllerRow).where(*dead).values(last_seen_s=now_s)) == 1
            )

    def note(self, controller_ids: Iterable[str]) -> None:
        """Count those that never said anything as dead; the others are left as they are."""
        rows = [{"id": controller_id, "last_seen_s": 0.0} for controller_id in controller_ids]
        if rows:
            with self._sessions.write() as session:
                insert = insert_into(session, ControllerRow).values(rows)
                session.execute(insert.on_conflict_do_nothing())

    def leave(self, controller_id: str) -> None:
        """Forget it: its work is in other hands."""
        with self._sessions.write() as session:
            changed(session, delete(ControllerRow).where(ControllerRow.id == controller_id))
