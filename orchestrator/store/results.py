"""Results of a cell: tests, jobs, checks and metrics."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    Row,
    ScalarSelect,
    Select,
    and_,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.event_facts import CheckFact, JobFact, MetricFact, Notice, TestFact
from orchestrator.domain.grouping import grouped
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.benchmark_rollup import COUNTED, tally
from orchestrator.store.cell_results import (
    CellResults,
    Depth,
    artifacts_of,
    checks_of,
    environments_of,
    jobs_of,
    metrics_of,
    notices_of,
    results_of,
    totals_of,
)
from orchestrator.store.column_types import short
from orchestrator.store.failure_groups import of_result, read_earlier
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, attempt_row, cell_row, insert_into
from orchestrator.store.tables import (
    ArtifactRow,
    CellRow,
    JobResultRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
    TextRow,
)
from orchestrator.store.write_results import write_checks, write_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsAsked:
    """Filter for a cell's tests; empty fields do not restrict."""

    __test__ = False

    outcome: TestOutcome | None = None
    job: str = ""
    contains: str = ""
    """Text in the node id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLine(TestFact):
    """A test result with its number; its outcome is the counted one.

    A result that is not final counts as missing, unless its job was aborted.
    """

    __test__ = False

    test_id: int
    signature: str = ""
    has_text: bool = False
    """Whether a traceback is stored; `text` has it only if a single test is read."""


_WORST = (TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.MISSING, TestOutcome.NOT_RUN)
_RANK: ColumnElement[int] = case(
    {outcome.value: rank for rank, outcome in enumerate(_WORST)},
    value=COUNTED,
    else_=len(_WORST),
)
_PLACE = tuple_(_RANK, TestResultRow.cell, TestResultRow.position, TestResultRow.test_id)
"""Sort key, unique per result."""
_CURSOR = re.compile(r"([0-9]{1,2})\.([0-9]{1,9})\.([0-9]{1,18})\.([0-9]{1,9})")


def page_of(
    session: Session,
    cell_id: str,
    lent: Mapping[str, Sequence[str]],
    filters: TestsAsked,
    *,
    limit: int,
    after: str,
) -> ListPage[TestLine, str]:
    """Return a page of tests after a cursor."""
    query = (
        _lines(cell_id, lent)
        .where(*_conditions(filters))
        .order_by(*_PLACE.clauses)
        .limit(limit + 1)
    )
    if (place := _CURSOR.fullmatch(after)) is not None:
        query = query.where(tuple_(*map(int, place.groups())) < _PLACE)
    rows = session.execute(query).all()
    shown = rows[:limit]
    following = ".".join(map(str, shown[-1][-4:])) if len(rows) > limit else None
    return ListPage([_line(row) for row in shown], following)


def line_of(
    session: Session, cell_id: str, lent: Mapping[str, Sequence[str]], test_id: int
) -> TestLine | None:
    """Return one test of a cell with its traceback and output; None if the cell lacks it.

    `lent` are the jobs that the cell reuses, by the id of the cell that they ran in.
    """
    query = (
        _lines(cell_id, lent)
        .add_columns(TextRow.body)
        .join(TextRow, TextRow.digest == TestResultRow.text_digest, isouter=True)
        .where(TestResultRow.test_id == test_id)
        .order_by(CellRow.id != cell_id)
        .limit(1)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else replace(_line(row), text=_text(row.body))


def _lines(cell_id: str, lent: Mapping[str, Sequence[str]]) -> Select[*tuple[Any, ...]]:
    places = [CellRow.id == cell_id]
    places += [
        and_(CellRow.id == cell, TestCaseRow.job.in_([short(job) for job in jobs]))
        for cell, jobs in lent.items()
    ]
    return (
        select(
            *(TestResultRow.test_id, TestCaseRow.job, TestCaseRow.nodeid, TestResultRow.final),
            *(COUNTED.label("counted"), TestResultRow.duration_us, TestResultRow.reason),
            *(TestResultRow.message, TestResultRow.signature, TestRetryRow.earlier),
            TestResultRow.text_digest.is_not(None).label("has_text"),
            *(_RANK.label("rank"), TestResultRow.cell, TestResultRow.position),
            TestResultRow.test_id.label("last"),
        )
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .join(TestRetryRow, of_result(), isouter=True)
        .where(or_(*places))
    )


def _conditions(filters: TestsAsked) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if filters.outcome is not None:
        wanted.append(COUNTED.in_([filters.outcome.value]))
    if filters.job:
        wanted.append(TestCaseRow.job == short(filters.job))
    if filters.contains:
        wanted.append(TestCaseRow.nodeid.contains(filters.contains, autoescape=True))
    return wanted


def _line(row: Row[*tuple[Any, ...]]) -> TestLine:
    return filled(
        TestLine,
        row,
        unset=("text",),
        outcome=TestOutcome(row.counted),
        duration_s=row.duration_us / 1_000_000,
        signature=row.signature or "",
        earlier=read_earlier(row.earlier),
    )


_ROWS_AT_ONCE = 2_000


class ResultStore:
    """Results of a cell: tests, jobs, checks and metrics."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def tally(self, cell_id: str) -> dict[str, dict[TestOutcome, int]]:
        """Return test counts by job and outcome (not final ones count as MISSING)."""
        with self._sessions.read() as session:
            return tally(session, cell_row(session, cell_id).pk)

    def of_cells(
        self,
        cell_ids: Sequence[str],
        depth: Depth = Depth.WHOLE,
        jobs: Mapping[str, Mapping[str, JobFact]] = MappingProxyType({}),
    ) -> Mapping[str, CellResults]:
        """Return the results of cells without single tests, by cell id.

        `jobs` has the job facts of cells for which the caller has read them.
        """
        with self._sessions.read() as session:
            return results_of(session, cell_ids, depth, jobs)

    def totals(self, run_ids: Sequence[str]) -> Mapping[str, Counts]:
        """Return test counts of each run, reused jobs included; runs without tests are left out."""
        with self._sessions.read() as session:
            return totals_of(session, run_ids)

    def job_seconds(self, run_ids: Sequence[str]) -> Mapping[str, float]:
        """Return the sum of the durations of each run's jobs; runs without any are left out."""
        query = (
            select(CellRow.run_id, func.sum(JobResultRow.duration_s))
            .join(JobResultRow, JobResultRow.cell == CellRow.pk)
            .where(CellRow.run_id.in_(run_ids), JobResultRow.duration_s.is_not(None))
            .group_by(CellRow.run_id)
        )
        with self._sessions.read() as session:
            return {run: seconds or 0.0 for run, seconds in session.execute(query)}

    def worst_first(
        self,
        cell_id: str,
        lent: Mapping[str, Sequence[str]],
        filters: TestsAsked,
        *,
        limit: int,
        after: str,
    ) -> ListPage[TestLine, str]:
        """Return tests in the order: failed, error, missing, not run, then all others as collected.

        Args:
            cell_id: The cell.
            lent: The jobs that the cell reuses, by the id of the cell that they ran in.
            filters: The filter for tests.
            limit: Maximum number of tests.
            after: A cursor; an invalid one means the beginning.
        """
        with self._sessions.read() as session:
            return page_of(session, cell_id, lent, filters, limit=limit, after=after)

    def line(
        self, cell_id: str, lent: Mapping[str, Sequence[str]], test_id: int
    ) -> TestLine | None:
        """Return a test of the cell with its long text; None for an unknown test."""
        with self._sessions.read() as session:
            return line_of(session, cell_id, lent, test_id)

    def tests(self, cell_id: str, *, job: str | None = None) -> list[TestFact]:
        """Return tests in the order of collection, with their texts."""
        query = (
            select(
                *(TestCaseRow.job, TestCaseRow.nodeid, TestResultRow.outcome, TestResultRow.final),
                *(TestResultRow.duration_us, TestResultRow.reason, TestResultRow.message),
                *(TextRow.body, TestRetryRow.earlier),
            )
            .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
            .join(TestRetryRow, of_result(), isouter=True)
            .join(TextRow, TextRow.digest == TestResultRow.text_digest, isouter=True)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(TestResultRow.position)
            .execution_options(yield_per=_ROWS_AT_ONCE)
        )
        if job is not None:
            query = query.where(TestCaseRow.job == short(job))
        return [_test(row) for row in self._sessions.rows(query)]

    def final_tests(self, cell_id: str) -> dict[str, list[str]]:
        """Return node ids with a final result, by job."""
        query = (
            select(TestCaseRow.job, TestCaseRow.nodeid)
            .join(TestResultRow, TestResultRow.test_id == TestCaseRow.id)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .where(CellRow.id == cell_id, TestResultRow.final.is_(True))
            .order_by(TestResultRow.position)
        )
        return grouped((job, nodeid) for job, nodeid in self._sessions.rows(query))

    def jobs(self, cell_id: str) -> dict[str, JobFact]:
        """Return jobs by id."""
        with self._sessions.read() as session:
            return jobs_of(session, CellRow.id == cell_id).get(cell_id, {})

    def jobs_of_attempt(self, attempt_id: str) -> dict[str, JobFact]:
        """Return the jobs whose present facts are of the attempt, by id."""
        with self._sessions.read() as session:
            mine = JobResultRow.attempt == attempt_row(session, attempt_id).pk
            return next(iter(jobs_of(session, mine).values()), {})

    def checks(self, cell_id: str) -> list[CheckFact]:
        """Return checks in the order of their first report."""
        with self._sessions.read() as session:
            return checks_of(session, CellRow.id == cell_id).get(cell_id, [])

    def metrics(self, cell_id: str) -> list[MetricFact]:
        """Return the cell's metrics by attempt, in the order in which they were reported."""
        with self._sessions.read() as session:
            return metrics_of(session, CellRow.id == cell_id).get(cell_id, [])

    def notices(self, cell_id: str) -> list[Notice]:
        """Return the notices of every attempt of the cell, oldest first."""
        with self._sessions.read() as session:
            return notices_of(session, CellRow.id == cell_id).get(cell_id, [])

    def environment(self, cell_id: str) -> Mapping[str, object] | None:
        """Return the environment of the last attempt that reported one."""
        with self._sessions.read() as session:
            return environments_of(session, CellRow.id == cell_id).get(cell_id)

    def artifacts(self, cell_id: str) -> list[ArtifactRecord]:
        """Return artifacts by name."""
        with self._sessions.read() as session:
            return artifacts_of(session, CellRow.id == cell_id).get(cell_id, [])

    def artifact_names(self, cells: Collection[int]) -> dict[int, list[str]]:
        """Return the sorted names of artifacts by number of the cell, without empty ones."""
        query = select(ArtifactRow.cell, ArtifactRow.name).where(ArtifactRow.cell.in_(cells))
        return grouped(
            (cell, name) for cell, name in self._sessions.rows(query.order_by(ArtifactRow.name))
        )

    def put_checks(self, attempt_id: str, checks: Sequence[CheckFact]) -> None:
        """Insert or replace Seatrial's own checks of an attempt's jobs, by job and name."""
        with self._sessions.write() as session:
            write_checks(session, attempt_row(session, attempt_id).pk, checks)

    def put_degraded(self, cell_id: str, reasons: Mapping[str, str]) -> None:
        """Mark jobs of a cell as degraded, with reasons by job id; keep a reported reason."""
        with self._sessions.write() as session:
            mine = JobResultRow.cell == cell_row(session, cell_id).pk
            for job, reason in reasons.items():
                silent = and_(JobResultRow.job == short(job), JobResultRow.degraded.is_(None))
                session.execute(update(JobResultRow).where(mine, silent).values(degraded=reason))

    def put_metrics(self, attempt_id: str, metrics: Sequence[MetricFact]) -> None:
        """Store metrics of an attempt, each sequence number once."""
        if not metrics:
            return
        with self._sessions.write() as session:
            write_metrics(session, attempt_row(session, attempt_id).pk, metrics)

    def put_artifacts(
        self, cell_id: str, artifacts: Sequence[ArtifactRecord], *, replaced: Collection[str] = ()
    ) -> None:
        """Insert or replace artifacts by name; remove the others that `replaced` names."""
        if not artifacts and not replaced:
            return
        stale = {short(name) for name in replaced} - {short(one.name) for one in artifacts}
        with self._sessions.write() as session:
            cell = select(CellRow.pk).where(CellRow.id == cell_id).scalar_subquery()
            if stale:
                mine = ArtifactRow.cell == cell
                session.execute(delete(ArtifactRow).where(mine, ArtifactRow.name.in_(stale)))
            keep_artifacts(session, cell, artifacts)


def keep_artifacts(
    session: Session, cell_pk: int | ScalarSelect[int], artifacts: Sequence[ArtifactRecord]
) -> None:
    """Insert or replace artifacts by name, within the caller's transaction."""
    insert = insert_into(session, ArtifactRow).values(cell=cell_pk)
    new = insert.excluded
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "name"],
        set_={"digest": new.digest, "size_bytes": new.size_bytes, "pruned_at": None},
    )
    rows = {
        name: {"name": name, "digest": a.digest, "size_bytes": a.size_bytes}
        for a in artifacts
        for name in [short(a.name)]
    }
    if rows:
        session.connection().execute(statement, [rows[name] for name in sorted(rows)])


def _test(row: Row[*tuple[Any, ...]]) -> TestFact:
    return TestFact(
        job=sys.intern(row.job),  # few jobs, but a row for each test
        nodeid=row.nodeid,
        outcome=TestOutcome(row.outcome),
        final=row.final,
        duration_s=row.duration_us / 1_000_000,
        reason=row.reason,
        message=row.message,
        text=_text(row.body),
        earlier=read_earlier(row.earlier),
    )


def _text(body: bytes | None) -> str:
    return zlib.decompress(body).decode() if body is not None else ""
