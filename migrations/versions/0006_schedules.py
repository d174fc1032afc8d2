"""Schedules and their firings."""

from __future__ import annotations

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""


def downgrade() -> None:
    """Drop them."""
