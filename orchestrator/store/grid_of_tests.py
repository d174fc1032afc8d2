"""Test grids: results of tests by cells, reading only the rows that a page shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, case, exists, func, or_, select, tuple_
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import CellState
from orchestrator.domain.compare_tests import beginning_of
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.store.benchmark_rollup import COUNTED
from orchestrator.store.column_types import short
from orchestrator.store.failure_groups import IS_BAD, of_result, read_earlier
from orchestrator.store.run_comparison import COLLECTION
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import is_postgres, slices, whole_runs
from orchestrator.store.tables import (
    CellRollupRow,
    CellRow,
    IngestRow,
    JobResultRow,
    JobRollupRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """A cell of a run, as a column of the grid."""

    number: int
    """Key for the other methods."""
    run: str
    name: str
    version: str
    build: str
    """Digest of what was tested."""
    at: datetime
    """Launch time of the run; of ingested evidence, the stated time."""
    origin: str
    """``ingested (structured)`` of evidence that no agent produced; else empty."""
    state: CellState
    outcome: Outcome | None
    counts: Counts
    """None while the cell is unfinished."""

    @property
    def is_done(self) -> bool:
        """Whether the cell is done."""
        return self.state is CellState.DONE


@dataclass(frozen=True, slots=True)
class TestsWanted:
    """Filter for tests of a grid."""

    __test__ = False

    words: Sequence[str] = ()
    """Words that the node id must contain; `*` matches anything."""
    without: Sequence[str] = ()
    """Words that the node id must not contain."""
    job: str = ""


ANY_TEST = TestsWanted()


@dataclass(frozen=True, slots=True)
class GridMark:
    """The result of a test in a cell."""

    cell: int
    test: int
    outcome: TestOutcome
    """MISSING if the test was not reported, in running cells too."""
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The result of a test in a cell, with its history."""

    number: int
    """Number of the cell."""
    run: str
    cell: str
    version: str
    build: str
    """Digest of what was tested."""
    at: datetime
    origin: str
    """``ingested (structured)`` of evidence that no agent produced; else empty."""
    test: int
    outcome: TestOutcome
    is_alive: bool
    """Whether the cell is unfinished, so that missing results may still arrive."""
    earlier: tuple[TestOutcome, ...]
    """Outcomes of earlier tries."""
    duration_s: float
    signature: str


NEWEST_RUNS = 200
"""Number of newest runs that determine a product's cells."""
_COUNTS = tuple(Counts().as_dict())


