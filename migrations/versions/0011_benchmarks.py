"""What benchmarks came to, cell by cell."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
INTEGER = sa.Integer()
LONG = sa.BigInteger()
NUMBER = sa.Float(53)


def upgrade() -> None:
    """Add the tables; whoever opens the database fills them from the metrics that it has."""
    op.create_table(
        "benchmark",
        sa.Column("pk", INTEGER, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in ("product", "job")),
        *(sa.Column(name, TEXT, nullable=False) for name in ("name", "unit", "direction")),
        sa.Column("params", JSON, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_benchmark"),
        sa.UniqueConstraint("digest", name="uq_benchmark_digest"),
    )
    op.create_index("ix_benchmark_job", "benchmark", ["product", "job"])
    op.create_table(
        "benchmark_point",
        *(sa.Column(name, INTEGER, nullable=False) for name in ("cell", "benchmark", "attempt")),
        *(sa.Column(name, LONG, nullable=False) for name in ("first_seq", "last_seq")),
        *(sa.Column(name, NUMBER, nullable=False) for name in ("value", "low", "high")),
        sa.Column("samples", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("cell", "benchmark", name="pk_benchmark_point"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_benchmark_point_benchmark", "benchmark_point", ["benchmark", "cell"])
    op.create_table(
        "cell_measured",
        sa.Column("cell", INTEGER, nullable=False),
        sa.Column("points", INTEGER, nullable=False),
        sa.Column("environment", TEXT, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cell"], ["cell.pk"], name="fk_cell_measured_cell"),
        sa.PrimaryKeyConstraint("cell", name="pk_cell_measured"),
    )


def downgrade() -> None:
    """Drop them: the metrics have it all."""
    for table in ("cell_measured", "benchmark_point", "benchmark"):
        op.drop_table(table)
