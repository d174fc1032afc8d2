"""What is learnt over many runs: signatures of failures, retries, aliases, known issues."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
TIME = sa.DateTime(timezone=True)
BAD = sa.text("outcome in (5, 6)")
CONFIRMED = sa.text("state = 'confirmed'")


def upgrade() -> None:
    """Add the tables; results that are stored get their signatures from the controller."""
    op.create_table(
        "signature",
        sa.Column("id", NAME, nullable=False),
        sa.Column("version", INTEGER, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("kind", "exception")),
        *(sa.Column(name, TEXT, nullable=False) for name in ("frame", "message")),
        sa.PrimaryKeyConstraint("id", name="pk_signature"),
    )
    op.create_table(
        "signature_heir",
        sa.Column("old", NAME, nullable=False),
        sa.Column("new", NAME, nullable=False),
        sa.PrimaryKeyConstraint("old", "new", name="pk_signature_heir"),
    )
    op.add_column("test_result", sa.Column("signature", NAME, nullable=True))
    op.create_index(
        "ix_test_result_signature",
        "test_result",
        ["signature", "cell"],
        postgresql_where=BAD,
        sqlite_where=BAD,
    )
    op.create_table(
        "test_retry",
        *(sa.Column(n, INTEGER, nullable=False, autoincrement=False) for n in ("cell", "test_id")),
        sa.Column("attempt", INTEGER, nullable=False),
        sa.Column("earlier", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cell", "test_id", name="pk_test_retry"),
        sqlite_with_rowid=False,
    )
    _add_aliases()
    op.create_table(
        "known_issue",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("product", TEXT, nullable=False),
        sa.Column("document", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_known_issue"),
    )
    op.create_index("ix_known_issue_product", "known_issue", ["product"])


def _add_aliases() -> None:
    op.create_table(
        "test_alias",
        sa.Column("id", INTEGER, nullable=False),
        sa.Column("product", TEXT, nullable=False),
        sa.Column("old_test", INTEGER, nullable=False),
        sa.Column("new_test", INTEGER, nullable=False),
        sa.Column("change", TEXT, nullable=False),
        sa.Column("likeness", sa.Float(53), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("suggested_at", TIME, nullable=False),
        sa.Column("decided_at", TIME, nullable=True),
        sa.Column("decided_by", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["old_test"], ["test_case.id"], name="fk_test_alias_old_test"),
        sa.ForeignKeyConstraint(["new_test"], ["test_case.id"], name="fk_test_alias_new_test"),
        sa.PrimaryKeyConstraint("id", name="pk_test_alias"),
        sa.UniqueConstraint("old_test", "new_test", name="uq_test_alias_old_test_new_test"),
    )
    op.create_index("ix_test_alias_product", "test_alias", ["product"])
    op.create_index(
        "uq_test_alias_confirmed",
        "test_alias",
        ["old_test"],
        unique=True,
        postgresql_where=CONFIRMED,
        sqlite_where=CONFIRMED,
    )


def downgrade() -> None:
    """Forget all of it."""
    for table in ("known_issue", "test_alias", "test_retry"):
        op.drop_table(table)
    op.drop_index("ix_test_result_signature", "test_result")
    op.drop_column("test_result", "signature")
    for table in ("signature_heir", "signature"):
        op.drop_table(table)
