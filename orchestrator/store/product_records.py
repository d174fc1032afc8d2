"""Stores known issues and quarantines, which are ended and never deleted."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import select

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, PageAsked
from orchestrator.store.tables import KnownIssueRow, QuarantineRow

R = TypeVar("R", KnownIssue, Quarantine)


class ProductRecordStore(Generic[R]):
    """Stores one kind of a product's records, which are never deleted.

    Each method is one transaction.
    """

    _table: ClassVar[type[Any]]
    _prefix: ClassVar[str]
    """Letters before the number in an id, such as ``KI`` in ``KI-0001``."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, record: R) -> R:
        """Store a record under a new id, and return it with the id. Not idempotent."""
        with self._sessions.write() as session:
            row = self._table(product=record.product, document=replace(record, id=""))
            session.add(row)
            session.flush()
            return self._read(row)

    def list(
        self, *, product: str | None = None, page: PageAsked[int] | None = None
    ) -> ListPage[R, int]:
        """Return records in the order of their ids, including ended ones."""
        query = select(self._table)
        if product is not None:
            query = query.where(self._table.product == product)
        return self._sessions.page(query, self._table.pk, page).each(self._read)

    def end(self, record_id: str, *, at: datetime, by: str) -> R | None:
        """End a record and return it, or None for an unknown id; an ended record is unchanged."""
        number = re.fullmatch(rf"{self._prefix}-0*([1-9][0-9]{{0,8}})", record_id)
        if number is None:
            return None
        with self._sessions.write() as session:
            row = session.get(self._table, int(number[1]), with_for_update=True)
            if row is None:
                return None
            if row.document.ended_at is None:
                row.document = replace(row.document, ended_at=at, ended_by=by)
                session.flush()
            return self._read(row)

    def _read(self, row: Any) -> R:  # noqa: ANN401 - of either table
        record: R = replace(row.document, id=f"{self._prefix}-{row.pk:04d}")
        return record


class KnownIssueStore(ProductRecordStore[KnownIssue]):
    """Stores known issues; their ids are ``KI-0001`` and so on."""

    _table, _prefix = KnownIssueRow, "KI"


class QuarantineStore(ProductRecordStore[Quarantine]):
    """Stores quarantines; their ids are ``Q-0001`` and so on."""

    _table, _prefix = QuarantineRow, "Q"