class GridStore:
    """Results of tests by the cells of runs.

    Partial reruns are no columns, as in `ReleaseStore`. Each method is one transaction, with one
    statement for each thousand of the given cells or tests.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def names(self, product: str) -> list[str]:
        """Return cell names of the product's newest runs, newest first, in matrix order.

        Names of ingested cells alone are last.
        """
        newest = (
            select(RunRow.id)
            .where(RunRow.product == product, RunRow.rerun_of.is_(None))
            .order_by(RunRow.id.desc())
            .limit(NEWEST_RUNS)
        )
        query = (
            select(
                CellRow.name,
                func.max(CellRow.run_id),
                func.min(CellRow.position),
                func.max(case((IngestRow.cell.is_(None), CellRow.run_id), else_="")),
            )
            .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
            .where(CellRow.run_id.in_(newest))
            .group_by(CellRow.name)
        )
        with self._sessions.read() as session:
            found = session.execute(query).all()
        in_matrix = sorted(found, key=lambda row: (row[2], row[0]))
        newest_first = sorted(in_matrix, key=lambda row: (row[3], row[1]), reverse=True)
        return [name for name, *_ in newest_first]

    def jobs(self, product: str) -> list[str]:
        """Return jobs with tests, by name."""
        query = select(TestCaseRow.job).where(TestCaseRow.product == product).distinct()
        return sorted(self._sessions.scalars(query))

    def newest(self, product: str, name: str, *, limit: int) -> list[GridCell]:
        """Return cells of this name with tests, or unfinished ones; newest runs first."""
        mine = (RunRow.product == product, CellRow.name == name)
        has_tests = exists().where(JobRollupRow.cell == CellRow.pk)
        testing = (
            select(RunRow.matrix_name)
            .join(CellRow, CellRow.run_id == RunRow.id)
            .where(*mine, or_(has_tests, CellRow.state != CellState.DONE))
            .distinct()
        )
        is_shown = or_(CellRow.outcome.is_(None), CellRow.outcome != Outcome.PASSED, has_tests)
        with self._sessions.read() as session:
            matrices = session.scalars(testing).all()
            query = (
                _cells()
                .where(*mine, RunRow.matrix_name.in_(matrices), is_shown, whole_runs(session))
                .order_by(CellRow.run_id.desc())
                .limit(limit)
            )
            return _read_cells(session, query)

    def of_run(self, run: str) -> list[GridCell]:
        """Return cells in matrix order."""
        query = _cells().where(CellRow.run_id == run).order_by(CellRow.position)
        with self._sessions.read() as session:
            return _read_cells(session, query)

    def unreported(self, cells: Collection[int]) -> list[tuple[int, int]]:
        """Return (cell, test) of collected tests without a final result."""
        query = select(TestResultRow.cell, TestResultRow.test_id).where(~TestResultRow.final)
        with self._sessions.read() as session:
            return [
                (cell, test)
                for some in slices(sorted(cells))
                for cell, test in session.execute(query.where(TestResultRow.cell.in_(some)))
            ]

    def some(self, tests: Collection[int], wanted: TestsWanted = ANY_TEST) -> list[KnownTest]:
        """Return the tests that match the filter."""
        query = _tests().where(*_are(wanted))
        with self._sessions.read() as session:
            return [
                KnownTest(*row)
                for some in slices(sorted(tests))
                for row in session.execute(query.where(TestCaseRow.id.in_(some)))
            ]

    def after(
        self,
        cells: Collection[int],
        wanted: TestsWanted,
        *,
        after: KnownTest | None,
        limit: int,
    ) -> list[KnownTest]:
        """Return tests of the cells in the order of their node ids, after the given test."""
        mine = select(TestResultRow.test_id).where(TestResultRow.cell.in_(sorted(cells)))
        query = _tests().where(TestCaseRow.id.in_(mine), *_are(wanted)).limit(limit)
        with self._sessions.read() as session:
            name = _by_bytes(session)
            if after is not None:
                later = and_(name == after.nodeid, TestCaseRow.id > after.id)
                query = query.where(or_(name > after.nodeid, later))
            rows = session.execute(query.order_by(name, TestCaseRow.id))
            return [KnownTest(*row) for row in rows]

    def marks(self, cells: Collection[int], tests: Collection[int]) -> list[GridMark]:
        """Return the results of the tests in the cells."""
        query = select(
            *(TestResultRow.cell, TestResultRow.test_id, COUNTED, TestResultRow.signature)
        ).where(TestResultRow.test_id.in_(sorted(tests)))
        with self._sessions.read() as session:
            return [
                GridMark(cell, test, TestOutcome(outcome), signature or "")
                for some in slices(sorted(cells))
                for cell, test, outcome, signature in session.execute(
                    query.where(TestResultRow.cell.in_(some))
                )
            ]

    def strips(
        self, tests: Collection[int], *, each: int, cell: str = "", before: str = ""
    ) -> list[CellResult]:
        """Return the newest results of these tests by cell name, newest first.

        `cell` restricts to one cell name; `before` restricts to runs older than this one.
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

    def message(self, cell: int, test: int) -> str:
        """Return the message of a result; empty without one."""
        query = select(TestResultRow.message)
        query = query.where(TestResultRow.cell == cell, TestResultRow.test_id == test)
        return self._sessions.scalar(query) or ""

    def last(self, tests: Collection[int]) -> list[CellResult]:
        """Return the newest result of each test, by index."""
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

    def gone(self, newest: Collection[tuple[int, int]]) -> Mapping[tuple[int, str], GridCell]:
        """Return the cells since which tests are gone, by test and cell name.

        `newest` are the newest results of tests by cell name, as (test, cell). A test is gone if
        the newest finished cell of that name ran its job without it. Reruns of some jobs, jobs
        with unnamed tests, and modules that could not be collected do not count. The returned cell
        is the first finished one without the test.
        """
        with self._sessions.read() as session:
            found = [
                row
                for some in slices(sorted(newest))
                for row in session.execute(_newer_without(session, some))
            ]
            wanted = {(run, one.name) for one in found for run in (one.first, one.newest)}
            cells = {
                (cell.run, cell.name): cell
                for some in slices(sorted(wanted))
                for cell in _read_cells(session, _cells().where(_ARE_CELLS.in_(some)))
            }
            hidden = _uncollected(session, {cells[one.newest, one.name].number for one in found})
        return {
            (one.test_id, one.name): cells[one.first, one.name]
            for one in found
            if not any(
                one.nodeid.startswith(beginning)
                for beginning in hidden.get((cells[one.newest, one.name].number, one.job), ())
            )
        }


_ARE_CELLS = tuple_(CellRow.run_id, CellRow.name)


