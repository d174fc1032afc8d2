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

_PACKED = ("evidence_chunk", "text", "blob_chunk")
"""Tables whose `body` is compressed already."""

_REFUSAL = "the audit log is append-only"
_APPEND_ONLY_SQLITE = tuple(
    f"CREATE TRIGGER audit_entry_no_{what.lower()} BEFORE {what} ON audit_entry "
    f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    for what in ("UPDATE", "DELETE")
)
_NO_REPLACE_SQLITE = """CREATE TRIGGER audit_entry_no_replace BEFORE INSERT ON audit_entry
    WHEN EXISTS (
        SELECT 1 FROM audit_entry
        WHERE number = NEW.number OR digest = NEW.digest OR rowid = NEW.rowid
    )
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"""
"""INSERT OR REPLACE deletes the row that is in its way without the trigger of DELETE."""
_APPEND_ONLY_POSTGRES = (
    f"""CREATE FUNCTION refuse_change_of_audit_entry() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$""",
    """CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit_entry()""",
)


def upgrade() -> None:
    """Make every table."""
    _access()
    _outbox()
    _quarantine()
    _runs()
    _benchmarks()
    _gates()
    _ingested()
    _leases()
    _results()
    _history()
    _retests()
    _reuse()
    _schedules()
    if op.get_bind().dialect.name == "postgresql":
        for table in _PACKED:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL")
        for statement in _APPEND_ONLY_POSTGRES:
            op.execute(statement)
    else:
        for statement in (*_APPEND_ONLY_SQLITE, _NO_REPLACE_SQLITE):
            op.execute(statement)


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


def _access() -> None:
    _table(
        "blob(digest)",
        *_needed(NAME, "digest"),
        *_needed(BIG, "size_bytes"),
        *_needed(FLOAT, "touched_s"),
    )
    _table(
        "audit_entry(number)",
        *_needed(BIG, "number"),
        *_needed(TIME, "at"),
        *_needed(NAME, "actor", "resource"),
        *_needed(TEXT, "document"),
        *_needed(NAME, "digest"),
        _unique("audit_entry", "digest"),
    )
    _index("ix_audit_entry_at", "audit_entry", ["at"])
    _index("ix_audit_entry_actor", "audit_entry", ["actor", "number"])
    _index("ix_audit_entry_resource", "audit_entry", ["resource", "number"])
    _table(
        "pruned_blob(digest)",
        *_needed(NAME, "digest"),
        *_needed(TIME, "at"),
        *_needed(TEXT, "rule"),
    )
    _table(
        "change_mark(id)",
        *_needed(BIG, "id"),
        *_needed(TEXT, "mark"),
    )
    _table(
        "controller(id)",
        *_needed(NAME, "id"),
        *_needed(FLOAT, "last_seen_s"),
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
        *_needed(TEXT, "name", "scope", "prefix"),
        *_needed(TIME, "created_at"),
        *_optional(TIME, "expires_at", "last_used_at", "revoked_at"),
        _unique("token", "secret_sha256"),
    )
    _table(
        "blob_chunk(digest, number)",
        *_needed(NAME, "digest"),
        *_needed(BIG, "number"),
        *_needed(BYTES, "body"),
        _key("blob_chunk", "digest", "blob.digest"),
    )
    _table(
        "person(name)",
        *_needed(NAME, "name"),
        *_needed(TEXT, "display_name"),
    )
    _table(
        "browser_session(id)",
        *_needed(NAME, "id", "secret_sha256"),
        *_needed(TEXT, "name", "display_name", "scope", "roles_digest"),
        *_optional(NAME, "token"),
        *_needed(TIME, "created_at", "last_used_at", "expires_at"),
        *_needed(TEXT, "address", "agent"),
        *_optional(TEXT, "id_token"),
        _key("browser_session", "token", "token.id"),
        _unique("browser_session", "secret_sha256"),
    )


