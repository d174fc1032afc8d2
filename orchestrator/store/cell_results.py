"""Results of many cells, one statement per kind of result.

Checks and metrics are those of the job's present attempt; those of a lost attempt are kept, but not
returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, TypeVar

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import CellState
from orchestrator.domain.event_facts import CheckFact, JobFact, MetricFact, Notice
from orchestrator.domain.failure_signature import BAD
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.benchmark_rollup import COUNTED
from orchestrator.store.failure_groups import of_result, read_earlier
from orchestrator.store.sql import Records
from orchestrator.store.tables import (
    NOTICES,
    ArtifactRow,
    AttemptRow,
    CellReuseRow,
    CellRollupRow,
    CellRow,
    CheckResultRow,
    EnvironmentReportRow,
    JobResultRow,
    JobRollupRow,
    MetricRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
)
from orchestrator.store.tables.results import Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResults:
    """Results of a cell, each in its order."""

    jobs: Mapping[str, JobFact] = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """Test counts by job, unnamed tests included."""
    passed_on_retry: Mapping[str, int] = field(default_factory=dict)
    """Number of passed tests that failed first, by job."""
    checks: Sequence[CheckFact] = ()
    metrics: Sequence[MetricFact] = ()
    notices: Sequence[Notice] = ()
    artifacts: Sequence[ArtifactRecord] = ()
    """Sorted by name."""


class Depth(IntEnum):
    """The depth to which cells are read."""

    EVALUATED = 0
    """The inputs of outcomes: jobs, counts and checks."""
    SHOWN = 1
    """Also notices and the environment."""
    WHOLE = 2
    """Also artifacts and metrics, of which there may be thousands."""


R = TypeVar("R", CheckResultRow, MetricRow)
T = TypeVar("T")
Mine = ColumnElement[bool]
"""A condition on cells."""

_JOB_FIELDS = tuple(f.name for f in fields(JobFact))
_COUNTS = tuple(f.name for f in fields(Counts))
_NOTHING = Counts()


def results_of(
    session: Session,
    cell_ids: Sequence[str],
    depth: Depth,
    known_jobs: Mapping[str, Mapping[str, JobFact]],
) -> dict[str, CellResults]:
    """Return everything but single tests, by cell id."""
    mine = CellRow.id.in_(cell_ids)
    unread = [cell_id for cell_id in cell_ids if cell_id not in known_jobs]
    jobs = {**known_jobs, **(jobs_of(session, CellRow.id.in_(unread)) if unread else {})}
    counts = _counts_of(session, mine, jobs)
    retried = _passed_on_retry_of(session, mine) if depth >= Depth.SHOWN else {}
    checks = checks_of(session, mine)
    measured = metrics_of(session, mine) if depth >= Depth.WHOLE else {}
    notices = notices_of(session, mine) if depth >= Depth.SHOWN else {}
    artifacts = artifacts_of(session, mine) if depth >= Depth.WHOLE else {}
    known = {*jobs, *counts, *checks, *measured, *notices, *artifacts}
    return {
        cell_id: CellResults(
            jobs=jobs.get(cell_id, {}),
            counts=counts.get(cell_id, {}),
            passed_on_retry=retried.get(cell_id, {}),
            checks=tuple(checks.get(cell_id, ())),
            metrics=tuple(measured.get(cell_id, ())),
            notices=tuple(notices.get(cell_id, ())),
            artifacts=tuple(artifacts.get(cell_id, ())),
        )
        for cell_id in known
    }


def jobs_of(session: Session, mine: Mine) -> dict[str, dict[str, JobFact]]:
    """Return job facts by cell id and job."""
    query = select(CellRow.id, JobResultRow).join(CellRow, CellRow.pk == JobResultRow.cell)
    found: dict[str, dict[str, JobFact]] = {}
    for cell_id, row in session.execute(query.where(mine).order_by(JobResultRow.job)):
        fact = JobFact(**{name: getattr(row, name) for name in _JOB_FIELDS})
        found.setdefault(cell_id, {})[row.job] = fact
    return found


def _passed_on_retry_of(session: Session, mine: Mine) -> dict[str, dict[str, int]]:
    """Return the number of passed tests that failed first, by cell id and job."""
    query = (
        select(CellRow.id, TestCaseRow.job, TestRetryRow.earlier)
        .join(TestResultRow, of_result())
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(mine, TestResultRow.final, TestResultRow.outcome == TestOutcome.PASSED.value)
    )
    found: dict[str, dict[str, int]] = {}
    for cell_id, job, earlier in session.execute(query):
        if BAD.intersection(read_earlier(earlier)):
            jobs = found.setdefault(cell_id, {})
            jobs[job] = jobs.get(job, 0) + 1
    return found


def checks_of(session: Session, mine: Mine) -> dict[str, list[CheckFact]]:
    """Return checks by cell id, in the order of their first report."""
    query = _current(CheckResultRow, mine).order_by(CheckResultRow.pk)
    return _gathered(session, query, _check)


def metrics_of(session: Session, mine: Mine) -> dict[str, list[MetricFact]]:
    """Return metrics by cell id, by attempt, in the order in which they were reported."""
    query = _current(MetricRow, mine).order_by(MetricRow.attempt, MetricRow.seq)
    return _gathered(session, query, metric_of)


def notices_of(session: Session, mine: Mine) -> dict[str, list[Notice]]:
    """Return the notices of every attempt by cell id, oldest first."""
    query = (
        select(CellRow.id, Records(Notice, NOTICES))
        .join(AttemptRow, AttemptRow.pk == NOTICES.c.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .where(mine)
        .order_by(AttemptRow.number, NOTICES.c.seq)
    )
    return _gathered(session, query, lambda notice: notice)


def environments_of(session: Session, mine: Mine) -> dict[str, Mapping[str, object]]:
    """Return environments by cell id, of the last attempt that reported one."""
    query = (
        select(CellRow.id, EnvironmentReportRow.document)
        .join(AttemptRow, AttemptRow.pk == EnvironmentReportRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .where(mine)
        .order_by(AttemptRow.number)
    )
    return dict(session.execute(query).all())


def artifacts_of(session: Session, mine: Mine) -> dict[str, list[ArtifactRecord]]:
    """Return artifacts by cell id, sorted by name."""
    query = select(CellRow.id, ArtifactRow).join(CellRow, CellRow.pk == ArtifactRow.cell)
    return _gathered(
        session,
        query.where(mine).order_by(ArtifactRow.name),
        lambda row: ArtifactRecord(row.name, row.size_bytes, row.digest, row.pruned_at),
    )


def totals_of(session: Session, run_ids: Sequence[str]) -> dict[str, Counts]:
    """Return test counts of each run, reused jobs included."""
    mine, is_done = CellRow.run_id.in_(run_ids), CellRow.state == CellState.DONE
    found: dict[str, Counts] = {}
    done = select(CellRow.run_id, *_sums(CellRollupRow)).join(
        CellRollupRow, CellRollupRow.cell == CellRow.pk
    )
    lent = (
        select(CellRow.run_id, *_sums(JobRollupRow))
        .join(CellReuseRow, CellReuseRow.cell == CellRow.pk)
        .join(
            JobRollupRow,
            and_(JobRollupRow.cell == CellReuseRow.source, JobRollupRow.job == CellReuseRow.job),
        )
    )
    for query in (done.where(mine, is_done), lent.where(mine)):
        for run, *sums in session.execute(query.group_by(CellRow.run_id)):
            _add(found, run, Counts(*map(int, sums)))
    alive = session.scalars(select(CellRow.pk).where(mine, ~is_done)).all()
    for run, jobs in _counted_now(session, alive, CellRow.run_id).items():
        for counts in jobs.values():
            _add(found, run, counts)
    unnamed = select(CellRow.run_id, JobResultRow.unnamed).join(
        JobResultRow, JobResultRow.cell == CellRow.pk
    )
    named = (CellRow.pk.in_(alive), JobResultRow.unnamed.is_not(None))
    for run, more in session.execute(unnamed.where(*named)) if alive else ():
        _add(found, run, more or _NOTHING)
    return found


def _counts_of(
    session: Session, mine: Mine, jobs: Mapping[str, Mapping[str, JobFact]]
) -> dict[str, dict[str, Counts]]:
    """Return test counts by cell id and job: rolled up for finished cells, else counted now."""
    is_done = and_(JobRollupRow.cell == CellRow.pk, CellRow.state == CellState.DONE)
    query = select(CellRow.pk, CellRow.id, CellRow.state, JobRollupRow)
    alive: dict[int, str] = {}
    found: dict[str, dict[str, Counts]] = {}
    for pk, cell_id, state, row in session.execute(
        query.join(JobRollupRow, is_done, isouter=True).where(mine)
    ):
        if state is not CellState.DONE:
            alive[pk] = cell_id
        elif row is not None:
            counts = Counts(**{name: getattr(row, name) for name in _COUNTS})
            found.setdefault(cell_id, {})[row.job] = counts
    found |= _counted_now(session, list(alive), CellRow.id)
    for cell_id in alive.values():
        for job, fact in jobs.get(cell_id, {}).items():
            if fact.unnamed is not None:
                _add(found.setdefault(cell_id, {}), job, fact.unnamed)
    return found


def _counted_now(
    session: Session, cells: Sequence[int], by: InstrumentedAttribute[str]
) -> dict[str, dict[str, Counts]]:
    """Return test counts of cells that are not done, by the column and by job."""
    if not cells:
        return {}
    counted = (
        select(by, TestCaseRow.job, COUNTED.label("counted"), func.count())
        .join(TestResultRow, TestResultRow.cell == CellRow.pk)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(CellRow.pk.in_(cells))
        .group_by(by, TestCaseRow.job, "counted")
    )
    found: dict[str, dict[str, Counts]] = {}
    for name, job, outcome, number in session.execute(counted):
        _add(found.setdefault(name, {}), job, Counts.from_tally({TestOutcome(outcome): number}))
    return found


def _add(counts_by_name: dict[str, Counts], name: str, counts: Counts) -> None:
    counts_by_name[name] = counts_by_name.get(name, _NOTHING) + counts


def _sums(table: type[Counted]) -> list[ColumnElement[int]]:
    return [func.sum(getattr(table, name)) for name in _COUNTS]


def _gathered(
    session: Session, query: Select[Any, Any], convert: Callable[[Any], T]
) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    rows: Iterable[Any] = session.execute(query)
    for cell_id, row in rows:
        found.setdefault(cell_id, []).append(convert(row))
    return found


def _current(row: type[R], mine: Mine) -> Select[str, R]:
    """Restrict to each job's present attempt."""
    job = and_(JobResultRow.cell == CellRow.pk, JobResultRow.job == row.job)
    return (
        select(CellRow.id, row)
        .join(AttemptRow, AttemptRow.pk == row.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(JobResultRow, job, isouter=True)
        .where(mine)
        .where(or_(JobResultRow.attempt.is_(None), JobResultRow.attempt == row.attempt))
    )


def _check(row: CheckResultRow) -> CheckFact:
    return CheckFact(row.job, row.name, row.outcome, row.value, row.unit, row.tolerance, row.reason)


def metric_of(row: MetricRow) -> MetricFact:
    """Return the metric of a row."""
    return MetricFact(
        seq=row.seq,
        job=row.job,
        name=row.name,
        samples=tuple(float(sample) for sample in row.samples),
        unit=row.unit,
        direction=row.direction,
        params=row.params,
        arm=row.arm or "",
        turn=row.turn,
        readings=row.readings or {},
    )
