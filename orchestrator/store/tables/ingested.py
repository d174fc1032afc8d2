"""What was not produced by our agent: ingested cells, and what people wrote."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.ingested import Ingested, RunAnnotation
from orchestrator.store.column_types import Document
from orchestrator.store.tables.shared_columns import KeyCell, OfRun, Pk, Table, UniqueId


class IngestRow(Table):
    """An ingested cell, and what it was made from."""

    __tablename__ = "ingest"

    cell: Mapped[KeyCell]
    fingerprint: Mapped[UniqueId]
    document: Mapped[Ingested] = mapped_column(Document(Ingested))


class AnnotationRow(Table):
    """Something that a person wrote for the reports of a run."""

    __tablename__ = "annotation"

    pk: Mapped[Pk]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    digest: Mapped[UniqueId]
    """Of the run and the annotation: the very same one is kept once."""
    document: Mapped[RunAnnotation] = mapped_column(Document(RunAnnotation))
