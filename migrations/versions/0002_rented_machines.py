"""Rented machines: offers, keys, attestations, decisions, sightings, prices."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
MONEY = sa.Numeric().with_variant(sa.Text(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
TIME = sa.DateTime(timezone=True)
INTEGER = sa.Integer()
FLAG = sa.Boolean()

_TABLES = ("lease_login", "attestation", "decision", "sighting", "price")


def upgrade() -> None:
    """Let leases say more, and add what rented machines need."""
    op.add_column("lease", sa.Column("offer", TEXT, nullable=True))
    op.add_column("lease", sa.Column("facts", JSON, nullable=True))
    simulated = sa.Column("simulated", FLAG, nullable=False, server_default=sa.false())
    op.add_column("lease", simulated)
    only = sa.text("refusal <> ''")
    op.create_index(
        "ix_lease_refused",
        "lease",
        ["provider", "gone_at"],
        postgresql_where=only,
        sqlite_where=only,
    )
    _of_lease("lease_login", "login")
    _of_lease("attestation", "document")
    _decision()
    _sighting()
    _price()


def _needed(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, autoincrement=False) for name in names]


def _of_lease(table: str, document: str) -> None:
    op.create_table(
        table,
        *_needed(INTEGER, "lease"),
        *_needed(TEXT, document),
        sa.ForeignKeyConstraint(["lease"], ["lease.pk"], name=f"fk_{table}_lease"),
        sa.PrimaryKeyConstraint("lease", name=f"pk_{table}"),
    )


def _decision() -> None:
    said_once = ("attempt", "place", "verdict", "reason")
    op.create_table(
        "decision",
        *_needed(INTEGER, "attempt", "number"),
        *_needed(TIME, "at"),
        *_needed(NAME, "place"),
        *_needed(TEXT, "verdict"),
        *_needed(NAME, "reason"),
        *_needed(TEXT, "detail"),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.pk"], name="fk_decision_attempt"),
        sa.PrimaryKeyConstraint("attempt", "number", name="pk_decision"),
        sa.UniqueConstraint(*said_once, name=f"uq_decision_{'_'.join(said_once)}"),
    )


def _sighting() -> None:
    op.create_table(
        "sighting",
        *_needed(NAME, "provider", "machine_id"),
        *_needed(TIME, "first_seen"),
        sa.PrimaryKeyConstraint("provider", "machine_id", name="pk_sighting"),
    )


def _price() -> None:
    thing = ("provider", "item", "place", "market")
    op.create_table(
        "price",
        *_needed(NAME, *thing),
        *_needed(MONEY, "usd_per_hour"),
        *_needed(TIME, "as_of"),
        *_needed(TEXT, "source"),
        sa.PrimaryKeyConstraint(*thing, name="pk_price"),
    )


def downgrade() -> None:
    """Forget all of it."""
    for table in reversed(_TABLES):
        op.drop_table(table)
    op.drop_index("ix_lease_refused", "lease")
    for column in ("simulated", "facts", "offer"):
        op.drop_column("lease", column)
