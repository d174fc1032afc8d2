"""What benchmarks came to, cell by cell: figures for lists and trends without their samples."""

from __future__ import annotations

from sqlalchemy import Float, Index
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.store.column_types import Json, Name
from orchestrator.store.tables.shared_columns import KeyCell, Long, Pk, Table


class BenchmarkRow(Table):
    """A metric with one unit, one direction and one set of parameters, whatever measured it."""

    __tablename__ = "benchmark"
    __table_args__ = (Index("ix_benchmark_job", "product", "job"),)

    pk: Mapped[Pk]
    digest: Mapped[bytes] = mapped_column(unique=True)
    """Of all of it, which together is unique but may be too long for an index."""
    product: Mapped[str] = mapped_column(Name)
    job: Mapped[str] = mapped_column(Name)
    name: Mapped[str]
    unit: Mapped[str]
    direction: Mapped[str]
    params: Mapped[dict[str, object]] = mapped_column(Json)


class BenchmarkPointRow(Table):
    """What a cell that is done measured.

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
    """Where the samples stand among the attempt's metrics."""
    value: Mapped[float] = mapped_column(Float(53))
    """The median of the samples; of a pairing, of the subject's turns."""
    low: Mapped[float] = mapped_column(Float(53))
    high: Mapped[float] = mapped_column(Float(53))
    """Quartiles; of fewer than five samples the extremes."""
    samples: Mapped[int]


class CellBenchmarkSummaryRow(Table):
    """A done cell whose metrics have been looked at, and how many points they made."""

    __tablename__ = "cell_benchmark_summary"

    cell: Mapped[KeyCell]
    points: Mapped[int]
    environment: Mapped[str]
    """The fingerprint of where they were measured; empty where it is not known."""
    packed: Mapped[bytes]
    """Their benchmarks and values, in little-endian: so many int32, then so many float64.

    A list of every benchmark reads some ten thousand of them at once.
    """
