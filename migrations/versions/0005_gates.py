"""Policies, verdicts, waivers and approvals, and the public keys of those who sign."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "policy",
        sa.Column("digest", NAME, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("product", "text", "document")),
        sa.Column("first_seen", TIME, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_policy"),
    )
    op.create_table(
        "gate_policy",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("gate", NAME, nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("digest", NAME, nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["policy.digest"], name="fk_gate_policy_digest"),
        sa.PrimaryKeyConstraint("pk", name="pk_gate_policy"),
        sa.UniqueConstraint("gate", "number", name="uq_gate_policy_gate_number"),
    )
    _add_verdicts()
    op.create_table(
        "waiver",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("gate", NAME, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("document", "verdict", "seen")),
        sa.PrimaryKeyConstraint("pk", name="pk_waiver"),
    )
    op.create_index("ix_waiver_gate", "waiver", ["gate"])
    op.create_table(
        "approval",
        sa.Column("pk", INTEGER, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in ("gate", "evidence", "by")),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_approval"),
        sa.UniqueConstraint("gate", "evidence", "by", name="uq_approval_gate_evidence_by"),
    )
    op.create_table(
        "signing_key",
        sa.Column("id", NAME, nullable=False),
        sa.Column("public", TEXT, nullable=False),
        *(sa.Column(name, TIME, nullable=False) for name in ("created_at", "not_after")),
        sa.Column("retired_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_signing_key"),
    )


def _add_verdicts() -> None:
    op.create_table(
        "verdict",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("key", NAME, nullable=True),
        *(sa.Column(name, NAME, nullable=False) for name in ("gate", "lineage")),
        sa.Column("decision", TEXT, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in ("policy_digest", "last_run")),
        sa.Column("created_at", TIME, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("document", "snapshot_digest")),
        *(sa.Column(name, TEXT, nullable=False) for name in ("document_digest", "key_id")),
        sa.Column("envelope_digest", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["policy_digest"], ["policy.digest"], name="fk_verdict_policy"),
        sa.PrimaryKeyConstraint("pk", name="pk_verdict"),
        sa.UniqueConstraint("key", name="uq_verdict_key"),
    )
    op.create_index("ix_verdict_gate", "verdict", ["gate"])
    op.create_index("ix_verdict_lineage", "verdict", ["lineage"])
    op.create_table(
        "verdict_run",
        sa.Column("verdict", INTEGER, nullable=False),
        sa.Column("position", INTEGER, nullable=False),
        sa.Column("run_id", NAME, nullable=False),
        sa.ForeignKeyConstraint(["verdict"], ["verdict.pk"], name="fk_verdict_run_verdict"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_verdict_run_run_id"),
        sa.PrimaryKeyConstraint("verdict", "position", name="pk_verdict_run"),
    )
    op.create_index("ix_verdict_run_run_id", "verdict_run", ["run_id"])


def downgrade() -> None:
    """Forget all of it."""
    for table in ("signing_key", "approval", "waiver", "verdict_run", "verdict", "gate_policy"):
        op.drop_table(table)
    op.drop_table("policy")