def _outbox() -> None:
    _table(
        "announcement(key)",
        *_needed(NAME, "key"),
        *_needed(TEXT, "lineage", "state"),
        *_needed(FLAG, "is_news"),
        *_needed(TIME, "at"),
    )
    _table(
        "channel(id)",
        *_needed(NAME, "id", "name"),
        *_needed(TEXT, "channel"),
        *_needed(TIME, "created_at"),
        *_optional(TIME, "failing_since", "last_success_at", "disabled_at"),
        *_needed(TEXT, "disabled_reason"),
        _unique("channel", "name"),
    )
    _table(
        "lineage_state(name)",
        *_needed(NAME, "name"),
        *_needed(TEXT, "state"),
        *_needed(TIME, "since"),
        *_optional(TIME, "evaluated_at"),
    )
    _table(
        "delivery(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "id", "channel", "subject"),
        *_needed(TEXT, "news", "state"),
        *_needed(TIME, "created_at"),
        *_needed(INTEGER, "attempts"),
        *_needed(TIME, "due_at"),
        *_optional(TIME, "done_at"),
        *_needed(FLAG, "is_test"),
        *_optional(FLOAT, "claimed_until_s"),
        _key("delivery", "channel", "channel.id"),
        _unique("delivery", "id"),
    )
    _index("ix_delivery_channel", "delivery", ["channel"])
    _index("ix_delivery_due", "delivery", ["due_at"], where="state = 'waiting'")
    _index("ix_delivery_order", "delivery", ["channel", "subject", "pk"], where="state = 'waiting'")
    _table(
        "delivery_attempt(delivery, number)",
        *_needed(INTEGER, "delivery", "number"),
        *_needed(TIME, "at"),
        *_needed(TEXT, "result"),
        *_optional(INTEGER, "status"),
        *_needed(TEXT, "response_excerpt"),
        *_needed(FLOAT, "seconds"),
        _key("delivery_attempt", "delivery", "delivery.pk"),
    )


def _quarantine() -> None:
    _table(
        "quarantine(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(TEXT, "product", "document"),
    )
    _index("ix_quarantine_product", "quarantine", ["product"])


def _runs() -> None:
    _table(
        "run(id)",
        *_needed(NAME, "id"),
        *_needed(
            TEXT,
            "matrix_name",
            "subject_name",
            "subject_version",
            "payload_digest",
            "product",
            "build",
        ),
        *_needed(TIME, "created_at"),
        *_needed(TEXT, "state"),
        *_optional(TEXT, "outcome"),
        *_optional(TIME, "finished_at", "cancel_requested_at"),
        *_optional(TEXT, "rerun_of", "confirmation_run_id"),
        *_needed(TEXT, "commit_sha", "branch", "author"),
        *_needed(FLAG, "is_dirty"),
    )
    _index("ix_run_unfinished", "run", ["id"], where="state <> 'finished'")
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
        "idempotency_key(key)",
        *_needed(NAME, "key"),
        *_needed(TEXT, "fingerprint"),
        *_needed(TIME, "claimed_at"),
        *_optional(NAME, "run_id"),
        _key("idempotency_key", "run_id", "run.id"),
    )
    _table(
        "run_event(run_id, number)",
        *_needed(NAME, "run_id"),
        *_needed(BIG, "number"),
        *_needed(TEXT, "kind", "cell"),
        *_needed(JSON, "data"),
        _key("run_event", "run_id", "run.id"),
        sqlite_with_rowid=False,
    )
    _table(
        "pruned_part(run_id, part)",
        *_needed(NAME, "run_id"),
        *_needed(TEXT, "part"),
        *_needed(TIME, "at"),
        *_needed(TEXT, "rule"),
        _key("pruned_part", "run_id", "run.id"),
    )
    _table(
        "prune(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(TIME, "ended_at"),
    )
    _table(
        "run_spec(run_id)",
        *_needed(NAME, "run_id"),
        *_needed(TEXT, "spec"),
        _key("run_spec", "run_id", "run.id"),
    )
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
        *_optional(TIME, "retests_ended_at", "collected_at"),
        _key("attempt", "cell", "cell.pk"),
        _unique("attempt", "cell", "number"),
        _unique("attempt", "id"),
    )
    _table(
        "cell_plan(cell)",
        *_needed(INTEGER, "cell"),
        *_needed(TEXT, "plan"),
        _key("cell_plan", "cell", "cell.pk"),
    )
    _table(
        "transition(pk)",
        *_needed(INTEGER, "pk", "cell"),
        *_needed(TIME, "at"),
        *_needed(INTEGER, "attempt"),
        *_needed(TEXT, "from_state", "to_state", "reason"),
        _key("transition", "cell", "cell.pk"),
    )
    _index("ix_transition_cell", "transition", ["cell"])


