"""Quarantines of flaky tests."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import QuarantineRow

_ID = re.compile(r"Q-0*([1-9][0-9]{0,8})")


class QuarantineStore:
    """Quarantines; none is ever deleted.

    Each method is one transaction.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, quarantine: Quarantine) -> Quarantine:
        """Store a quarantine under a new id; the given id is ignored. Not idempotent."""
        with self._sessions.write() as session:
            document = replace(quarantine, id="")
            row = QuarantineRow(product=quarantine.product, document=document)
            session.add(row)
            session.flush()
            return _quarantine(row)

    def list(self, *, product: str | None = None) -> list[Quarantine]:
        """Return quarantines by id, expired ones included."""
        query = select(QuarantineRow).order_by(QuarantineRow.pk)
        if product is not None:
            query = query.where(QuarantineRow.product == product)
        with self._sessions.read() as session:
            return [_quarantine(row) for row in session.scalars(query)]

    def end(self, quarantine_id: str, *, at: datetime, by: str) -> Quarantine | None:
        """End a quarantine; the first end is kept. None for an unknown one."""
        number = _ID.fullmatch(quarantine_id)
        if number is None:
            return None
        with self._sessions.write() as session:
            row = session.get(QuarantineRow, int(number[1]), with_for_update=True)
            if row is None:
                return None
            if row.document.ended_at is None:
                row.document = replace(row.document, ended_at=at, ended_by=by)
                session.flush()
            return _quarantine(row)


def _quarantine(row: QuarantineRow) -> Quarantine:
    return replace(row.document, id=f"Q-{row.pk:04d}")
