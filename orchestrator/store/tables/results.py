"""Tables of evidence and results; wide or repeated values are in tables of their own."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.event_facts import Notice
from orchestrator.domain.outcome import Counts
from orchestrator.store.column_types import DocumentColumn, Json, Name, OneOf
from orchestrator.store.tables.shared_columns import (
    Id,
    KeyAttempt,
    KeyCell,
    KeyNumber,
    Long,
    OfAttempt,
    Pk,
    TableBase,
    table_of,
)


class EvidenceStream(StrEnum):
    """The stream that a chunk belongs to."""

    EVENTS = "events"
    """Its chunks are whole lines."""
    LOG = "log"


class EvidenceChunkRow(TableBase):
    """Compressed bytes of an attempt's events or of its log."""

    __tablename__ = "evidence_chunk"

    attempt: Mapped[KeyAttempt]
    stream: Mapped[EvidenceStream] = mapped_column(OneOf(EvidenceStream), primary_key=True)
    offset: Mapped[KeyNumber]
    body: Mapped[bytes]


class EnvironmentReportRow(TableBase):
    """The environment that an attempt's agent reported."""

    __tablename__ = "environment_report"

    attempt: Mapped[KeyAttempt]
    document: Mapped[dict[str, object]] = mapped_column(Json)


class TestCaseRow(TableBase):
    """A test of a product."""

    __tablename__ = "test_case"
    __test__ = False

    id: Mapped[Pk]
    digest: Mapped[bytes] = mapped_column(unique=True)
    """Digest of product, job and node id, which together are unique but may be too long for an
    index.
    """
    product: Mapped[str]
    job: Mapped[str]
    nodeid: Mapped[str]
    path: Mapped[str]
    class_: Mapped[str] = mapped_column("class")
    function: Mapped[str]
    param: Mapped[str]


class TextRow(TableBase):
    """A long text, compressed and stored once."""

    __tablename__ = "text"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    body: Mapped[bytes]


SLOW_US = 90_000_000
"""Longer durations of tests are indexed, in microseconds."""


class TestResultRow(TableBase):
    """The result of a test in a cell.

    The table has by far the most rows, and no foreign keys: checking them took two thirds of
    Postgres's time for storing a result. The only writer reads every number from its table.
    """

    __tablename__ = "test_result"
    __test__ = False
    __table_args__ = (
        Index("ix_test_result_test", "test_id", "cell"),
        Index(
            "ix_test_result_bad",
            "cell",
            "test_id",
            postgresql_where=text("outcome in (5, 6)"),
            sqlite_where=text("outcome in (5, 6)"),
        ),
        Index(
            "ix_test_result_signature",
            "signature",
            "cell",
            postgresql_where=text("outcome in (5, 6)"),
            sqlite_where=text("outcome in (5, 6)"),
        ),
        Index(
            "ix_test_result_slow",
            "test_id",
            postgresql_where=text(f"duration_us > {SLOW_US}"),
            sqlite_where=text(f"duration_us > {SLOW_US}"),
        ),
        {"sqlite_with_rowid": False},
    )

    cell: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    test_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    outcome: Mapped[int] = mapped_column(SmallInteger)
    final: Mapped[bool]
    duration_us: Mapped[Long]
    reason: Mapped[str]
    message: Mapped[str]
    text_digest: Mapped[bytes | None]
    position: Mapped[Long]
    signature: Mapped[str | None] = mapped_column(Name)
    """Signature of the failure."""


class JobResultRow(TableBase):
    """The result of a job in a cell."""

    __tablename__ = "job_result"
    __table_args__ = (Index("ix_job_result_job", "job", "cell"),)

    cell: Mapped[KeyCell]
    job: Mapped[Id]
    attempt: Mapped[OfAttempt]
    started_ts: Mapped[float | None]
    finished_ts: Mapped[float | None]
    current: Mapped[str | None]
    idle_since_ts: Mapped[float | None]
    idle_timeout_s: Mapped[float | None]
    longest_idle_s: Mapped[float | None]
    exit_code: Mapped[int | None]
    signal: Mapped[int | None]
    cause: Mapped[str | None]
    detail: Mapped[str | None]
    duration_s: Mapped[float | None]
    restarts: Mapped[int | None]
    degraded: Mapped[str | None]
    unnamed: Mapped[Counts | None] = mapped_column(DocumentColumn(Counts))
    test_set: Mapped[TestSet | None] = mapped_column(DocumentColumn(TestSet))


