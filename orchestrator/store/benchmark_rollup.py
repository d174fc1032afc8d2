"""Benchmark rollups: one narrow row per benchmark of a cell, written when the cell ends."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from statistics import median
from typing import Any

from sqlalchemy import Select, and_, case, cast, func, insert, null, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.environment_fingerprint import fingerprint
from orchestrator.domain.event_facts import BASELINE
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.paired_samples import spread_of
from orchestrator.store.column_types import storable
from orchestrator.store.sql import changed, insert_into, slices
from orchestrator.store.tables import (
    AttemptRow,
    BenchmarkPointRow,
    BenchmarkRow,
    CellBenchmarkSummaryRow,
    CellRollupRow,
    CellRow,
    EnvironmentReportRow,
    JobResultRow,
    JobRollupRow,
    LeaseRow,
    MetricRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
)

COUNTED: ColumnElement[int] = case(
    (TestResultRow.final, TestResultRow.outcome),
    (TestResultRow.outcome == TestOutcome.NOT_RUN.value, TestResultRow.outcome),
    else_=TestOutcome.MISSING.value,
)
"""Counted outcome: a result that is not final is missing, unless its job was aborted."""


def tally(session: Session, cell_pk: int) -> dict[str, dict[TestOutcome, int]]:
    """Return the number of tests by job and outcome, in one statement."""
    tallies: dict[str, dict[TestOutcome, int]] = {}
    for job, outcome, number in session.execute(_tally(cell_pk)):
        tallies.setdefault(job, {})[TestOutcome(outcome)] = number
    return tallies


def _tally(cell_pk: int) -> Select[str, int, int]:
    return (
        select(TestCaseRow.job, COUNTED.label("counted"), func.count())
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(TestResultRow.cell == cell_pk)
        .group_by(TestCaseRow.job, "counted")
        .order_by(TestCaseRow.job, "counted")
    )


def write_rollup(session: Session, cell_pk: int, *, at: datetime) -> None:
    """Store the cell's counts and cost, within the transaction that concludes the cell."""
    total = Counts()
    counted = _counted(session, cell_pk)
    for counts in counted.values():
        total = total + counts
    if counted:
        rows = [{"cell": cell_pk, "job": job, **one.as_dict()} for job, one in counted.items()]
        session.execute(insert(JobRollupRow), rows)
    cost = _cost_usd(session, cell_pk)
    row = {"cell": cell_pk, "cost_usd": cost, "concluded_at": at, **total.as_dict()}
    session.execute(insert(CellRollupRow).values(row))


def _counted(session: Session, cell_pk: int) -> dict[str, Counts]:
    """Return the tests by job, unnamed ones included, in one statement."""
    tests = _tally(cell_pk).add_columns(cast(null(), JobResultRow.unnamed.type))
    unnamed = select(JobResultRow.job, null(), null(), JobResultRow.unnamed).where(
        JobResultRow.cell == cell_pk, JobResultRow.unnamed.is_not(None)
    )
    counted: dict[str, Counts] = {}
    for job, outcome, number, more in session.execute(tests.order_by(None).union_all(unnamed)):
        found = more if more is not None else Counts.from_tally({TestOutcome(outcome): number})
        counted[job] = counted.get(job, Counts()) + found
    return dict(sorted(counted.items()))


_CELL = select(AttemptRow.cell).where(AttemptRow.pk == LeaseRow.attempt).correlate(LeaseRow)
ROLLED_UP = select(CellRollupRow.cell).where(CellRollupRow.cell.in_(_CELL)).scalar_subquery()
"""The cell of a lease, if the cell has a rollup."""


def recompute_cost(session: Session, cell_pk: int) -> None:
    """Update the cell's cost after a machine was settled later than the cell was concluded."""
    cost = {"cost_usd": _cost_usd(session, cell_pk)}
    changed(session, update(CellRollupRow).where(CellRollupRow.cell == cell_pk).values(cost))


def _cost_usd(session: Session, cell_pk: int) -> Decimal:
    query = (
        select(LeaseRow.cost_usd)
        .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
        .where(AttemptRow.cell == cell_pk, LeaseRow.cost_usd.is_not(None))
    )
    return sum((cost for cost in session.scalars(query) if cost is not None), Decimal(0))


_FINITE = (int, float)
_NAMES = ("product", "job", "name", "unit", "direction")


@dataclass(frozen=True, slots=True)
class _StatedMetric:
    """A metric of a job, in one turn."""

    attempt: int
    seq: int
    samples: tuple[float, ...]
    is_turn: bool


@dataclass(slots=True)
class _Benchmark:
    """A benchmark with all measurements of the cell."""

    row: dict[str, object]
    measurements: list[_StatedMetric]


def write_points(session: Session, cell_pk: int) -> int:
    """Roll up the metrics of a finished cell, once; return the number of points."""
    found = _found(session, cell_pk)
    numbers = _numbers(session, found)
    points: list[dict[str, Any]] = [
        {"cell": cell_pk, "benchmark": numbers[digest], **point}
        for digest, one in found.items()
        if (point := _point(one.measurements)) is not None
    ]
    if points:
        statement = insert_into(session, BenchmarkPointRow).on_conflict_do_nothing()
        session.connection().execute(statement, points)
    looked_at = {
        "cell": cell_pk,
        "points": len(points),
        "environment": _environment(session, cell_pk) if points else "",
        "packed": pack([point["benchmark"] for point in points], [p["value"] for p in points]),
    }
    session.execute(
        insert_into(session, CellBenchmarkSummaryRow).on_conflict_do_nothing(), looked_at
    )
    return len(points)


