"""Failed tests run again on their machine, and who else was asked."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.retests import RetestSession
from orchestrator.store.column_types import Document
from orchestrator.store.tables.shared_columns import (
    KeyAttempt,
    KeyRun,
    OfAttempt,
    OfRun,
    Pk,
    Table,
    UniqueId,
)


class RetestSessionRow(Table):
    """One start of the agent for retests."""

    __tablename__ = "retest_session"
    __table_args__ = (UniqueConstraint("attempt", "key"),)

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    attempt: Mapped[OfAttempt]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    key: Mapped[str]
    document: Mapped[RetestSession] = mapped_column(Document(RetestSession))


class RetestReleaseRow(Table):
    """Nobody asks for more retests of an attempt."""

    __tablename__ = "retest_release"

    attempt: Mapped[KeyAttempt]
    at: Mapped[datetime]


class ConfirmationRunRow(Table):
    """The run that repeats another one's failures on another machine."""

    __tablename__ = "confirmation_run"

    run_id: Mapped[KeyRun]
    second: Mapped[str]
