"""Samples that two arms of a benchmark took in turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Metrics say whose turn they are of; those that are stored are plain ones."""
    op.add_column("metric", sa.Column("arm", sa.Text(), nullable=True))
    op.add_column("metric", sa.Column("turn", sa.Integer(), nullable=True))
    op.add_column("metric", sa.Column("readings", JSON, nullable=True))


def downgrade() -> None:
    """Forget the turns, with what was measured in them: a plain metric is told beside them."""
    op.execute("DELETE FROM metric WHERE arm IS NOT NULL")
    for name in ("readings", "turn", "arm"):
        op.drop_column("metric", name)
