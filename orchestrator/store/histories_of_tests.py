"""Tests of a product, and their results over time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from orchestrator.domain.flaky import TestRun
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.cells import Cells, cells_of
from orchestrator.store.column_types import short
from orchestrator.store.failure_groups import of_result, read_earlier
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, cursor_value
from orchestrator.store.tables import CellRow, RunRow, TestCaseRow, TestResultRow, TestRetryRow


class TestStore:
    """Tests of all products."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def page(
        self,
        *,
        product: str | None,
        job: str | None,
        contains: str,
        limit: int,
        after: int | None,
    ) -> ListPage[KnownTest, int]:
        """Return tests by number, after a cursor, in any order within a batch."""
        query = _tests().order_by(TestCaseRow.id).limit(limit + 1)
        if product is not None:
            query = query.where(TestCaseRow.product == product)
        if job is not None:
            query = query.where(TestCaseRow.job == short(job))
        if contains:
            query = query.where(TestCaseRow.nodeid.contains(contains, autoescape=True))
        if after is not None:
            query = query.where(TestCaseRow.id > cursor_value(after))
        with self._sessions.read() as session:
            found = list(_read(session, query))
        more = len(found) > limit
        return ListPage(found[:limit], found[limit - 1].id if more else None)

    def get(self, test_id: int) -> KnownTest | None:
        """Return the test, or None."""
        with self._sessions.read() as session:
            return next(_read(session, _tests().where(TestCaseRow.id == test_id)), None)

    def of_run(self, run_id: str) -> list[KnownTest]:
        """Return every test with a result in a run, each once."""
        mine = (
            select(TestResultRow.test_id)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .where(CellRow.run_id == run_id)
        )
        query = _tests().where(TestCaseRow.id.in_(mine)).order_by(TestCaseRow.id)
        with self._sessions.read() as session:
            return list(_read(session, query))

    def history(self, test_ids: Collection[int], *, limit: int) -> list[TestRun]:
        """Return the newest results of these tests, newest first."""
        query = (
            select(
                TestResultRow,
                TestCaseRow.nodeid,
                TestRetryRow.earlier,
                RunRow.id,
                RunRow.subject_version,
                RunRow.build,
                RunRow.created_at,
            )
            .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .join(RunRow, RunRow.id == CellRow.run_id)
            .join(TestRetryRow, of_result(), isouter=True)
            .where(TestResultRow.test_id.in_(sorted(test_ids)))
            .order_by(RunRow.id.desc(), CellRow.position, TestResultRow.test_id)
            .limit(limit)
        )
        with self._sessions.read() as session:
            rows = [_Result(*row) for row in session.execute(query)]
            cells = cells_of(session, {row.result.cell for row in rows})
        gone = [_go(row, cells) for row in rows]
        return sorted(gone, key=lambda one: one.at, reverse=True)


def _tests() -> Select[int, str, str, str]:
    return select(TestCaseRow.id, TestCaseRow.product, TestCaseRow.job, TestCaseRow.nodeid)


def _read(session: Session, query: Select[int, str, str, str]) -> Iterator[KnownTest]:
    return (KnownTest(*row) for row in session.execute(query))


@dataclass(frozen=True, slots=True)
class _Result:
    """A row of a test's history."""

    result: TestResultRow
    nodeid: str
    earlier: str | None
    run_id: str
    version: str
    build: str
    launched: datetime

    @property
    def outcome(self) -> TestOutcome:
        """Return the outcome to count; an unfinished one is missing unless its job was aborted."""
        outcome = TestOutcome(self.result.outcome)
        is_known = self.result.final or outcome is TestOutcome.NOT_RUN
        return outcome if is_known else TestOutcome.MISSING


def _go(row: _Result, cells: Cells) -> TestRun:
    result, cell = row.result, cells[row.result.cell]
    return TestRun(
        run=row.run_id,
        version=row.version,
        build=row.build,
        platform=cell.platform,
        outcome=row.outcome,
        earlier=read_earlier(row.earlier),
        at=cell.dated_at or row.launched,
        cell=cell.name,
        test=result.test_id,
        nodeid=row.nodeid,
        duration_s=result.duration_us / 1_000_000,
        reason=result.reason,
        message=result.message,
        signature=result.signature or "",
    )
