"""Tables of retest sessions, and of reused results."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.retests import RetestSession
from orchestrator.domain.reuse_inputs import Prepared
from orchestrator.store.column_types import Document, Name
from orchestrator.store.tables.shared_columns import (
    KeyAttempt,
    KeyCell,
    OfAttempt,
    OfRun,
    Pk,
    Table,
    UniqueId,
)


class AttemptEnvironmentRow(Table):
    """The reuse inputs that an attempt was prepared with."""

    __tablename__ = "attempt_environment"

    attempt: Mapped[KeyAttempt]
    document: Mapped[Prepared] = mapped_column(Document(Prepared))


class ReusableResultRow(Table):
    """A passed job with its reuse inputs."""

    __tablename__ = "reusable_result"
    __table_args__ = (
        Index("ix_reusable_result_requested", "requested_digest", "job", "produced_at"),
        Index(
            "ix_reusable_result_platform",
            "product",
            "platform",
            "environment",
            "job",
            "produced_at",
        ),
    )

    cell: Mapped[KeyCell]
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    attempt: Mapped[OfAttempt]
    """The attempt whose preparation it depends on."""
    requested_digest: Mapped[str] = mapped_column(Name)
    product: Mapped[str] = mapped_column(Name)
    platform: Mapped[str] = mapped_column(Name)
    environment: Mapped[str] = mapped_column(Name)
    produced_at: Mapped[datetime]


class CellReuseRow(Table):
    """The reuse decision for a job, made before its cell rented anything."""

    __tablename__ = "cell_reuse"

    cell: Mapped[KeyCell]
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    source: Mapped[int | None] = mapped_column(ForeignKey("cell.pk"))
    """The cell whose evidence is reused; NULL where the job runs."""
    produced_at: Mapped[datetime | None]
    reason: Mapped[str]
    decided_at: Mapped[datetime]


class RetestSessionRow(Table):
    """A retest session."""

    __tablename__ = "retest_session"
    __table_args__ = (UniqueConstraint("attempt", "key"),)

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    attempt: Mapped[OfAttempt]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    key: Mapped[str]
    document: Mapped[RetestSession] = mapped_column(Document(RetestSession))