def pack(benchmarks: Sequence[int], values: Sequence[float]) -> bytes:
    """Pack benchmarks and values in the form of `CellBenchmarkSummaryRow`."""
    return struct.pack(f"<{len(benchmarks)}i{len(values)}d", *benchmarks, *values)


def unpack(packed: bytes) -> tuple[Sequence[int], Sequence[float]]:
    """Unpack benchmarks and values."""
    many = len(packed) // (struct.calcsize("<i") + struct.calcsize("<d"))
    numbers: tuple[Any, ...] = struct.unpack(f"<{many}i{many}d", packed)
    return numbers[:many], numbers[many:]


def unmeasured(limit: int) -> Select[int]:
    """Return finished cells without rollup."""
    return (
        select(CellRollupRow.cell)
        .join(
            CellBenchmarkSummaryRow,
            CellBenchmarkSummaryRow.cell == CellRollupRow.cell,
            isouter=True,
        )
        .where(CellBenchmarkSummaryRow.cell.is_(None))
        .order_by(CellRollupRow.cell)
        .limit(limit)
    )


def _found(session: Session, cell_pk: int) -> dict[bytes, _Benchmark]:
    """Return metrics by digest, of each job's present attempt, in the order of first mention."""
    current = and_(JobResultRow.cell == AttemptRow.cell, JobResultRow.job == MetricRow.job)
    simulated = select(LeaseRow.pk).where(LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated)
    query = (
        select(
            MetricRow.attempt,
            MetricRow.seq,
            MetricRow.arm,
            MetricRow.samples,
            MetricRow.job,
            MetricRow.name,
            MetricRow.unit,
            MetricRow.direction,
            MetricRow.params,
            RunRow.product,
        )
        .join(AttemptRow, AttemptRow.pk == MetricRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(JobResultRow, current, isouter=True)
        .where(AttemptRow.cell == cell_pk, ~simulated.exists())
        .where(or_(MetricRow.arm.is_(None), MetricRow.arm != BASELINE))
        .where(or_(JobResultRow.attempt.is_(None), JobResultRow.attempt == AttemptRow.pk))
        .order_by(MetricRow.attempt, MetricRow.seq)
    )
    found: dict[bytes, _Benchmark] = {}
    for attempt, seq, arm, stated, *identity, params, product in session.execute(query):
        samples = tuple(float(one) for one in stated if isinstance(one, _FINITE))
        if samples:
            digest = _digest(product, *identity, json.dumps(params, sort_keys=True))
            known: dict[str, object] = dict(zip(_NAMES, (product, *identity), strict=True))
            row = known | {"digest": digest, "params": params}
            said = _StatedMetric(attempt, seq, samples, bool(arm))
            found.setdefault(digest, _Benchmark(row, [])).measurements.append(said)
    return found


@lru_cache(maxsize=20_000)
def _digest(*identity: str) -> bytes:
    return hashlib.sha256("\x00".join(map(storable, identity)).encode()).digest()


def _numbers(session: Session, benchmarks: Mapping[bytes, _Benchmark]) -> dict[bytes, int]:
    """Return benchmark numbers by digest.

    New ones are stored in a fixed order to avoid deadlocks.
    """
    digests = sorted(benchmarks)
    known = _known(session, digests)
    missing = [benchmarks[digest].row for digest in digests if digest not in known]
    if missing:
        session.execute(insert_into(session, BenchmarkRow).on_conflict_do_nothing(), missing)
        known |= _known(session, [digest for digest in digests if digest not in known])
    return known


def _known(session: Session, digests: Sequence[bytes]) -> dict[bytes, int]:
    query = select(BenchmarkRow.digest, BenchmarkRow.pk)
    return {
        digest: pk
        for some in slices(digests)
        for digest, pk in session.execute(query.where(BenchmarkRow.digest.in_(some)))
    }


def _point(stated_metrics: Sequence[_StatedMetric]) -> dict[str, object] | None:
    """Return the point of a benchmark: measured outside of turns, or else the subject's turns."""
    plain = [one for one in stated_metrics if not one.is_turn]
    counted = plain or stated_metrics
    values = [sample for one in plain for sample in one.samples]
    spread = spread_of(values or [median(one.samples) for one in stated_metrics])
    if spread is None:
        return None
    last = counted[-1]
    mine = [one.seq for one in counted if one.attempt == last.attempt]
    return {
        "attempt": last.attempt,
        "first_seq": min(mine),
        "last_seq": max(mine),
        "value": spread.median,
        "low": spread.low,
        "high": spread.high,
        "samples": sum(len(one.samples) for one in counted),
    }


def _environment(session: Session, cell_pk: int) -> str:
    """Return the environment of the last attempt that reported one."""
    query = (
        select(EnvironmentReportRow.document, RunRow.subject_name)
        .join(AttemptRow, AttemptRow.pk == EnvironmentReportRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .where(AttemptRow.cell == cell_pk)
        .order_by(AttemptRow.number.desc())
        .limit(1)
    )
    found = session.execute(query).first()
    return fingerprint(found[0], subject=found[1]) if found else ""
