"""Tables of benchmark rollups: figures for lists and trends, without samples."""

from __future__ import annotations

from sqlalchemy import Float, Index
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.store.column_types import Json, Name
from orchestrator.store.tables.shared_columns import KeyCell, Long, Pk, Table


class BenchmarkRow(Table):
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


class BenchmarkPointRow(Table):
    """The value of a benchmark in a finished cell.

    As results of tests, these carry no foreign keys: the one writer has read every number.
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
    value: Mapped[float] = mapped_column(Float(53))
    """Median of the samples; of a paired benchmark, of the subject's turns."""
    low: Mapped[float] = mapped_column(Float(53))
    high: Mapped[float] = mapped_column(Float(53))
    """Quartiles; with fewer than five samples the extremes."""
    samples: Mapped[int]


class CellBenchmarkSummaryRow(Table):
    """A finished cell after its rollup, with its number of points."""

    __tablename__ = "cell_benchmark_summary"

    cell: Mapped[KeyCell]
    points: Mapped[int]
    environment: Mapped[str]
    """Fingerprint of its environment; empty where it is unknown."""
    packed: Mapped[bytes]
    """Benchmarks and values, in little-endian: all int32, then all float64.

    A list of every benchmark reads some ten thousand of them at once.
    """
