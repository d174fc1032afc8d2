"""Tables of schedules and their firings, and of notifications to send."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.channel import Channel, DeliveryResult, DeliveryState, News
from orchestrator.domain.schedule import Firing, FiringState, Schedule
from orchestrator.store.column_types import Document, Name, OneOf
from orchestrator.store.tables.shared_columns import Id, Pk, Table, UniqueId


class ScheduleRow(Table):
    """A schedule."""

    __tablename__ = "schedule"

    name: Mapped[Id]
    document: Mapped[Schedule] = mapped_column(Document(Schedule))
    next_due_at: Mapped[datetime | None] = mapped_column(index=True)
    """None while it is paused."""


class FiringRow(Table):
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
    claim_expires_s: Mapped[float] = mapped_column(Float(53))
    """Seconds of the database's clock."""
    document: Mapped[Firing] = mapped_column(Document(Firing))


_WAITING = text("state = 'waiting'")


class LineageStateRow(Table):
    """The last announced state of a lineage, or of a commit in a channel."""

    __tablename__ = "lineage_state"

    name: Mapped[Id]
    """``line:<lineage>``, or ``commit:<channel>:<sha>:<gate>``."""
    state: Mapped[str]
    """Empty before the first announcement."""
    since: Mapped[datetime]
    evaluated_at: Mapped[datetime | None]
    """Time of the newest announced verdict."""


class AnnouncementRow(Table):
    """The key of an announcement, whether or not it changed its lineage's state."""

    __tablename__ = "announcement"

    key: Mapped[Id]
    lineage: Mapped[str]
    state: Mapped[str]
    is_news: Mapped[bool]
    at: Mapped[datetime]


class ChannelRow(Table):
    """A notification channel."""

    __tablename__ = "channel"

    id: Mapped[Id]
    name: Mapped[UniqueId]
    channel: Mapped[Channel] = mapped_column(Document(Channel))
    created_at: Mapped[datetime]
    failing_since: Mapped[datetime | None]
    last_success_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str] = mapped_column(default="")


class DeliveryRow(Table):
    """A delivery of an announcement to a channel."""

    __tablename__ = "delivery"
    __table_args__ = (
        Index("ix_delivery_due", "due_at", postgresql_where=_WAITING, sqlite_where=_WAITING),
        Index(
            "ix_delivery_order",
            "channel",
            "subject",
            "pk",
            postgresql_where=_WAITING,
            sqlite_where=_WAITING,
        ),
    )

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    channel: Mapped[str] = mapped_column(Name, ForeignKey("channel.id"), index=True)
    subject: Mapped[str] = mapped_column(Name)
    """Deliveries of one subject reach a channel in their order."""
    news: Mapped[News] = mapped_column(Document(News))
    state: Mapped[DeliveryState] = mapped_column(OneOf(DeliveryState))
    created_at: Mapped[datetime]
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime]
    done_at: Mapped[datetime | None]
    is_test: Mapped[bool] = mapped_column(default=False)
    claimed_until_s: Mapped[float | None] = mapped_column(Float(53))
    """Seconds of the database's clock."""


class DeliveryAttemptRow(Table):
    """An entry of the delivery log."""

    __tablename__ = "delivery_attempt"

    delivery: Mapped[int] = mapped_column(Integer, ForeignKey("delivery.pk"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    result: Mapped[DeliveryResult] = mapped_column(OneOf(DeliveryResult))
    status: Mapped[int | None]
    response_excerpt: Mapped[str]
    seconds: Mapped[float] = mapped_column(Float(53))
