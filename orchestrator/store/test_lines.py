"""The tests of one cell, page by page, the worst first."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, and_, case, or_, select, tuple_
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.column_types import short
from orchestrator.store.failure_signatures import of_result, read_earlier
from orchestrator.store.rollups import COUNTED
from orchestrator.store.tables import CellRow, TestCaseRow, TestResultRow, TestRetryRow, TextRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsAsked:
    """Which tests of a cell are asked for; what is empty takes any."""

    __test__ = False

    outcome: TestOutcome | None = None
    job: str = ""
    contains: str = ""
    """Of the node id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLine:
    """How one test went, without its long text."""

    __test__ = False

    test_id: int
    job: str
    nodeid: str
    outcome: TestOutcome
    """As it counts: one that is not final is missing, unless its job gave up."""
    duration_s: float = 0.0
    reason: str = ""
    message: str = ""
    signature: str = ""
    earlier: Sequence[TestOutcome] = ()
    """Outcomes of tries before the last one."""
    has_text: bool = False
    """There is a traceback."""


@dataclass(frozen=True, slots=True)
class TestLines:
    """Tests of a cell, the worst first."""

    __test__ = False

    lines: Sequence[TestLine] = ()
    next: str = ""
    """The cursor of those that follow; empty where none do."""


_WORST = (TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.MISSING, TestOutcome.NOT_RUN)
_RANK: ColumnElement[int] = case(
    {outcome.value: rank for rank, outcome in enumerate(_WORST)},
    value=COUNTED,
    else_=len(_WORST),
)
_PLACE = tuple_(_RANK, TestResultRow.cell, TestResultRow.position, TestResultRow.test_id)
"""No two results have the same."""
_CURSOR = re.compile(r"([0-9]{1,2})\.([0-9]{1,9})\.([0-9]{1,18})\.([0-9]{1,9})")


def page_of(
    session: Session,
    cell_id: str,
    lent: Mapping[str, Sequence[str]],
    asked: TestsAsked,
    *,
    limit: int,
    after: str,
) -> TestLines:
    """So many tests after a place."""
    query = _lines(cell_id, lent).where(*_asked(asked)).order_by(*_PLACE.clauses).limit(limit + 1)
    if (place := _CURSOR.fullmatch(after)) is not None:
        query = query.where(tuple_(*map(int, place.groups())) < _PLACE)
    rows = session.execute(query).all()
    shown = rows[:limit]
    following = ".".join(map(str, shown[-1][-4:])) if len(rows) > limit else ""
    return TestLines([_line(row) for row in shown], following)


def line_of(
    session: Session, cell_id: str, lent: Mapping[str, Sequence[str]], test_id: int
) -> tuple[TestLine, str] | None:
    """One test, with its long text."""
    query = (
        _lines(cell_id, lent)
        .add_columns(TextRow.body)
        .join(TextRow, TextRow.digest == TestResultRow.text_digest, isouter=True)
        .where(TestResultRow.test_id == test_id)
        .order_by(CellRow.id != cell_id)
        .limit(1)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    return _line(row), zlib.decompress(row.body).decode() if row.body is not None else ""


def _lines(cell_id: str, lent: Mapping[str, Sequence[str]]) -> Select[*tuple[Any, ...]]:
    places = [CellRow.id == cell_id]
    places += [
        and_(CellRow.id == cell, TestCaseRow.job.in_([short(job) for job in jobs]))
        for cell, jobs in lent.items()
    ]
    return (
        select(
            *(TestResultRow.test_id, TestCaseRow.job, TestCaseRow.nodeid),
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


def _asked(asked: TestsAsked) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if asked.outcome is not None:
        wanted.append(COUNTED.in_([asked.outcome.value]))
    if asked.job:
        wanted.append(TestCaseRow.job == short(asked.job))
    if asked.contains:
        wanted.append(TestCaseRow.nodeid.contains(asked.contains, autoescape=True))
    return wanted


def _line(row: Row[*tuple[Any, ...]]) -> TestLine:
    return TestLine(
        test_id=row.test_id,
        job=row.job,
        nodeid=row.nodeid,
        outcome=TestOutcome(row.counted),
        duration_s=row.duration_us / 1_000_000,
        reason=row.reason,
        message=row.message,
        signature=row.signature or "",
        earlier=read_earlier(row.earlier),
        has_text=row.has_text,
    )
