"""What people wrote for the reports of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.domain.ingested import Statement
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into
from orchestrator.store.tables import StatementRow


class StatementStore:
    """What people wrote for the reports of a run."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, run_id: str, statements: Sequence[Statement]) -> None:
        """Append; the very same statement is kept once."""
        if statements:
            with self._sessions.write() as session:
                keep_statements(session, run_id, statements)

    def of_run(self, run_id: str) -> tuple[Statement, ...]:
        """In the order they were added."""
        query = select(StatementRow.document).where(StatementRow.run_id == run_id)
        with self._sessions.read() as session:
            return tuple(session.scalars(query.order_by(StatementRow.pk)))


def keep_statements(session: Session, run_id: str, statements: Sequence[Statement]) -> None:
    """Append, within the caller's transaction, those that are not there."""
    rows = [
        {"run_id": run_id, "digest": _digest(run_id, one), "document": one} for one in statements
    ]
    if rows:
        session.execute(insert_into(session, StatementRow).on_conflict_do_nothing(), rows)


def _digest(run_id: str, statement: Statement) -> str:
    said = json.dumps([run_id, asdict(statement)], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()
