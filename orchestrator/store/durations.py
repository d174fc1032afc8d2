"""Durations of tests and jobs over a product's newest runs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, func, select

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.column_types import short
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import CellRow, JobResultRow, RunRow, TestCaseRow, TestResultRow

_CELLS = 20
"""Number of newest finished cells that are read."""
_TESTS = 1_000
_RAN = (TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.XFAILED, TestOutcome.XPASSED)
"""Outcomes whose duration counts: not of tests that hung or crashed."""


class DurationStore:
    """Durations of tests and jobs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def long_tests(
        self, product: str, jobs: Sequence[str], *, over_s: float
    ) -> dict[str, dict[str, float]]:
        """Return the longest recent duration of slow tests in seconds, by job and node id.

        Args:
            product: Whose tests.
            jobs: Ids.
            over_s: Only tests that took longer.
        """
        longest = func.max(TestResultRow.duration_us).label("longest")
        query = (
            select(TestCaseRow.job, TestCaseRow.nodeid, longest)
            .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
            .where(
                TestResultRow.duration_us > round(over_s * 1_000_000),
                TestResultRow.outcome.in_([outcome.value for outcome in _RAN]),
                TestResultRow.final.is_(True),
                TestCaseRow.job.in_([short(job) for job in jobs]),
            )
            .group_by(TestCaseRow.job, TestCaseRow.nodeid)
            .order_by(longest.desc())
            .limit(_TESTS)
        )
        found: dict[str, dict[str, float]] = {}
        with self._sessions.read() as session:
            mine = query.where(TestResultRow.cell.in_(_newest_cells(product)))
            for job, nodeid, longest_us in session.execute(mine):
                found.setdefault(job, {})[nodeid] = longest_us / 1_000_000
        return found

    def longest_silences(self, product: str, jobs: Sequence[str]) -> dict[str, float]:
        """Return the longest recent silence of jobs in seconds while no test ran, by job."""
        query = (
            select(JobResultRow.job, func.max(JobResultRow.longest_silence_s))
            .where(
                func.coalesce(JobResultRow.cause, "") == "",
                JobResultRow.longest_silence_s.is_not(None),
                JobResultRow.job.in_([short(job) for job in jobs]),
            )
            .group_by(JobResultRow.job)
        )
        with self._sessions.read() as session:
            rows = session.execute(query.where(JobResultRow.cell.in_(_newest_cells(product))))
            return {job: seconds or 0.0 for job, seconds in rows}


def _newest_cells(product: str) -> Select[int]:
    return (
        select(CellRow.pk)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .where(RunRow.product == product, CellRow.state == CellState.DONE)
        .order_by(RunRow.id.desc())
        .limit(_CELLS)
    )
