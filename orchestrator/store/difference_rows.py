"""The statement that sets the tests of cells against each other.

It is one `GROUP BY` over the results of both sides: no row of theirs leaves the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CTE,
    Integer,
    Select,
    SmallInteger,
    Subquery,
    and_,
    case,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.alias import AliasState
from orchestrator.domain.difference import BAD, GOOD, NEVER, Difference, beginning_of
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.failure_signatures import IS_BAD
from orchestrator.store.rollups import COUNTED
from orchestrator.store.tables import (
    CellReuseRow,
    CellRow,
    TestAliasRow,
    TestCaseRow,
    TestResultRow,
)

Pair = tuple[str, str]
"""The ids of two cells: before, after."""


KINDS = tuple(Difference)
COLLECTION = "collection"
"""Reason of the error of a module, or of a folder, that could not be collected."""
BROKEN_LIMIT = 500
"""So many of them are looked at."""
RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
"""Kinds as the database counts them: numbers are grouped faster than words."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the results of cells are: their numbers, and the jobs that they have from others."""

    numbers: Mapping[str, int]
    """By the cell's id."""
    lent: Mapping[int, Mapping[int, Sequence[str]]]
    """By the cell's number: the jobs that others have, by the other's number."""


def sources_of(session: Session, cells: Sequence[str]) -> Sources:
    """Two statements."""
    mine = select(CellRow.id, CellRow.pk).where(CellRow.id.in_(set(cells)))
    numbers: dict[str, int] = dict(session.execute(mine).all())
    query = (
        select(CellReuseRow.cell, CellReuseRow.source, CellReuseRow.job)
        .where(CellReuseRow.cell.in_(numbers.values()), CellReuseRow.source.is_not(None))
        .order_by(CellReuseRow.produced_at, CellReuseRow.job)
    )
    lent: dict[int, dict[int, list[str]]] = {}
    for cell, source, job in session.execute(query):
        if source is not None:
            lent.setdefault(cell, {}).setdefault(source, []).append(job)
    return Sources(numbers, lent)


def beside(session: Session, pairs: Sequence[Pair], product: str) -> CTE:
    """A row for each test of each pair: pair, test, before, after, what it was, where it is, kind.

    Its rows are made once, however often a statement reads them.
    """
    sources = sources_of(session, [cell for pair in pairs for cell in pair])
    both = _both(pairs, sources)
    if not _has_aliases(session, product):
        rows = select(both, null().cast(Integer).label("was")).subquery("named")
    else:
        rows = _under_new_names(both, product).subquery("named")
    kind = _kind_of(rows, _hidden(rows, _broken(session, pairs, sources)))
    return select(rows, kind.label("kind")).cte("beside")


def _broken(
    session: Session, pairs: Sequence[Pair], sources: Sources
) -> Sequence[tuple[int, str, str]]:
    """What the newer sides could not collect: place of the pair, job, node id."""
    places = {sources.numbers[pair[1]]: at for at, pair in enumerate(pairs)}
    failed = (
        TestResultRow.cell.in_(places),
        IS_BAD,
        TestResultRow.reason == COLLECTION,
    )
    query = (
        select(TestResultRow.cell, TestCaseRow.job, TestCaseRow.nodeid)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .where(*failed)
        .order_by(TestCaseRow.id)
        .limit(BROKEN_LIMIT)
    )
    return [(places[cell], job, nodeid) for cell, job, nodeid in session.execute(query)]


def _hidden(rows: Subquery, broken: Sequence[tuple[int, str, str]]) -> ColumnElement[bool] | None:
    """Whether the test is of something that could not be collected; None where all could."""
    if not broken:
        return None
    ways = (
        and_(
            rows.c.pair == at,
            TestCaseRow.job == job,
            TestCaseRow.nodeid.startswith(beginning_of(nodeid), autoescape=True),
        )
        for at, job, nodeid in broken
    )
    return exists(select(TestCaseRow.id).where(TestCaseRow.id == rows.c.test, or_(*ways)))


def _both(pairs: Sequence[Pair], sources: Sources) -> CTE:
    """The results of both sides: the cells' own, and those that they have from others."""
    sides = [{sources.numbers[pair[side]]: at for at, pair in enumerate(pairs)} for side in (0, 1)]
    own = union_all(*(_own(side, cells) for side, cells in enumerate(sides))).cte("own")
    # Some dozen cells: once they are a table, Postgres starts no workers, which take longer to
    # come than they have to do.
    parts = [_told(own.prefix_with("MATERIALIZED", dialect="postgresql"))]
    if sources.lent:
        lent = union_all(*(_lent(side, cells) for side, cells in enumerate(sides))).cte("lent")
        of_job = (TestCaseRow.id == TestResultRow.test_id) & (TestCaseRow.job == lent.c.job)
        parts.append(_told(lent).join(TestCaseRow, of_job))
    told = union_all(*parts).subquery("told")
    columns = [
        func.max(case((told.c.side == side, told.c[name]))).label(f"{when}{suffix}")
        for name, suffix in (("counted", ""), ("cell", "_cell"))
        for side, when in enumerate(("before", "after"))
    ]
    grouped = select(told.c.pair, told.c.test, *columns)
    return grouped.group_by(told.c.pair, told.c.test).cte("both")