class CheckResultRow(TableBase):
    """A check that a job reported about itself."""

    __tablename__ = "check_result"
    __table_args__ = (UniqueConstraint("attempt", "job", "name"),)

    pk: Mapped[Pk]
    attempt: Mapped[OfAttempt]
    job: Mapped[str]
    name: Mapped[str]
    outcome: Mapped[str]
    value: Mapped[str]
    unit: Mapped[str]
    tolerance: Mapped[str]
    reason: Mapped[str]


class MetricRow(TableBase):
    """A measured quantity."""

    __tablename__ = "metric"

    attempt: Mapped[KeyAttempt]
    seq: Mapped[KeyNumber]
    job: Mapped[str]
    name: Mapped[str]
    samples: Mapped[list[float]] = mapped_column(Json)
    unit: Mapped[str]
    direction: Mapped[str]
    params: Mapped[dict[str, object]] = mapped_column(Json)
    arm: Mapped[str | None]
    turn: Mapped[int | None]
    readings: Mapped[dict[str, float] | None] = mapped_column(Json)


NOTICES = table_of(
    "notice",
    Notice,
    ("seq",),
    Column("attempt", Integer, ForeignKey("attempt.pk"), primary_key=True),
)
"""Notices of the agent for a person."""


class ArtifactRow(TableBase):
    """An artifact of a cell."""

    __tablename__ = "artifact"

    cell: Mapped[KeyCell]
    name: Mapped[Id]
    digest: Mapped[str] = mapped_column(Name, index=True)
    size_bytes: Mapped[Long]
    pruned_at: Mapped[datetime | None]
    """Time at which its bytes were pruned; NULL if they are kept."""


class Counted:
    """Numbers of tests by outcome."""

    passed: Mapped[int]
    failed: Mapped[int]
    error: Mapped[int]
    skipped: Mapped[int]
    xfailed: Mapped[int]
    xpassed: Mapped[int]
    missing: Mapped[int]
    not_run: Mapped[int]


class CellRollupRow(Counted, TableBase):
    """Counts and cost of a finished cell."""

    __tablename__ = "cell_rollup"

    cell: Mapped[KeyCell]
    cost_usd: Mapped[Decimal]
    concluded_at: Mapped[datetime]


class JobRollupRow(Counted, TableBase):
    """Counts of a job of a finished cell."""

    __tablename__ = "job_rollup"

    cell: Mapped[KeyCell]
    job: Mapped[Id]


class BenchmarkRow(TableBase):
    """A benchmark: a metric with one unit, one direction and one set of parameters."""

    __tablename__ = "benchmark"
    __table_args__ = (Index("ix_benchmark_job", "product", "job"),)

    pk: Mapped[Pk]
    digest: Mapped[bytes] = mapped_column(unique=True)
    """Digest of all columns, which together are unique but may be too long for an index."""
    product: Mapped[str] = mapped_column(Name)
    job: Mapped[str] = mapped_column(Name)
    name: Mapped[str]
    unit: Mapped[str]
    direction: Mapped[str]
    params: Mapped[dict[str, object]] = mapped_column(Json)


class BenchmarkPointRow(TableBase):
    """The value of a benchmark in a finished cell.

    Like results of tests, the rows have no foreign keys: the only writer reads every number.
    """

    __tablename__ = "benchmark_point"
    __table_args__ = (
        Index("ix_benchmark_point_benchmark", "benchmark", "cell"),
        {"sqlite_with_rowid": False},
    )

    cell: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    benchmark: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    first_seq: Mapped[Long]
    last_seq: Mapped[Long]
    """First and last event of its metric."""
    value: Mapped[float]
    """Median of the samples; of a paired benchmark, of the subject's turns."""
    low: Mapped[float]
    high: Mapped[float]
    """Quartiles; with fewer than five samples the extremes."""
    samples: Mapped[int]


class CellBenchmarkSummaryRow(TableBase):
    """A finished cell after its rollup, with its number of points."""

    __tablename__ = "cell_benchmark_summary"

    cell: Mapped[KeyCell]
    points: Mapped[int]
    environment: Mapped[str]
    """Fingerprint of its environment; empty if it is unknown, and without points."""
    packed: Mapped[bytes]
    """Benchmarks and values, in little-endian: all int32, then all float64.

    A list of every benchmark reads some ten thousand of them at once.
    """
