"""What was not produced by our agent: ingested cells, and what people wrote."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.ingested import Ingested, Statement
from orchestrator.store.column_types import Document
from orchestrator.store.tables.shared_columns import KeyCell, OfRun, Pk, Table, UniqueId


class IngestRow(Table):
    """An ingested cell, and what it was made from."""

    __tablename__ = "ingest"

    cell: Mapped[KeyCell]
    fingerprint: Mapped[UniqueId]
    document: Mapped[Ingested] = mapped_column(Document(Ingested))


class StatementRow(Table):
    """Something that a person wrote for the reports of a run."""

    __tablename__ = "statement"

    pk: Mapped[Pk]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    digest: Mapped[UniqueId]
    """Of the run and the statement: the very same one is kept once."""
    document: Mapped[Statement] = mapped_column(Document(Statement))