def _benchmarks() -> None:
    _table(
        "benchmark(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(BYTES, "digest"),
        *_needed(NAME, "product", "job"),
        *_needed(TEXT, "name", "unit", "direction"),
        *_needed(JSON, "params"),
        _unique("benchmark", "digest"),
    )
    _index("ix_benchmark_job", "benchmark", ["product", "job"])
    _table(
        "benchmark_point(cell, benchmark)",
        *_needed(INTEGER, "cell", "benchmark", "attempt"),
        *_needed(BIG, "first_seq", "last_seq"),
        *_needed(FLOAT, "value", "low", "high"),
        *_needed(INTEGER, "samples"),
        sqlite_with_rowid=False,
    )
    _index("ix_benchmark_point_benchmark", "benchmark_point", ["benchmark", "cell"])
    _table(
        "cell_benchmark_summary(cell)",
        *_needed(INTEGER, "cell", "points"),
        *_needed(TEXT, "environment"),
        *_needed(BYTES, "packed"),
        _key("cell_benchmark_summary", "cell", "cell.pk"),
    )


def _gates() -> None:
    _table(
        "approval(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "gate", "evidence", "by"),
        *_needed(TIME, "at"),
        *_optional(TEXT, "token"),
        _unique("approval", "gate", "evidence", "by"),
    )
    _table(
        "payload_review(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "payload"),
        *_needed(TEXT, "document"),
    )
    _index("ix_payload_review_payload", "payload_review", ["payload"])
    _table(
        "policy(digest)",
        *_needed(NAME, "digest"),
        *_needed(TEXT, "product", "text", "document"),
        *_needed(TIME, "first_seen"),
    )
    _table(
        "signing_key(id)",
        *_needed(NAME, "id"),
        *_needed(TEXT, "public"),
        *_needed(TIME, "created_at", "not_after"),
        *_optional(TIME, "retired_at"),
    )
    _table(
        "waiver(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "gate"),
        *_needed(TEXT, "document", "verdict", "evidence_digest"),
    )
    _index("ix_waiver_gate", "waiver", ["gate"])
    _table(
        "gate_policy(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "gate"),
        *_needed(INTEGER, "number"),
        *_needed(NAME, "digest"),
        *_needed(TIME, "since"),
        *_needed(TEXT, "by"),
        _key("gate_policy", "digest", "policy.digest"),
        _unique("gate_policy", "gate", "number"),
    )
    _table(
        "verdict(pk)",
        *_needed(INTEGER, "pk"),
        *_optional(NAME, "key"),
        *_needed(NAME, "gate", "lineage"),
        *_needed(TEXT, "decision"),
        *_needed(NAME, "policy_digest", "last_run"),
        *_needed(TIME, "created_at"),
        *_needed(
            TEXT, "document", "snapshot_digest", "document_digest", "envelope_digest", "key_id"
        ),
        _key("verdict", "policy_digest", "policy.digest"),
        _unique("verdict", "key"),
    )
    _index("ix_verdict_gate", "verdict", ["gate"])
    _index("ix_verdict_lineage", "verdict", ["lineage"])
    _table(
        "verdict_run(verdict, position)",
        *_needed(INTEGER, "verdict", "position"),
        *_needed(NAME, "run_id"),
        _key("verdict_run", "run_id", "run.id"),
        _key("verdict_run", "verdict", "verdict.pk"),
    )
    _index("ix_verdict_run_run_id", "verdict_run", ["run_id"])


