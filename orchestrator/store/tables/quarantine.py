"""Flaky tests whose failures are excused for a while."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.store.column_types import Document
from orchestrator.store.tables.shared_columns import Pk, Table


class QuarantineRow(Table):
    """A quarantine."""

    __tablename__ = "quarantine"

    pk: Mapped[Pk]
    product: Mapped[str] = mapped_column(index=True)
    document: Mapped[Quarantine] = mapped_column(Document(Quarantine))
