"""The verdict that a line was last told of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add its moment; it is unknown of what was told before."""
    op.add_column("standing", sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("standing", "judged_at")
