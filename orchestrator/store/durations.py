"""Durations of tests and jobs over a product's newest runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import (
    ScalarSelect,
    Subquery,
    func,
    literal,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.column_types import short
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import CellRow, JobResultRow, RunRow, TestCaseRow, TestResultRow
from orchestrator.store.tables.results import SLOW_US

_RESULTS = 20
"""Number of newest results of a test or job that are read, of finished cells."""
_RUNS = 20
"""Number of earlier runs that a duration is compared with."""
_TESTS = 1_000
_AT_ONCE = 100
"""Maximum jobs of one statement, because databases limit its columns."""
_RAN = (TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.XFAILED, TestOutcome.XPASSED)
"""Outcomes whose durations count; durations of hung or crashed tests do not."""


class DurationStore:
    """Durations of tests and jobs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def longest(
        self, product: str, jobs: Sequence[str]
    ) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Return the longest recent silences and test durations of jobs, in seconds.

        Returns:
            By job, the longest silence while no test ran; and by job and node id, the duration of
            tests that took longer than `SLOW_US` microseconds.
        """
        silences: dict[str, float] = {}
        tests: dict[str, dict[str, float]] = {}
        with self._sessions.read() as session:
            for first in range(0, len(jobs), _AT_ONCE):
                some = jobs[first : first + _AT_ONCE]
                idle = (
                    select(literal(job), null(), _longest_silence(product, job)) for job in some
                )
                rows = session.execute(union_all(select(_long_tests(product, some)), *idle))
                for job, nodeid, longest in rows:
                    if nodeid is not None:
                        tests.setdefault(job, {})[nodeid] = longest / 1_000_000
                    elif longest is not None:
                        silences[job] = longest
        return silences, tests

    def slowest(self, run_id: str, *, cell: str | None = None, limit: int) -> list[TestDuration]:
        """Return a run's slowest tests, with their earlier durations.

        Args:
            run_id: The run.
            cell: Name of the only cell; None: all.
            limit: Maximum number.
        """
        query = (
            select(
                *(TestCaseRow.id, TestCaseRow.job, TestCaseRow.nodeid, CellRow.name),
                *(TestResultRow.outcome, TestResultRow.duration_us, RunRow.product),
            )
            .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
            .join(CellRow, CellRow.pk == TestResultRow.cell)
            .join(RunRow, RunRow.id == CellRow.run_id)
            .where(CellRow.run_id == run_id, TestResultRow.final.is_(True))
            .order_by(TestResultRow.duration_us.desc(), TestCaseRow.id, CellRow.position)
            .limit(limit)
        )
        if cell is not None:
            query = query.where(CellRow.name == cell)
        with self._sessions.read() as session:
            rows = session.execute(query).all()
            if not rows:
                return []
            before = _earlier(session, run_id, rows[0].product, {row.id for row in rows})
        return [
            TestDuration(
                test_id=row.id,
                cell=row.name,
                job=row.job,
                nodeid=row.nodeid,
                outcome=TestOutcome(row.outcome).word,
                duration_s=row.duration_us / 1_000_000,
                earlier_s=tuple(before.get((row.id, row.name), ())),
            )
            for row in rows
        ]


def _earlier(
    session: Session, run_id: str, product: str, tests: Collection[int]
) -> dict[tuple[int, str], list[float]]:
    """Return seconds of earlier runs by test and cell name, newest last."""
    runs = (
        select(RunRow.id)
        .where(RunRow.product == product, RunRow.id < run_id)
        .order_by(RunRow.id.desc())
        .limit(_RUNS)
    )
    query = (
        select(TestResultRow.test_id, CellRow.name, TestResultRow.duration_us)
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .where(
            TestResultRow.test_id.in_(sorted(tests)),
            TestResultRow.outcome.in_([outcome.value for outcome in _RAN]),
            TestResultRow.final.is_(True),
            CellRow.run_id.in_(session.scalars(runs).all()),
        )
        .order_by(CellRow.run_id)
    )
    found: dict[tuple[int, str], list[float]] = {}
    for test_id, name, duration_us in session.execute(query):
        found.setdefault((test_id, name), []).append(duration_us / 1_000_000)
    return found


def _long_tests(product: str, jobs: Sequence[str]) -> Subquery:
    """Select job, node id and longest recent duration, in microseconds, of slow tests."""
    newest = (
        select(TestResultRow.duration_us)
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .where(
            TestResultRow.test_id == TestCaseRow.id,
            TestResultRow.outcome.in_([outcome.value for outcome in _RAN]),
            TestResultRow.final.is_(True),
            CellRow.state == CellState.DONE,
        )
        .order_by(TestResultRow.cell.desc())
        .limit(_RESULTS)
        .correlate(TestCaseRow)
        .subquery()
    )
    longest = select(func.max(newest.c.duration_us)).scalar_subquery().label("longest")
    # A constant, because only then the index of slow results is used.
    slow = TestResultRow.duration_us > literal_column(str(SLOW_US))
    known = (
        select(TestCaseRow.job, TestCaseRow.nodeid, longest)
        .where(
            TestCaseRow.product == product,
            TestCaseRow.job.in_([short(job) for job in jobs]),
            TestCaseRow.id.in_(select(TestResultRow.test_id).where(slow)),
        )
        .subquery()
    )
    return (
        select(known)
        .where(known.c.longest > SLOW_US)
        .order_by(known.c.longest.desc(), known.c.nodeid)
        .limit(_TESTS)
        .subquery()
    )


def _longest_silence(product: str, job: str) -> ScalarSelect[float | None]:
    newest = (
        select(JobResultRow.longest_idle_s)
        .join(CellRow, CellRow.pk == JobResultRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .where(
            JobResultRow.job == short(job),
            func.coalesce(JobResultRow.cause, "") == "",
            JobResultRow.longest_idle_s.is_not(None),
            CellRow.state == CellState.DONE,
            RunRow.product == product,
        )
        .order_by(JobResultRow.cell.desc())
        .limit(_RESULTS)
        .subquery()
    )
    return select(func.max(newest.c.longest_idle_s)).scalar_subquery()
