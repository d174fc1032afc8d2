"""Ingested cells."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from orchestrator.adapters.db.sessions import Sessions
from orchestrator.adapters.db.tables import CellRow, IngestRow
from orchestrator.domain.ingested import Ingested


class DbIngests:
    """The IngestStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_run(self, run_id: str) -> Mapping[str, Ingested]:
        """By cell id."""
        query = (
            select(CellRow.id, IngestRow.document)
            .join(IngestRow, IngestRow.cell == CellRow.pk)
            .where(CellRow.run_id == run_id)
        )
        with self._sessions.read() as session:
            return dict(session.execute(query).tuples())
