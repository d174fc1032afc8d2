"""Sessions of browsers that are signed in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add them; browsers that held a token sign in again."""
    op.create_table(
        "browser_session",
        sa.Column("secret_sha256", NAME, nullable=False),
        sa.Column("token", NAME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("secret_sha256", name="pk_browser_session"),
        sa.ForeignKeyConstraint(["token"], ["token.id"], name="fk_browser_session_token"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("browser_session")
