"""Which controllers live, by the database's own clock."""

from __future__ import annotations

from sqlalchemy import delete, select

from orchestrator.adapters.db.sessions import Sessions
from orchestrator.adapters.db.statements import changed, database_time_s, insert_into
from orchestrator.adapters.db.tables import ControllerRow


class DbControllers:
    """The ControllerStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def beat(self, controller_id: str) -> None:
        """Say that it lives now."""
        with self._sessions.write() as session:
            insert = insert_into(session, ControllerRow)
            row = {"id": controller_id, "seen_s": database_time_s(session)}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["id"], set_={"seen_s": insert.excluded.seen_s}
            )
            session.execute(statement)

    def dead(self, *, grace_s: float) -> list[str]:
        """Ids that were last heard of longer ago than the grace."""
        with self._sessions.read() as session:
            long_ago = ControllerRow.seen_s < database_time_s(session) - grace_s
            query = select(ControllerRow.id).where(long_ago).order_by(ControllerRow.id)
            return list(session.scalars(query))

    def bury(self, controller_id: str, *, grace_s: float) -> bool:
        """Forget it if it is dead; True for exactly one caller."""
        with self._sessions.write() as session:
            long_ago = ControllerRow.seen_s < database_time_s(session) - grace_s
            dead = delete(ControllerRow).where(ControllerRow.id == controller_id, long_ago)
            return changed(session, dead) == 1

    def leave(self, controller_id: str) -> None:
        """Forget oneself."""
        with self._sessions.write() as session:
            changed(session, delete(ControllerRow).where(ControllerRow.id == controller_id))
