"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
MONEY = sa.Numeric().with_variant(sa.Text(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
TIME = sa.DateTime(timezone=True)
BYTES = sa.LargeBinary()
FLAG = sa.Boolean()
FLOAT = sa.Float(53)
BIG = sa.BigInteger()
INTEGER = sa.Integer()
SMALL = sa.SmallInteger()

_COUNTS = ("passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run")
_PACKED = ("evidence_chunk", "log_chunk", "text", "blob_chunk")
"""Tables whose `body` is compressed already."""
_TABLES = (
    *("test_result", "notice", "metric", "log_chunk", "lease", "job_result", "evidence_chunk"),
    *("environment", "check_result", "transition", "job_rollup", "cell_rollup", "cell_plan"),
    *("attempt", "artifact", "run_spec", "idempotency_key", "feed", "cell", "blob_chunk"),
    *("token", "text", "test_case", "run", "payload", "machine", "controller", "blob"),
)
"""In an order in which they can be dropped."""


def upgrade() -> None:
    """Make every table."""
    for make in (
        _run,
        _feed,
        _attempt,
        _lease,
        _evidence_chunk,
        _notice,
        _test_case,
        _test_result,
        _job_result,
        _artifact,
        _job_rollup,
        _controller,
    ):
        make()
    if op.get_bind().dialect.name == "postgresql":
        for table in _PACKED:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL")


def _needed(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def _table(title: str, *items: sa.schema.SchemaItem, **options: bool) -> None:
    """Make the table ``name(primary, key)``."""
    name, columns = title.rstrip(")").split("(")
    primary = columns.split(", ")
    for item in items:  # only a `pk` or `id` is given out by the database
        if isinstance(item, sa.Column) and item.name in primary and item.name not in ("pk", "id"):
            item.autoincrement = False
    key = sa.PrimaryKeyConstraint(*primary, name=f"pk_{name}")
    op.create_table(name, *items, key, **options)


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"uq_{table}_{'_'.join(columns)}")


def _key(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{table}_{column}")


def _index(
    name: str, table: str, columns: list[str], *, where: str | None = None, unique: bool = False
) -> None:
    only = sa.text(where) if where else None
    op.create_index(name, table, columns, unique=unique, postgresql_where=only, sqlite_where=only)


def _run() -> None:
    _table(
        "run(id)",
        *_needed(NAME, "id"),
        *_needed(
            TEXT, "matrix_name", "subject_name", "subject_version", "payload_digest", "product"
        ),
        *_needed(TIME, "created_at"),
        *_needed(TEXT, "state"),
        *_optional(TEXT, "outcome"),
        *_optional(TIME, "finished_at", "cancel_requested_at"),
        *_optional(TEXT, "rerun_of"),
        *_needed(BIG, "feed_seq"),
    )
    _index("ix_run_unfinished", "run", ["id"], where="state <> 'finished'")
    _table(
        "run_spec(run_id)",
        *_needed(NAME, "run_id"),
        *_needed(TEXT, "spec"),
        _key("run_spec", "run_id", "run.id"),
    )
    _table(
        "idempotency_key(key)",
        *_needed(NAME, "key"),
        *_needed(TEXT, "fingerprint"),
        *_needed(TIME, "claimed_at"),
        *_optional(NAME, "run_id"),
        _key("idempotency_key", "run_id", "run.id"),
    )


def _feed() -> None:
    _table(
        "feed(run_id, number)",
        *_needed(NAME, "run_id"),
        *_needed(BIG, "number"),
        *_needed(TEXT, "kind", "cell"),
        *_needed(JSON, "data"),
        _key("feed", "run_id", "run.id"),
        sqlite_with_rowid=False,
    )
    _table(
        "cell(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "id", "run_id"),
        *_needed(TEXT, "name"),
        *_needed(INTEGER, "position"),
        *_needed(TEXT, "state"),
        *_optional(TIME, "entered_at"),
        *_optional(TEXT, "outcome"),
        *_needed(TEXT, "reason", "detail"),
        _key("cell", "run_id", "run.id"),
        _unique("cell", "id"),
        _unique("cell", "run_id", "name"),
        _unique("cell", "run_id", "position"),
    )
    _index("ix_cell_unfinished", "cell", ["pk"], where="state <> 'done'")
    _table(
        "cell_plan(cell)",
        *_needed(INTEGER, "cell"),
        *_needed(TEXT, "plan"),
        _key("cell_plan", "cell", "cell.pk"),
    )


def _attempt() -> None:
    _table(
        "attempt(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "id"),
        *_needed(INTEGER, "cell", "number"),
        *_needed(TIME, "opened_at"),
        *_optional(TEXT, "cause_outcome"),
        *_needed(TEXT, "cause_reason", "cause_detail"),
        *_optional(TEXT, "outcome"),
        *_optional(TIME, "closed_at"),
        *_needed(BIG, "seq", "events_bytes", "log_bytes"),
        *_optional(TIME, "last_event_at"),
        *_optional(TEXT, "end_outcome"),
        *_needed(TEXT, "end_reason", "end_detail"),
        *_needed(INTEGER, "tests_seen"),
        _key("attempt", "cell", "cell.pk"),
        _unique("attempt", "cell", "number"),
        _unique("attempt", "id"),
    )
    _table(
        "transition(pk)",
        *_needed(INTEGER, "pk", "cell"),
        *_needed(TIME, "at"),
        *_needed(INTEGER, "attempt"),
        *_needed(TEXT, "origin", "target", "reason"),
        _key("transition", "cell", "cell.pk"),
    )
    _index("ix_transition_cell", "transition", ["cell"])


def _lease() -> None:
    _table(
        "lease(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "id"),
        *_needed(INTEGER, "attempt"),
        *_needed(NAME, "run_id"),
        *_needed(TEXT, "provider", "place"),
        *_needed(FLAG, "exclusive"),
        *_needed(TEXT, "state"),
        *_needed(MONEY, "reserved_usd"),
        *_optional(MONEY, "price_usd_per_hour"),
        *_needed(TIME, "reserved_at"),
        *_needed(TEXT, "machine_id"),
        *_optional(TEXT, "reach"),
        *_optional(TIME, "launched_at", "gone_at"),
        *_optional(MONEY, "cost_usd"),
        *_needed(TEXT, "refusal"),
        _key("lease", "attempt", "attempt.pk"),
        _key("lease", "run_id", "run.id"),
        _unique("lease", "id"),
    )
    _index("ix_lease_attempt", "lease", ["attempt"])
    _index("ix_lease_open", "lease", ["pk"], where="state <> 'gone'")
    _index("ix_lease_run_id", "lease", ["run_id"])
    _index(
        "ux_lease_place",
        "lease",
        ["provider", "place"],
        where="exclusive and state <> 'gone'",
        unique=True,
    )
    _table(
        "machine(provider, id)",
        *_needed(NAME, "provider", "id"),
        *_needed(TEXT, "machine"),
    )


def _evidence_chunk() -> None:
    _table(
        "evidence_chunk(attempt, offset)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "offset"),
        *_needed(INTEGER, "length"),
        *_needed(BIG, "first_seq", "last_seq"),
        *_needed(BYTES, "body"),
        _key("evidence_chunk", "attempt", "attempt.pk"),
    )
    _table(
        "log_chunk(attempt, offset)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "offset"),
        *_needed(INTEGER, "length"),
        *_needed(BYTES, "body"),
        _key("log_chunk", "attempt", "attempt.pk"),
    )
    _table(
        "environment(attempt)",
        *_needed(INTEGER, "attempt"),
        *_needed(JSON, "document"),
        _key("environment", "attempt", "attempt.pk"),
    )


def _notice() -> None:
    _table(
        "notice(attempt, seq)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "seq"),
        *_needed(FLOAT, "ts"),
        *_needed(TEXT, "job", "level", "message"),
        _key("notice", "attempt", "attempt.pk"),
    )
    _table(
        "metric(attempt, seq)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "seq"),
        *_needed(TEXT, "job", "name"),
        *_needed(JSON, "samples"),
        *_needed(TEXT, "unit", "direction"),
        *_needed(JSON, "params"),
        _key("metric", "attempt", "attempt.pk"),
    )


def _test_case() -> None:
    _table(
        "test_case(id)",
        *_needed(INTEGER, "id"),
        *_needed(BYTES, "digest"),
        *_needed(TEXT, "product", "job", "nodeid", "path", "class", "function", "param"),
        _unique("test_case", "digest"),
    )
    _table(
        "text(digest)",
        *_needed(BYTES, "digest", "body"),
    )


def _test_result() -> None:
    _table(
        "test_result(cell, test_id)",
        *_needed(INTEGER, "cell", "test_id", "attempt"),
        *_needed(SMALL, "outcome"),
        *_needed(FLAG, "final"),
        *_needed(BIG, "duration_us"),
        *_needed(TEXT, "reason", "message"),
        *_optional(BYTES, "text_digest"),
        *_needed(BIG, "position"),
        sqlite_with_rowid=False,
    )
    _index("ix_test_result_test", "test_result", ["test_id", "cell"])
    _index("ix_test_result_bad", "test_result", ["cell", "test_id"], where="outcome in (5, 6)")


def _job_result() -> None:
    _table(
        "job_result(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_needed(INTEGER, "attempt"),
        *_optional(FLOAT, "started_ts", "finished_ts"),
        *_optional(TEXT, "current"),
        *_optional(INTEGER, "exit_code", "signal"),
        *_optional(TEXT, "cause", "detail"),
        *_optional(FLOAT, "duration_s"),
        *_optional(INTEGER, "restarts"),
        *_optional(TEXT, "degraded"),
        _key("job_result", "attempt", "attempt.pk"),
        _key("job_result", "cell", "cell.pk"),
    )
    _table(
        "check_result(pk)",
        *_needed(INTEGER, "pk", "attempt"),
        *_needed(TEXT, "job", "name", "outcome", "value", "unit", "tolerance", "reason"),
        _key("check_result", "attempt", "attempt.pk"),
        _unique("check_result", "attempt", "job", "name"),
    )


def _artifact() -> None:
    _table(
        "artifact(cell, name)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "name"),
        *_needed(TEXT, "digest"),
        *_needed(BIG, "size_bytes"),
        _key("artifact", "cell", "cell.pk"),
    )
    _table(
        "cell_rollup(cell)",
        *_needed(INTEGER, "cell"),
        *_needed(MONEY, "cost_usd"),
        *_needed(TIME, "concluded_at"),
        *_needed(INTEGER, *_COUNTS),
        _key("cell_rollup", "cell", "cell.pk"),
    )


def _job_rollup() -> None:
    _table(
        "job_rollup(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_needed(INTEGER, *_COUNTS),
        _key("job_rollup", "cell", "cell.pk"),
    )
    _table(
        "payload(digest)",
        *_needed(NAME, "digest"),
        *_needed(BIG, "size_bytes"),
        *_needed(TEXT, "manifest"),
        *_needed(TIME, "uploaded_at"),
    )
    _table(
        "token(id)",
        *_needed(NAME, "id", "secret_sha256"),
        *_needed(TEXT, "name", "scope"),
        *_needed(TIME, "created_at"),
        *_optional(TIME, "expires_at", "last_used_at", "revoked_at"),
        _unique("token", "secret_sha256"),
    )


def _controller() -> None:
    _table(
        "controller(id)",
        *_needed(NAME, "id"),
        *_needed(FLOAT, "seen_s"),
    )
    _table(
        "blob(digest)",
        *_needed(NAME, "digest"),
        *_needed(BIG, "size_bytes"),
    )
    _table(
        "blob_chunk(digest, number)",
        *_needed(NAME, "digest"),
        *_needed(BIG, "number"),
        *_needed(BYTES, "body"),
        _key("blob_chunk", "digest", "blob.digest"),
    )


def downgrade() -> None:
    """Drop every table."""
    for table in _TABLES:
        op.drop_table(table)