def _ingested() -> None:
    _table(
        "annotation(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "run_id", "digest"),
        *_needed(TEXT, "document"),
        _key("annotation", "run_id", "run.id"),
        _unique("annotation", "digest"),
    )
    _index("ix_annotation_run_id", "annotation", ["run_id"])
    _table(
        "ingest(cell)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "fingerprint"),
        *_needed(TEXT, "document"),
        _key("ingest", "cell", "cell.pk"),
        _unique("ingest", "fingerprint"),
    )


def _leases() -> None:
    _table(
        "orphan_sighting(provider, machine_id)",
        *_needed(NAME, "provider", "machine_id"),
        *_needed(TIME, "first_seen"),
    )
    _table(
        "price(provider, item, place, market)",
        *_needed(NAME, "provider", "item", "place", "market"),
        *_needed(MONEY, "usd_per_hour"),
        *_needed(TIME, "as_of"),
        *_needed(TEXT, "source"),
    )
    _table(
        "static_host(provider, id)",
        *_needed(NAME, "provider", "id"),
        *_needed(TEXT, "machine"),
    )
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
        *_optional(TEXT, "endpoint"),
        *_optional(TIME, "launched_at", "gone_at"),
        *_optional(MONEY, "cost_usd"),
        *_needed(TEXT, "refusal"),
        *_optional(TEXT, "offer"),
        *_optional(JSON, "facts"),
        *_needed(FLAG, "simulated"),
        _key("lease", "attempt", "attempt.pk"),
        _key("lease", "run_id", "run.id"),
        _unique("lease", "id"),
    )
    _index("ix_lease_attempt", "lease", ["attempt"])
    _index("ix_lease_open", "lease", ["pk"], where="state <> 'gone'")
    _index("ix_lease_refused", "lease", ["provider", "gone_at"], where="refusal <> ''")
    _index("ix_lease_reserved_at", "lease", ["reserved_at"])
    _index("ix_lease_run_id", "lease", ["run_id"])
    _index(
        "ux_lease_place",
        "lease",
        ["provider", "place"],
        where="exclusive and state <> 'gone'",
        unique=True,
    )
    _table(
        "placement_decision(attempt, number)",
        *_needed(INTEGER, "attempt", "number"),
        *_needed(TIME, "at"),
        *_needed(NAME, "place"),
        *_needed(TEXT, "result"),
        *_needed(NAME, "reason"),
        *_needed(TEXT, "detail"),
        _key("placement_decision", "attempt", "attempt.pk"),
        _unique("placement_decision", "attempt", "place", "result", "reason"),
    )
    _table(
        "attestation(lease)",
        *_needed(INTEGER, "lease"),
        *_needed(TEXT, "document"),
        _key("attestation", "lease", "lease.pk"),
    )
    _table(
        "lease_credentials(lease)",
        *_needed(INTEGER, "lease"),
        *_needed(TEXT, "login"),
        _key("lease_credentials", "lease", "lease.pk"),
    )


