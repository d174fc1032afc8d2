"""Tables of history over runs: signatures, aliases, known issues, quarantines."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.failure_signature import Signature
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.node_ids import AliasState, NameChange
from orchestrator.store.column_types import DocumentColumn, OneOf
from orchestrator.store.tables.shared_columns import Id, Pk, TableBase, table_of


class ProductRecordRow(TableBase):
    """Columns of a product's records that end and are never deleted."""

    __abstract__ = True

    pk: Mapped[Pk]
    product: Mapped[str] = mapped_column(index=True)


class QuarantineRow(ProductRecordRow):
    """A quarantine."""

    __tablename__ = "quarantine"

    document: Mapped[Quarantine] = mapped_column(DocumentColumn(Quarantine))


SIGNATURES = table_of("signature", Signature, ("id",), Column("version", Integer, nullable=False))
"""Signatures of failures, each with the version of the algorithm."""


class SignatureSuccessorRow(TableBase):
    """The new signature of failures after a change of the algorithm."""

    __tablename__ = "signature_successor"

    old: Mapped[Id]
    new: Mapped[Id]


class TestRetryRow(TableBase):
    """Earlier tries of a retried test; kept apart, since few tests have any."""

    __tablename__ = "test_retry"
    __test__ = False
    __table_args__ = ({"sqlite_with_rowid": False},)

    cell: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    test_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    earlier: Mapped[str]
    """Outcomes before the last one, comma-separated."""


class TestAliasRow(TableBase):
    """An alias: two names that may be one test."""

    __tablename__ = "test_alias"
    __test__ = False
    __table_args__ = (
        UniqueConstraint("old_test", "new_test"),
        Index(
            "uq_test_alias_confirmed",
            "old_test",
            unique=True,
            postgresql_where=text("state = 'confirmed'"),
            sqlite_where=text("state = 'confirmed'"),
        ),
    )

    id: Mapped[Pk]
    product: Mapped[str] = mapped_column(index=True)
    old_test: Mapped[int] = mapped_column(ForeignKey("test_case.id"))
    new_test: Mapped[int] = mapped_column(ForeignKey("test_case.id"))
    change: Mapped[NameChange] = mapped_column(OneOf(NameChange))
    similarity: Mapped[float]
    state: Mapped[AliasState] = mapped_column(OneOf(AliasState))
    suggested_at: Mapped[datetime]
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str]


class KnownIssueRow(ProductRecordRow):
    """A known issue."""

    __tablename__ = "known_issue"

    document: Mapped[KnownIssue] = mapped_column(DocumentColumn(KnownIssue))
