"""Whose token approved evidence."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it; who approved before had typed a name."""
    op.add_column("approval", sa.Column("token", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("approval", "token")
