"""More executions of failed tests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "trial_sitting",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("attempt", INTEGER, nullable=False),
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.pk"], name="fk_trial_sitting_attempt"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_trial_sitting_run_id"),
        sa.PrimaryKeyConstraint("pk", name="pk_trial_sitting"),
        sa.UniqueConstraint("attempt", "key", name="uq_trial_sitting_attempt_key"),
        sa.UniqueConstraint("id", name="uq_trial_sitting_id"),
    )
    op.create_index("ix_trial_sitting_run_id", "trial_sitting", ["run_id"])
    op.create_table(
        "trial_dismissal",
        sa.Column("attempt", INTEGER, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.pk"], name="fk_trial_dismissal_attempt"),
        sa.PrimaryKeyConstraint("attempt", name="pk_trial_dismissal"),
    )
    op.create_table(
        "second_run",
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("second", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_second_run_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_second_run"),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("second_run", "trial_dismissal", "trial_sitting"):
        op.drop_table(table)
