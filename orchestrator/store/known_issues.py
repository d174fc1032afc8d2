"""Known issues."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select

from orchestrator.domain.known_issue import KnownIssue
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import KnownIssueRow

_ID = re.compile(r"KI-0*([1-9][0-9]{0,8})")


class KnownIssueStore:
    """Known issues; none is ever deleted."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, issue: KnownIssue) -> KnownIssue:
        """Store an issue under a new id; the given id is ignored."""
        with self._sessions.write() as session:
            row = KnownIssueRow(product=issue.product, document=replace(issue, id=""))
            session.add(row)
            session.flush()
            return _issue(row)

    def list(self, *, product: str | None = None) -> list[KnownIssue]:
        """Return issues by id."""
        query = select(KnownIssueRow).order_by(KnownIssueRow.pk)
        if product is not None:
            query = query.where(KnownIssueRow.product == product)
        with self._sessions.read() as session:
            return [_issue(row) for row in session.scalars(query)]

    def end(self, issue_id: str, *, at: datetime, by: str) -> KnownIssue | None:
        """End an issue now; idempotent. None for an unknown issue."""
        number = _ID.fullmatch(issue_id)
        if number is None:
            return None
        with self._sessions.write() as session:
            row = session.get(KnownIssueRow, int(number[1]), with_for_update=True)
            if row is None:
                return None
            if row.document.ended_at is None:
                row.document = replace(row.document, ended_at=at, ended_by=by)
                session.flush()
            return _issue(row)


def _issue(row: KnownIssueRow) -> KnownIssue:
    return replace(row.document, id=f"KI-{row.pk:04d}")