def _own(side: int, cells: Mapping[int, int]) -> Select[int, int, int]:
    """Cells with their pairs and their side."""
    pair = case(cells, value=CellRow.pk).label("pair")
    query = select(CellRow.pk.label("cell"), pair, literal(side, SmallInteger).label("side"))
    return query.where(CellRow.pk.in_(cells))


def _lent(side: int, cells: Mapping[int, int]) -> Select[int, int, int, str]:
    """Other cells, with what they were asked for."""
    row = CellReuseRow
    pair = case(cells, value=row.cell).label("pair")
    told = (row.source.label("cell"), pair, literal(side, SmallInteger).label("side"), row.job)
    return select(*told).where(row.cell.in_(cells), row.source.is_not(None))


def _told(cells: CTE) -> Select[int, int, int, int, int]:
    """Their results."""
    told = (cells.c.pair, cells.c.side, TestResultRow.test_id.label("test"))
    return select(*told, COUNTED.label("counted"), TestResultRow.cell).join_from(
        cells, TestResultRow, TestResultRow.cell == cells.c.cell
    )


def _has_aliases(session: Session, product: str) -> bool:
    mine = (TestAliasRow.product == product, TestAliasRow.state == AliasState.CONFIRMED)
    return bool(session.scalar(select(exists().where(*mine))))


def _under_new_names(both: CTE, product: str) -> Select[Any]:
    """Tests that went, and came under another name that a person has confirmed."""
    moved = _moved(both, product)
    old, left = both.alias("old"), moved.alias("left")
    gone = select(left.c.old).where(left.c.pair == both.c.pair, left.c.old == both.c.test)
    return (
        select(
            *(both.c.pair, both.c.test),
            func.coalesce(both.c.before, old.c.before).label("before"),
            both.c.after,
            func.coalesce(both.c.before_cell, old.c.before_cell).label("before_cell"),
            both.c.after_cell,
            old.c.test.label("was"),
        )
        .join(moved, and_(moved.c.pair == both.c.pair, moved.c.new == both.c.test), isouter=True)
        .join(old, and_(old.c.pair == moved.c.pair, old.c.test == moved.c.old), isouter=True)
        .where(~gone.exists())
    )


def _moved(both: CTE, product: str) -> CTE:
    """Pair, old and new number of such tests."""
    renamed = _renamed(product)
    went, came = both.alias("went"), both.alias("came")
    return (
        select(went.c.pair, func.min(went.c.test).label("old"), came.c.test.label("new"))
        .join(renamed, renamed.c.old == went.c.test)
        .join(came, and_(came.c.pair == went.c.pair, came.c.test == renamed.c.new))
        .where(went.c.after.is_(None), came.c.before.is_(None))
        .group_by(went.c.pair, came.c.test)
        .cte("moved")
    )


def _renamed(product: str) -> CTE:
    """Old and new numbers, over any number of steps."""
    mine = (TestAliasRow.product == product, TestAliasRow.state == AliasState.CONFIRMED)
    first = select(TestAliasRow.old_test.label("old"), TestAliasRow.new_test.label("new"))
    chain = first.where(*mine).cte("renamed", recursive=True)
    step = aliased(TestAliasRow)
    further = select(chain.c.old, step.new_test).join(step, step.old_test == chain.c.new)
    return chain.union(further.where(step.state == AliasState.CONFIRMED))


def _kind_of(rows: Subquery, hidden: ColumnElement[bool] | None) -> ColumnElement[int]:
    """What became of a test, as `domain.difference` has it; what nearly all do is asked first."""
    before, after = rows.c.before, rows.c.after
    was_bad, was_never = (before.in_(_values(some)) for some in (BAD, NEVER))
    ways = (
        (and_(before == after, after.in_(_values(GOOD))), Difference.SAME),
        *(() if hidden is None else ((and_(after.is_(None), hidden), Difference.HIDDEN),)),
        (after.is_(None), Difference.GONE),
        (and_(after.in_(_values(BAD)), was_bad), Difference.STILL_FAILING),
        (after.in_(_values(BAD)), Difference.NEW_FAILURE),
        (and_(after.in_(_values(NEVER)), was_never), Difference.SAME),
        (after.in_(_values(NEVER)), Difference.MISSING),
        (before.is_(None), Difference.NEW),
        (before == after, Difference.SAME),
        (after == TestOutcome.SKIPPED.value, Difference.NEWLY_SKIPPED),
        (and_(was_bad, after.in_(_values(GOOD))), Difference.FIXED),
    )
    told = ((way, literal(RANKS[kind], SmallInteger)) for way, kind in ways)
    return case(*told, else_=literal(RANKS[Difference.CHANGED], SmallInteger))


def _values(outcomes: frozenset[TestOutcome]) -> list[int]:
    return sorted(outcome.value for outcome in outcomes)
