"""Which jobs are proven by what, and flaky tests in quarantine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "prepared",
        sa.Column("attempt", INTEGER, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.pk"], name="fk_prepared_attempt"),
        sa.PrimaryKeyConstraint("attempt", name="pk_prepared"),
    )
    words = ("asked", "product", "platform", "environment")
    op.create_table(
        "proof",
        sa.Column("cell", INTEGER, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("attempt", INTEGER, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in words),
        sa.Column("produced_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["cell"], ["cell.pk"], name="fk_proof_cell"),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.pk"], name="fk_proof_attempt"),
        sa.PrimaryKeyConstraint("cell", "job", name="pk_proof"),
    )
    op.create_index("ix_proof_asked", "proof", ["asked", "job", "produced_at"])
    where = ["product", "platform", "environment", "job", "produced_at"]
    op.create_index("ix_proof_platform", "proof", where)
    op.create_table(
        "cell_reuse",
        sa.Column("cell", INTEGER, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("source", INTEGER, nullable=True),
        sa.Column("produced_at", TIME, nullable=True),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("decided_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["cell"], ["cell.pk"], name="fk_cell_reuse_cell"),
        sa.ForeignKeyConstraint(["source"], ["cell.pk"], name="fk_cell_reuse_source"),
        sa.PrimaryKeyConstraint("cell", "job", name="pk_cell_reuse"),
    )
    op.create_table(
        "quarantine",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("product", TEXT, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_quarantine"),
    )
    op.create_index("ix_quarantine_product", "quarantine", ["product"])


def downgrade() -> None:
    """Drop them."""
    for table in ("quarantine", "cell_reuse", "proof", "prepared"):
        op.drop_table(table)
