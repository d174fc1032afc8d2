"""Whom to tell, and what has not reached them yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
TIME = sa.DateTime(timezone=True)
SECONDS = sa.Float(53)
WAITING = sa.text("state = 'waiting'")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "standing",
        sa.Column("name", NAME, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_standing"),
    )
    op.create_table(
        "announcement",
        sa.Column("key", NAME, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("lineage", "state")),
        sa.Column("is_news", sa.Boolean(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_announcement"),
    )
    op.create_table(
        "channel",
        *(sa.Column(name, NAME, nullable=False) for name in ("id", "name")),
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        *(sa.Column(name, TIME) for name in ("failing_since", "last_ok_at", "disabled_at")),
        sa.Column("disabled_why", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_channel"),
        sa.UniqueConstraint("name", name="uq_channel_name"),
    )
    _add_deliveries()


def _add_deliveries() -> None:
    op.create_table(
        "delivery",
        sa.Column("pk", INTEGER, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in ("id", "channel", "subject")),
        *(sa.Column(name, TEXT, nullable=False) for name in ("news", "state")),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("attempts", INTEGER, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("done_at", TIME),
        sa.Column("is_test", sa.Boolean(), nullable=False),
        sa.Column("claimed_until_s", SECONDS),
        sa.ForeignKeyConstraint(["channel"], ["channel.id"], name="fk_delivery_channel"),
        sa.PrimaryKeyConstraint("pk", name="pk_delivery"),
        sa.UniqueConstraint("id", name="uq_delivery_id"),
    )
    op.create_index("ix_delivery_channel", "delivery", ["channel"])
    for name, columns in (
        ("ix_delivery_due", ["due_at"]),
        ("ix_delivery_order", ["channel", "subject", "pk"]),
    ):
        op.create_index(name, "delivery", columns, postgresql_where=WAITING, sqlite_where=WAITING)
    op.create_table(
        "delivery_attempt",
        sa.Column("delivery", INTEGER, nullable=False),
        sa.Column("number", INTEGER, nullable=False, autoincrement=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("reception", TEXT, nullable=False),
        sa.Column("status", INTEGER),
        sa.Column("said", TEXT, nullable=False),
        sa.Column("seconds", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(["delivery"], ["delivery.pk"], name="fk_delivery_attempt_delivery"),
        sa.PrimaryKeyConstraint("delivery", "number", name="pk_delivery_attempt"),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("delivery_attempt", "delivery", "channel", "announcement", "standing"):
        op.drop_table(table)
