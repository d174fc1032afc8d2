"""Tables of schedules and their firings, and of notifications to send."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.schedule import Firing, FiringState, Schedule
from orchestrator.store.column_types import DocumentColumn, Name, OneOf
from orchestrator.store.tables.shared_columns import Id, Pk, TableBase


class ScheduleRow(TableBase):
    """A schedule."""

    __tablename__ = "schedule"

    name: Mapped[Id]
    document: Mapped[Schedule] = mapped_column(DocumentColumn(Schedule))
    next_due_at: Mapped[datetime | None] = mapped_column(index=True)
    """None while it is paused."""


class FiringRow(TableBase):
    """A firing: one due time of a schedule. Its claimant advances it."""

    __tablename__ = "firing"
    __table_args__ = (
        UniqueConstraint("schedule", "due_at"),
        Index(
            "ix_firing_open",
            "due_at",
            postgresql_where=text("state <> 'notified'"),
            sqlite_where=text("state <> 'notified'"),
        ),
    )

    pk: Mapped[Pk]
    schedule: Mapped[str] = mapped_column(Name, ForeignKey("schedule.name"))
    due_at: Mapped[datetime]
    state: Mapped[FiringState] = mapped_column(OneOf(FiringState))
    superseded: Mapped[bool]
    """Kept outside of the document, since others than its claimant write it."""
    claimed_by: Mapped[str]
    """Empty without a claim."""
    claim_expires_s: Mapped[float]
    """Seconds of the database's clock."""
    document: Mapped[Firing] = mapped_column(DocumentColumn(Firing))
