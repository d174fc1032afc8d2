"""What is known of a cell's tests, jobs, checks and metrics.

Of checks and metrics those count that the job's present attempt stated: what an attempt that was
lost half way said about the same job stays stored, and is not shown twice.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from orchestrator.adapters.db.rollups import tally
from orchestrator.adapters.db.sessions import Sessions
from orchestrator.adapters.db.signature_rows import of_result, read_earlier
from orchestrator.adapters.db.statements import cell_row, insert_into
from orchestrator.adapters.db.tables import (
    ArtifactRow,
    AttemptRow,
    CellRow,
    CheckResultRow,
    EnvironmentRow,
    JobResultRow,
    MetricRow,
    NoticeRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
    TextRow,
)
from orchestrator.adapters.db.types import short
from orchestrator.application.ports.evidence import Artifact
from orchestrator.domain.facts import CheckFact, JobFact, MetricFact, Notice, TestFact
from orchestrator.domain.outcome import TestOutcome

R = TypeVar("R", CheckResultRow, MetricRow)

_ROWS_AT_ONCE = 2_000
_JOB_FIELDS = tuple(f.name for f in fields(JobFact))


class DbResults:
    """The ResultStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def tally(self, cell_id: str) -> dict[str, dict[TestOutcome, int]]:
        """By job, how many tests have which outcome."""
        with self._sessions.read() as session:
            return tally(session, cell_row(session, cell_id).pk)

    def tests(self, cell_id: str, *, job: str | None = None) -> list[TestFact]:
        """In the order they were collected, with their texts."""
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
        with self._sessions.read() as session:
            return [_test(_Told(*row)) for row in session.execute(query)]

    def final_tests(self, cell_id: str) -> dict[str, list[str]]:
        """By job, the node ids with a final result."""
        query = (
            select(TestCaseRow.job, TestCaseRow.nodeid)
            .join(TestResultRow, TestResultRow.test_id == TestCaseRow.id)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .where(CellRow.id == cell_id, TestResultRow.final.is_(True))
            .order_by(TestResultRow.position)
        )
        final: dict[str, list[str]] = {}
        with self._sessions.read() as session:
            for job, nodeid in session.execute(query):
                final.setdefault(job, []).append(nodeid)
        return final

    def jobs(self, cell_id: str) -> dict[str, JobFact]:
        """By id."""
        query = select(JobResultRow).join(CellRow, CellRow.pk == JobResultRow.cell)
        mine = query.where(CellRow.id == cell_id).order_by(JobResultRow.job)
        with self._sessions.read() as session:
            return {row.job: _job(row) for row in session.scalars(mine)}

    def checks(self, cell_id: str) -> list[CheckFact]:
        """In the order they were first stated."""
        query = _current(select(CheckResultRow), CheckResultRow, cell_id)
        with self._sessions.read() as session:
            rows = session.scalars(query.order_by(CheckResultRow.pk))
            return [
                CheckFact(
                    row.job, row.name, row.outcome, row.value, row.unit, row.tolerance, row.reason
                )
                for row in rows
            ]

    def metrics(self, cell_id: str) -> list[MetricFact]:
        """In the order they were stated."""
        query = _current(select(MetricRow), MetricRow, cell_id)
        with self._sessions.read() as session:
            rows = session.scalars(query.order_by(MetricRow.attempt, MetricRow.seq))
            return [_metric(row) for row in rows]

    def notices(self, cell_id: str) -> list[Notice]:
        """Of every attempt, in order."""
        query = (
            select(NoticeRow)
            .join(AttemptRow, AttemptRow.pk == NoticeRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number, NoticeRow.seq)
        )
        with self._sessions.read() as session:
            return [
                Notice(row.seq, row.ts, row.job, row.level, row.message)
                for row in session.scalars(query)
            ]

    def environment(self, cell_id: str) -> Mapping[str, object] | None:
        """Of the last attempt that reported one."""
        query = (
            select(EnvironmentRow.document)
            .join(AttemptRow, AttemptRow.pk == EnvironmentRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number.desc())
            .limit(1)
        )
        with self._sessions.read() as session:
            return session.scalar(query)

    def artifacts(self, cell_id: str) -> list[Artifact]:
        """By name."""
        query = select(ArtifactRow).join(CellRow, CellRow.pk == ArtifactRow.cell)
        mine = query.where(CellRow.id == cell_id).order_by(ArtifactRow.name)
        with self._sessions.read() as session:
            return [Artifact(row.name, row.digest, row.size_bytes) for row in session.scalars(mine)]

    def put_artifacts(self, cell_id: str, artifacts: Sequence[Artifact]) -> None:
        """Add or replace by name."""
        if not artifacts:
            return
        with self._sessions.write() as session:
            keep_artifacts(session, cell_row(session, cell_id).pk, artifacts)


def keep_artifacts(session: Session, cell_pk: int, artifacts: Sequence[Artifact]) -> None:
    """Add or replace by name, within the caller's transaction."""
    insert = insert_into(session, ArtifactRow)
    new = insert.excluded
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "name"],
        set_={"digest": new.digest, "size_bytes": new.size_bytes},
    )
    rows = {
        name: {"cell": cell_pk, "name": name, "digest": a.digest, "size_bytes": a.size_bytes}
        for a in artifacts
        for name in [short(a.name)]
    }
    if rows:
        session.execute(statement, [rows[name] for name in sorted(rows)])


def _current(query: Select[R], row: type[R], cell_id: str) -> Select[R]:
    """Only what the job's present attempt stated."""
    job = and_(JobResultRow.cell == CellRow.pk, JobResultRow.job == row.job)
    return (
        query.join(AttemptRow, AttemptRow.pk == row.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(JobResultRow, job, isouter=True)
        .where(CellRow.id == cell_id)
        .where(or_(JobResultRow.attempt.is_(None), JobResultRow.attempt == row.attempt))
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A row of a test's result."""

    job: str
    nodeid: str
    outcome: int
    final: bool
    duration_us: int
    reason: str
    message: str
    text: bytes | None
    earlier: str | None


def _test(row: _Told) -> TestFact:
    return TestFact(
        job=sys.intern(row.job),  # there are few of them, and as many rows as tests
        nodeid=row.nodeid,
        outcome=TestOutcome(row.outcome),
        final=row.final,
        duration_s=row.duration_us / 1_000_000,
        reason=row.reason,
        message=row.message,
        text=zlib.decompress(row.text).decode() if row.text is not None else "",
        earlier=read_earlier(row.earlier),
    )


def _job(row: JobResultRow) -> JobFact:
    return JobFact(**{name: getattr(row, name) for name in _JOB_FIELDS})


def _metric(row: MetricRow) -> MetricFact:
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
