"""Tables of notifications: channels, announcements and their deliveries."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.channel import Channel, DeliveryResult, DeliveryState, News
from orchestrator.store.column_types import DocumentColumn, Name, OneOf
from orchestrator.store.tables.shared_columns import Id, Pk, TableBase, UniqueId

_WAITING = text("state = 'waiting'")


class LineageStateRow(TableBase):
    """The last announced state of a lineage, or of a commit in a channel."""

    __tablename__ = "lineage_state"

    name: Mapped[Id]
    """``line:<lineage>``, or ``commit:<channel>:<sha>:<gate>``."""
    state: Mapped[str]
    """The last announced state; empty before the first announcement."""
    since: Mapped[datetime]
    evaluated_at: Mapped[datetime | None]
    """Time of the newest announced verdict."""


class AnnouncementRow(TableBase):
    """The key of an announcement, also of one that changed no lineage's state."""

    __tablename__ = "announcement"

    key: Mapped[Id]
    lineage: Mapped[str]
    state: Mapped[str]
    is_news: Mapped[bool]
    at: Mapped[datetime]


class ChannelRow(TableBase):
    """A notification channel."""

    __tablename__ = "channel"

    id: Mapped[Id]
    name: Mapped[UniqueId]
    channel: Mapped[Channel] = mapped_column(DocumentColumn(Channel))
    created_at: Mapped[datetime]
    failing_since: Mapped[datetime | None]
    last_success_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str] = mapped_column(default="")


class DeliveryRow(TableBase):
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
    news: Mapped[News] = mapped_column(DocumentColumn(News))
    state: Mapped[DeliveryState] = mapped_column(OneOf(DeliveryState))
    created_at: Mapped[datetime]
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime]
    done_at: Mapped[datetime | None]
    is_test: Mapped[bool] = mapped_column(default=False)
    claimed_until_s: Mapped[float | None]
    """End of the claim, in seconds by the database's clock; NULL without a claim."""


class DeliveryAttemptRow(TableBase):
    """An entry of the delivery log."""

    __tablename__ = "delivery_attempt"

    delivery: Mapped[int] = mapped_column(Integer, ForeignKey("delivery.pk"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    result: Mapped[DeliveryResult] = mapped_column(OneOf(DeliveryResult))
    status: Mapped[int | None]
    response_excerpt: Mapped[str]
    seconds: Mapped[float]
