"""Counting tests: while a cell is alive by a query, once it is done by a stored row."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import case, func, insert, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.store.sql import changed
from orchestrator.store.tables import (
    AttemptRow,
    CellRollupRow,
    JobResultRow,
    JobRollupRow,
    LeaseRow,
    TestCaseRow,
    TestResultRow,
)

COUNTED: ColumnElement[int] = case(
    (TestResultRow.final, TestResultRow.outcome),
    (TestResultRow.outcome == TestOutcome.NOT_RUN.value, TestResultRow.outcome),
    else_=TestOutcome.MISSING.value,
)
"""What a result counts as: one that is not final is missing, unless its job gave up."""


def tally(session: Session, cell_pk: int) -> dict[str, dict[TestOutcome, int]]:
    """How many tests of each job have which outcome, in one statement."""
    query = (
        select(TestCaseRow.job, COUNTED.label("counted"), func.count())
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(TestResultRow.cell == cell_pk)
        .group_by(TestCaseRow.job, "counted")
        .order_by(TestCaseRow.job, "counted")
    )
    tallies: dict[str, dict[TestOutcome, int]] = {}
    for job, outcome, number in session.execute(query):
        tallies.setdefault(job, {})[TestOutcome(outcome)] = number
    return tallies


def write_rollup(session: Session, cell_pk: int, *, at: datetime) -> None:
    """Keep the cell's counts and cost, within the transaction that concludes it."""
    total = Counts()
    counted = {job: Counts.of(tests) for job, tests in tally(session, cell_pk).items()}
    for job, unnamed in _unnamed(session, cell_pk).items():
        counted[job] = counted.get(job, Counts()) + unnamed
    for job, counts in counted.items():
        total = total + counts
        row = {"cell": cell_pk, "job": job, **counts.as_dict()}
        session.execute(insert(JobRollupRow).values(row))
    cost = _cost_usd(session, cell_pk)
    row = {"cell": cell_pk, "cost_usd": cost, "concluded_at": at, **total.as_dict()}
    session.execute(insert(CellRollupRow).values(row))


def _unnamed(session: Session, cell_pk: int) -> dict[str, Counts]:
    """By job, the tests that a source counts without naming them."""
    query = select(JobResultRow.job, JobResultRow.unnamed).where(JobResultRow.cell == cell_pk)
    rows = session.execute(query.where(JobResultRow.unnamed.is_not(None)).order_by("job"))
    return {job: unnamed for job, unnamed in rows if unnamed is not None}


def mend_cost(session: Session, attempt_pk: int) -> None:
    """Bring the cost up to date where a machine is settled after its cell was concluded."""
    mine = select(AttemptRow.cell).where(AttemptRow.pk == attempt_pk).scalar_subquery()
    cell_pk = session.scalar(select(CellRollupRow.cell).where(CellRollupRow.cell == mine))
    if cell_pk is not None:
        cost = {"cost_usd": _cost_usd(session, cell_pk)}
        changed(session, update(CellRollupRow).where(CellRollupRow.cell == cell_pk).values(cost))


def _cost_usd(session: Session, cell_pk: int) -> Decimal:
    query = (
        select(LeaseRow.cost_usd)
        .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
        .where(AttemptRow.cell == cell_pk, LeaseRow.cost_usd.is_not(None))
    )
    return sum((cost for cost in session.scalars(query) if cost is not None), Decimal(0))