def _newer_without(
    session: Session, newest: Collection[tuple[int, int]]
) -> Select[*tuple[Any, ...]]:
    """Select the first and the newest cell that ran the job of a test after these results."""
    are_newest = tuple_(TestResultRow.test_id, TestResultRow.cell).in_(newest)
    last = (
        select(TestResultRow.test_id, CellRow.name, CellRow.run_id.label("run"))
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .where(are_newest)
        .subquery()
    )
    unnamed = exists().where(
        JobResultRow.cell == CellRow.pk,
        JobResultRow.job == TestCaseRow.job,
        JobResultRow.unnamed.is_not(None),
    )
    test = (last.c.test_id, last.c.name, TestCaseRow.job, TestCaseRow.nodeid)
    newer = and_(CellRow.name == last.c.name, CellRow.run_id > last.c.run)
    return (
        select(*test, func.min(RunRow.id).label("first"), func.max(RunRow.id).label("newest"))
        .join(TestCaseRow, TestCaseRow.id == last.c.test_id)
        .join(CellRow, newer)
        .join(RunRow, and_(RunRow.id == CellRow.run_id, RunRow.product == TestCaseRow.product))
        .join(
            JobRollupRow,
            and_(JobRollupRow.cell == CellRow.pk, JobRollupRow.job == TestCaseRow.job),
        )
        .where(CellRow.state == CellState.DONE, whole_runs(session), ~unnamed)
        .group_by(*test)
    )


def _uncollected(
    session: Session, cells: Collection[int]
) -> Mapping[tuple[int, str], Sequence[str]]:
    """Return the prefixes of node ids that could not be collected, by cell and job."""
    query = (
        select(TestResultRow.cell, TestCaseRow.job, TestCaseRow.nodeid)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(IS_BAD, TestResultRow.reason == COLLECTION)
    )
    found: dict[tuple[int, str], list[str]] = {}
    for some in slices(sorted(cells)):
        for cell, job, nodeid in session.execute(query.where(TestResultRow.cell.in_(some))):
            found.setdefault((cell, job), []).append(beginning_of(nodeid))
    return found


def _tests() -> Select[int, str, str, str]:
    return select(TestCaseRow.id, TestCaseRow.product, TestCaseRow.job, TestCaseRow.nodeid)


def _are(wanted: TestsWanted) -> Iterator[ColumnElement[bool]]:
    if wanted.job:
        yield TestCaseRow.job == short(wanted.job)
    for word in wanted.words:
        yield TestCaseRow.nodeid.ilike(_pattern(word), escape="/")
    for word in wanted.without:
        yield TestCaseRow.nodeid.not_ilike(_pattern(word), escape="/")


def _pattern(word: str) -> str:
    """Return a LIKE pattern in which only `*` is special."""
    for sign in "/%_":
        word = word.replace(sign, f"/{sign}")
    return f"%{word.replace('*', '%')}%"


def _by_bytes(session: Session) -> ColumnElement[str]:
    """Select the node id in byte order, independent of the locale."""
    name = TestCaseRow.nodeid
    return name.collate("C") if is_postgres(session) else name.expression


def _cells() -> Select[*tuple[Any, ...]]:
    """Select the columns of `_read_cells`."""
    run = (RunRow.id, RunRow.subject_version, RunRow.build, RunRow.created_at)
    cell = (CellRow.pk, CellRow.name, CellRow.state, CellRow.outcome)
    return (
        select(*run, *cell, IngestRow, *(getattr(CellRollupRow, name) for name in _COUNTS))
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellRollupRow, CellRollupRow.cell == CellRow.pk, isouter=True)
        .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
    )


def _read_cells(session: Session, query: Select[*tuple[Any, ...]]) -> list[GridCell]:
    return [
        GridCell(
            number=pk,
            run=run,
            name=name,
            version=version,
            build=build,
            at=launched if ingest is None else ingest.document.dated_at,
            origin="" if ingest is None else ingest.document.origin,
            state=state,
            outcome=outcome,
            counts=Counts(*(many or 0 for many in counted)),
        )
        for run, version, build, launched, pk, name, *told in session.execute(query)
        for state, outcome, ingest, *counted in (told,)
    ]


def _goes() -> Select[*tuple[Any, ...]]:
    """Select the columns of `_read`."""
    run = (RunRow.id, RunRow.subject_version, RunRow.build, RunRow.created_at)
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


def _read(session: Session, query: Select[*tuple[Any, ...]]) -> list[CellResult]:
    return [
        CellResult(
            number=pk,
            run=run,
            cell=name,
            version=version,
            build=build,
            at=launched if ingest is None else ingest.document.dated_at,
            origin="" if ingest is None else ingest.document.origin,
            test=test,
            outcome=TestOutcome(outcome),
            is_alive=state is not CellState.DONE,
            earlier=read_earlier(earlier),
            duration_s=took / 1_000_000,
            signature=signature or "",
        )
        for pk, name, state, run, version, build, launched, *result in session.execute(query)
        for test, outcome, took, signature, earlier, ingest in (result,)
    ]
