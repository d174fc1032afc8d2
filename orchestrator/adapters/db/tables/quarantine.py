"""Flaky tests whose failures are excused for a while."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.adapters.db.column_types import Document
from orchestrator.adapters.db.tables.shared_columns import Pk, Table
from orchestrator.domain.gate.snapshot import Quarantine


class QuarantineRow(Table):
    """A quarantine."""

    __tablename__ = "quarantine"

    pk: Mapped[Pk]
    product: Mapped[str] = mapped_column(index=True)
    document: Mapped[Quarantine] = mapped_column(Document(Quarantine))