def _results() -> None:
    _table(
        "test_case(id)",
        *_needed(INTEGER, "id"),
        *_needed(BYTES, "digest"),
        *_needed(TEXT, "product", "job", "nodeid", "path", "class", "function", "param"),
        _unique("test_case", "digest"),
    )
    _table(
        "test_result(cell, test_id)",
        *_needed(INTEGER, "cell", "test_id", "attempt"),
        *_needed(SMALL, "outcome"),
        *_needed(FLAG, "final"),
        *_needed(BIG, "duration_us"),
        *_needed(TEXT, "reason", "message"),
        *_optional(BYTES, "text_digest"),
        *_needed(BIG, "position"),
        *_optional(NAME, "signature"),
        sqlite_with_rowid=False,
    )
    _index("ix_test_result_bad", "test_result", ["cell", "test_id"], where="outcome in (5, 6)")
    _index(
        "ix_test_result_signature", "test_result", ["signature", "cell"], where="outcome in (5, 6)"
    )
    _index("ix_test_result_test", "test_result", ["test_id", "cell"])
    _index("ix_test_result_slow", "test_result", ["test_id"], where="duration_us > 90000000")
    _table(
        "text(digest)",
        *_needed(BYTES, "digest", "body"),
    )
    _table(
        "artifact(cell, name)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "name", "digest"),
        *_needed(BIG, "size_bytes"),
        *_optional(TIME, "pruned_at"),
        _key("artifact", "cell", "cell.pk"),
    )
    _index("ix_artifact_digest", "artifact", ["digest"])
    _table(
        "cell_rollup(cell)",
        *_needed(INTEGER, "cell"),
        *_needed(MONEY, "cost_usd"),
        *_needed(TIME, "concluded_at"),
        *_needed(
            INTEGER,
            "passed",
            "failed",
            "error",
            "skipped",
            "xfailed",
            "xpassed",
            "missing",
            "not_run",
        ),
        _key("cell_rollup", "cell", "cell.pk"),
    )
    _table(
        "job_rollup(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_needed(
            INTEGER,
            "passed",
            "failed",
            "error",
            "skipped",
            "xfailed",
            "xpassed",
            "missing",
            "not_run",
        ),
        _key("job_rollup", "cell", "cell.pk"),
    )
    _table(
        "check_result(pk)",
        *_needed(INTEGER, "pk", "attempt"),
        *_needed(TEXT, "job", "name", "outcome", "value", "unit", "tolerance", "reason"),
        _key("check_result", "attempt", "attempt.pk"),
        _unique("check_result", "attempt", "job", "name"),
    )
    _table(
        "environment_report(attempt)",
        *_needed(INTEGER, "attempt"),
        *_needed(JSON, "document"),
        _key("environment_report", "attempt", "attempt.pk"),
    )
    _table(
        "evidence_chunk(attempt, stream, offset)",
        *_needed(INTEGER, "attempt"),
        *_needed(TEXT, "stream"),
        *_needed(BIG, "offset"),
        *_needed(BYTES, "body"),
        _key("evidence_chunk", "attempt", "attempt.pk"),
    )
    _table(
        "job_result(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_needed(INTEGER, "attempt"),
        *_optional(FLOAT, "started_ts", "finished_ts"),
        *_optional(TEXT, "current"),
        *_optional(FLOAT, "idle_since_ts", "idle_timeout_s", "longest_idle_s"),
        *_optional(INTEGER, "exit_code", "signal"),
        *_optional(TEXT, "cause", "detail"),
        *_optional(FLOAT, "duration_s"),
        *_optional(INTEGER, "restarts"),
        *_optional(TEXT, "degraded", "unnamed", "test_set"),
        _key("job_result", "attempt", "attempt.pk"),
        _key("job_result", "cell", "cell.pk"),
    )
    _index("ix_job_result_job", "job_result", ["job", "cell"])
    _table(
        "metric(attempt, seq)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "seq"),
        *_needed(TEXT, "job", "name"),
        *_needed(JSON, "samples"),
        *_needed(TEXT, "unit", "direction"),
        *_needed(JSON, "params"),
        *_optional(TEXT, "arm"),
        *_optional(INTEGER, "turn"),
        *_optional(JSON, "readings"),
        _key("metric", "attempt", "attempt.pk"),
    )
    _table(
        "notice(attempt, seq)",
        *_needed(INTEGER, "attempt"),
        *_needed(BIG, "seq"),
        *_needed(FLOAT, "ts"),
        *_needed(TEXT, "job", "level", "message"),
        _key("notice", "attempt", "attempt.pk"),
    )


