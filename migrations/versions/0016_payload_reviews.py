"""Who read a payload, and what they hold it for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of payload reviews. Earlier payloads have none."""
    op.create_table(
        "payload_review",
        sa.Column("pk", sa.Integer(), nullable=False),
        sa.Column("payload", NAME, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_payload_review"),
    )
    op.create_index("ix_payload_review_payload", "payload_review", ["payload"])


def downgrade() -> None:
    """Drop it, with what people said."""
    op.drop_table("payload_review")
