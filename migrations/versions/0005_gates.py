"""Policies, verdicts, waivers and approvals."""

from __future__ import annotations

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""


def downgrade() -> None:
    """Drop them."""