def _history() -> None:
    _table(
        "known_issue(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(TEXT, "product", "document"),
    )
    _index("ix_known_issue_product", "known_issue", ["product"])
    _table(
        "signature(id)",
        *_needed(NAME, "id"),
        *_needed(INTEGER, "version"),
        *_needed(TEXT, "kind", "exception", "frame", "message"),
    )
    _table(
        "signature_successor(old, new)",
        *_needed(NAME, "old", "new"),
    )
    _table(
        "test_retry(cell, test_id)",
        *_needed(INTEGER, "cell", "test_id", "attempt"),
        *_needed(TEXT, "earlier"),
        sqlite_with_rowid=False,
    )
    _table(
        "test_alias(id)",
        *_needed(INTEGER, "id"),
        *_needed(TEXT, "product"),
        *_needed(INTEGER, "old_test", "new_test"),
        *_needed(TEXT, "change"),
        *_needed(FLOAT, "similarity"),
        *_needed(TEXT, "state"),
        *_needed(TIME, "suggested_at"),
        *_optional(TIME, "decided_at"),
        *_needed(TEXT, "decided_by"),
        _key("test_alias", "new_test", "test_case.id"),
        _key("test_alias", "old_test", "test_case.id"),
        _unique("test_alias", "old_test", "new_test"),
    )
    _index("ix_test_alias_product", "test_alias", ["product"])
    _index(
        "uq_test_alias_confirmed",
        "test_alias",
        ["old_test"],
        where="state = 'confirmed'",
        unique=True,
    )


def _retests() -> None:
    _table(
        "retest_session(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "id"),
        *_needed(INTEGER, "attempt"),
        *_needed(NAME, "run_id"),
        *_needed(TEXT, "key", "document"),
        _key("retest_session", "attempt", "attempt.pk"),
        _key("retest_session", "run_id", "run.id"),
        _unique("retest_session", "attempt", "key"),
        _unique("retest_session", "id"),
    )
    _index("ix_retest_session_run_id", "retest_session", ["run_id"])


def _reuse() -> None:
    _table(
        "cell_reuse(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_optional(INTEGER, "source"),
        *_optional(TIME, "produced_at"),
        *_needed(TEXT, "reason"),
        *_needed(TIME, "decided_at"),
        _key("cell_reuse", "cell", "cell.pk"),
        _key("cell_reuse", "source", "cell.pk"),
    )
    _table(
        "attempt_environment(attempt)",
        *_needed(INTEGER, "attempt"),
        *_needed(TEXT, "document"),
        _key("attempt_environment", "attempt", "attempt.pk"),
    )
    _table(
        "reusable_result(cell, job)",
        *_needed(INTEGER, "cell"),
        *_needed(NAME, "job"),
        *_needed(INTEGER, "attempt"),
        *_needed(NAME, "requested_digest", "product", "platform", "environment"),
        *_needed(TIME, "produced_at"),
        _key("reusable_result", "attempt", "attempt.pk"),
        _key("reusable_result", "cell", "cell.pk"),
    )
    _index(
        "ix_reusable_result_platform",
        "reusable_result",
        ["product", "platform", "environment", "job", "produced_at"],
    )
    _index(
        "ix_reusable_result_requested",
        "reusable_result",
        ["requested_digest", "job", "produced_at"],
    )


def _schedules() -> None:
    _table(
        "schedule(name)",
        *_needed(NAME, "name"),
        *_needed(TEXT, "document"),
        *_optional(TIME, "next_due_at"),
    )
    _index("ix_schedule_next_due_at", "schedule", ["next_due_at"])
    _table(
        "firing(pk)",
        *_needed(INTEGER, "pk"),
        *_needed(NAME, "schedule"),
        *_needed(TIME, "due_at"),
        *_needed(TEXT, "state"),
        *_needed(FLAG, "superseded"),
        *_needed(TEXT, "claimed_by"),
        *_needed(FLOAT, "claim_expires_s"),
        *_needed(TEXT, "document"),
        _key("firing", "schedule", "schedule.name"),
        _unique("firing", "schedule", "due_at"),
    )
    _index("ix_firing_open", "firing", ["due_at"], where="state <> 'notified'")
