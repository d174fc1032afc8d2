"""How single tests went over time, by the names of cells."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.failure_signatures import of_result, read_earlier
from orchestrator.store.rollups import COUNTED
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import (
    CellRow,
    IngestRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGo:
    """How a test went in a cell, with what its history shows of it."""

    number: int
    """The cell's."""
    run: str
    cell: str
    version: str
    at: datetime
    test: int
    outcome: TestOutcome
    is_alive: bool
    """The cell is not done: what is missing may still come."""
    earlier: tuple[TestOutcome, ...]
    """Of its tries before the last one."""
    duration_s: float
    signature: str


class TestStrips:
    """The part of the GridStore that follows single tests."""

    _sessions: Sessions

    def strips(
        self, tests: Collection[int], *, each: int, cell: str = "", before: str = ""
    ) -> list[CellGo]:
        """By cell's name so many newest results of these tests, the newest first.

        `cell` asks for one name alone; `before` is a run that all of them are older than.
        """
        order = func.row_number().over(partition_by=CellRow.name, order_by=CellRow.run_id.desc())
        ranked = (
            select(TestResultRow.cell, TestResultRow.test_id, order.label("place"))
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .where(TestResultRow.test_id.in_(sorted(tests)))
        )
        if cell:
            ranked = ranked.where(CellRow.name == cell)
        if before:
            ranked = ranked.where(CellRow.run_id < before)
        newest = ranked.subquery()
        same = (
            TestResultRow.cell == newest.c.cell,
            TestResultRow.test_id == newest.c.test_id,
        )
        query = _goes().join(newest, and_(*same)).where(newest.c.place <= each)
        with self._sessions.read() as session:
            return _read(session, query.order_by(RunRow.id.desc(), CellRow.position))

    def said(self, cell: int, test: int) -> str:
        """The message of a result; empty where there is none."""
        query = select(TestResultRow.message)
        query = query.where(TestResultRow.cell == cell, TestResultRow.test_id == test)
        with self._sessions.read() as session:
            return session.scalar(query) or ""

    def last(self, tests: Collection[int]) -> list[CellGo]:
        """The newest result of each, by the end of its part of the index."""
        newest = (
            select(func.max(TestResultRow.cell))
            .where(TestResultRow.test_id == TestCaseRow.id)
            .correlate(TestCaseRow)
            .scalar_subquery()
        )
        found = (
            select(TestCaseRow.id.label("test"), newest.label("cell"))
            .where(TestCaseRow.id.in_(sorted(tests)))
            .subquery()
        )
        same = (TestResultRow.cell == found.c.cell, TestResultRow.test_id == found.c.test)
        with self._sessions.read() as session:
            return _read(session, _goes().join(found, and_(*same)))


def _goes() -> Select[*tuple[Any, ...]]:
    """A row of what `_read` reads."""
    run = (RunRow.id, RunRow.subject_version, RunRow.created_at)
    result = (TestResultRow.test_id, COUNTED, TestResultRow.duration_us, TestResultRow.signature)
    return (
        select(CellRow.pk, CellRow.name, CellRow.state, *run, *result, TestRetryRow.earlier)
        .add_columns(IngestRow)
        .select_from(TestResultRow)
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(TestRetryRow, of_result(), isouter=True)
        .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
    )


def _read(session: Session, query: Select[*tuple[Any, ...]]) -> list[CellGo]:
    return [
        CellGo(
            number=pk,
            run=run,
            cell=name,
            version=version,
            at=launched if ingest is None else ingest.document.dated_at,
            test=test,
            outcome=TestOutcome(outcome),
            is_alive=state is not CellState.DONE,
            earlier=read_earlier(earlier),
            duration_s=took / 1_000_000,
            signature=signature or "",
        )
        for pk, name, state, run, version, launched, *result in session.execute(query)
        for test, outcome, took, signature, earlier, ingest in (result,)
    ]
