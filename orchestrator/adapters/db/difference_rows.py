"""The statement that sets the tests of cells against each other.

It is one `GROUP BY` over the results of both sides: no row of theirs leaves the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    CTE,
    Integer,
    Select,
    and_,
    case,
    exists,
    func,
    literal,
    null,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.adapters.db.rollups import COUNTED
from orchestrator.adapters.db.tables import (
    CellReuseRow,
    CellRow,
    TestAliasRow,
    TestCaseRow,
    TestResultRow,
)
from orchestrator.application.ports.differences import Pair
from orchestrator.domain.alias import AliasState
from orchestrator.domain.difference import BAD, GOOD, NEVER, Difference
from orchestrator.domain.outcome import TestOutcome

Part = Select[int, int, int | None, int | None, int | None, int | None]


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
    """A row for each test of each pair: pair, test, before, after, what it was, where it is."""
    sources = sources_of(session, [cell for pair in pairs for cell in pair])
    sides = ({sources.numbers[pair[side]]: at for at, pair in enumerate(pairs)} for side in (0, 1))
    parts = [part for side, cells in enumerate(sides) for part in _side(side, cells, sources.lent)]
    told = union_all(*parts).subquery("told")
    columns = [func.max(told.c[name]).label(name) for name in _TOLD]
    both = select(told.c.pair, told.c.test, *columns).group_by(told.c.pair, told.c.test).cte("both")
    if not _has_aliases(session, product):
        return select(both, null().cast(Integer).label("was")).cte("beside")
    return _under_new_names(both, product)


_TOLD = ("before", "after", "before_cell", "after_cell")


def _side(
    side: int, cells: Mapping[int, int], lent: Mapping[int, Mapping[int, Sequence[str]]]
) -> Iterator[Part]:
    """The results of one side: the cells' own, and those that they have from others."""
    place = (
        case(cells, value=TestResultRow.cell)
        if len(cells) > 1
        else literal(next(iter(cells.values())), Integer)
    )
    yield _part(side, place).where(TestResultRow.cell.in_(cells))
    for cell, at in cells.items():
        for source, jobs in lent.get(cell, {}).items():
            yield (
                _part(side, literal(at, Integer))
                .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
                .where(TestResultRow.cell == source, TestCaseRow.job.in_(jobs))
            )


def _part(side: int, pair: ColumnElement[int]) -> Part:
    nothing = null().cast(Integer)
    mine = (COUNTED, nothing) if side == 0 else (nothing, COUNTED)
    where = (TestResultRow.cell, nothing) if side == 0 else (nothing, TestResultRow.cell)
    told = [column.label(name) for name, column in zip(_TOLD, (*mine, *where), strict=True)]
    return select(pair.label("pair"), TestResultRow.test_id.label("test"), *told)


def _has_aliases(session: Session, product: str) -> bool:
    mine = (TestAliasRow.product == product, TestAliasRow.state == AliasState.CONFIRMED)
    return bool(session.scalar(select(exists().where(*mine))))


def _under_new_names(both: CTE, product: str) -> CTE:
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
        .cte("beside")
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


def kind_of(rows: CTE) -> ColumnElement[str]:
    """What became of a test, as `domain.difference` has it."""
    before, after = rows.c.before, rows.c.after
    was_bad, was_never = (before.in_(_values(some)) for some in (BAD, NEVER))
    return case(
        (after.is_(None), Difference.GONE.value),
        (and_(after.in_(_values(BAD)), was_bad), Difference.STILL_FAILING.value),
        (after.in_(_values(BAD)), Difference.NEW_FAILURE.value),
        (and_(after.in_(_values(NEVER)), was_never), Difference.SAME.value),
        (after.in_(_values(NEVER)), Difference.MISSING.value),
        (before.is_(None), Difference.NEW.value),
        (before == after, Difference.SAME.value),
        (after == TestOutcome.SKIPPED.value, Difference.NEWLY_SKIPPED.value),
        (and_(was_bad, after.in_(_values(GOOD))), Difference.FIXED.value),
        else_=Difference.CHANGED.value,
    )


def _values(outcomes: frozenset[TestOutcome]) -> list[int]:
    return sorted(outcome.value for outcome in outcomes)
