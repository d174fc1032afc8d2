"""Foreign evidence: ingested cells, tests that are only counted, what people wrote."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()


def upgrade() -> None:
    """Add what is known of evidence that our agent did not produce."""
    op.add_column("job_result", sa.Column("unnamed", TEXT, nullable=True))
    op.create_table(
        "ingest",
        sa.Column("cell", INTEGER, nullable=False, autoincrement=False),
        sa.Column("fingerprint", NAME, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["cell"], ["cell.pk"], name="fk_ingest_cell"),
        sa.PrimaryKeyConstraint("cell", name="pk_ingest"),
        sa.UniqueConstraint("fingerprint", name="uq_ingest_fingerprint"),
    )
    op.create_table(
        "statement",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("digest", NAME, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_statement_run_id"),
        sa.PrimaryKeyConstraint("pk", name="pk_statement"),
        sa.UniqueConstraint("digest", name="uq_statement_digest"),
    )
    op.create_index("ix_statement_run_id", "statement", ["run_id"])


def downgrade() -> None:
    """Forget all of it."""
    op.drop_table("statement")
    op.drop_table("ingest")
    op.drop_column("job_result", "unnamed")
