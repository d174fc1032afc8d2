"""Schedules and their firings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)
OPEN = sa.text("state <> 'told'")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "schedule",
        sa.Column("name", NAME, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.Column("next_due_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_schedule"),
    )
    op.create_index("ix_schedule_next_due_at", "schedule", ["next_due_at"])
    op.create_table(
        "firing",
        sa.Column("pk", sa.Integer(), nullable=False),
        sa.Column("schedule", NAME, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("holder", TEXT, nullable=False),
        sa.Column("held_until_s", sa.Float(53), nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["schedule"], ["schedule.name"], name="fk_firing_schedule"),
        sa.PrimaryKeyConstraint("pk", name="pk_firing"),
        sa.UniqueConstraint("schedule", "due_at", name="uq_firing_schedule_due_at"),
    )
    op.create_index(
        "ix_firing_open", "firing", ["due_at"], postgresql_where=OPEN, sqlite_where=OPEN
    )


def downgrade() -> None:
    """Forget all of it."""
    op.drop_table("firing")
    op.drop_table("schedule")
