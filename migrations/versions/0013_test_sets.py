"""Which tests a suite collected, and what kept others out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Earlier jobs have no test set."""
    op.add_column("job_result", sa.Column("test_set", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("job_result", "test_set")
