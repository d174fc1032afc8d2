"""Two runs beside each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    CTE,
    Integer,
    Row,
    Select,
    Subquery,
    Text,
    cast,
    func,
    null,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased

from orchestrator.domain.difference import Difference
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.difference_rows import KINDS, RANKS, Pair, Sources, beside, sources_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import (
    AttemptRow,
    AttestationRow,
    EnvironmentRow,
    LeaseRow,
    TestCaseRow,
    TestResultRow,
)


class Counted(NamedTuple):
    """So many tests of one pair to which the same happened."""

    pair: int
    """The pair's place."""
    difference: Difference
    outcome: TestOutcome | None
    """Of those that are the same, how they went."""
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One test of one pair."""

    pair: int
    test: int
    """The test's number."""
    job: str
    nodeid: str
    was: str = ""
    """The name that it had before, where that was another one, as a person confirmed."""
    before: TestOutcome | None
    after: TestOutcome | None
    message: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Overview:
    """What differs at all."""

    counts: Sequence[Counted] = ()
    first: Sequence[Changed] = ()
    """Of each pair and kind so many, the worst kind first, by job, name and pair; none of those
    that are alike."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a cell's results were produced."""

    probed: Mapping[str, object] = field(default_factory=dict)
    """What the agent told."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the provider told: image, instance type, zone."""


T = TypeVar("T")

_WORDS = (
    *(("test", Integer), ("before", Integer)),
    *((name, Text) for name in ("job", "nodeid", "was", "message", "reason")),
)
"""What is told of a single test, and not of many."""


class DifferenceStore:
    """Compares cells. Each method is one transaction.

    Jobs whose earlier evidence stands are compared by that evidence; a test that has another name
    now, as a person confirmed, is the same test. Cells that are not done are as they are now.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def overview(self, pairs: Sequence[Pair], *, product: str, each: int) -> Overview:
        """How many tests there are of each pair and kind, and so many of those that differ."""
        if not pairs:
            return Overview()
        with self._sessions.read() as session:
            rows = beside(session, pairs, product)
            counted = select(
                *(rows.c.pair, rows.c.kind, rows.c.after, func.count().label("many")),
                *(cast(null(), kind).label(name) for name, kind in _WORDS),
            ).group_by(rows.c.pair, rows.c.kind, rows.c.after)
            found = session.execute(
                union_all(counted, _named(_first(rows, len(pairs), each)))
            ).all()
        counts = [
            Counted(pair, KINDS[kind], _outcome(after), many)
            for pair, kind, after, many, *_ in found
            if many is not None
        ]
        first = [_changed(row) for row in found if row.many is None]
        return Overview(counts, sorted(first, key=_place_of))

    def page(
        self,
        pairs: Sequence[Pair],
        *,
        product: str,
        kinds: Collection[Difference],
        limit: int,
        skip: int = 0,
    ) -> Sequence[Changed]:
        """Some of these kinds by job and name, after so many others."""
        if not pairs:
            return []
        with self._sessions.read() as session:
            rows = beside(session, pairs, product)
            chosen = (
                select(rows, TestCaseRow.job, TestCaseRow.nodeid)
                .join(TestCaseRow, TestCaseRow.id == rows.c.test)
                .where(rows.c.kind.in_(sorted(RANKS[kind] for kind in kinds)))
                .order_by(TestCaseRow.job, TestCaseRow.nodeid, rows.c.pair)
                .limit(limit)
                .offset(skip)
            )
            mine = chosen.subquery("mine")
            asked = _named(mine).order_by(mine.c.job, mine.c.nodeid, mine.c.pair)
            return [_changed(row) for row in session.execute(asked)]

    def surroundings(self, cells: Sequence[str]) -> Mapping[str, Surroundings]:
        """By the cell's id; of the last attempt that told, here or where it was reused from."""
        with self._sessions.read() as session:
            sources = sources_of(session, cells)
            asked = {*sources.numbers.values(), *(s for o in sources.lent.values() for s in o)}
            probed = _probed(session, asked)
            facts = _facts(session, asked)
        return {
            cell: Surroundings(
                _of(number, probed, sources) or {}, _of(number, facts, sources) or {}
            )
            for cell, number in sources.numbers.items()
        }


def _of(cell: int, known: Mapping[int, T], sources: Sources) -> T | None:
    """The cell's own, or else that of the newest one that its results are from."""
    mine = (cell, *reversed(list(sources.lent.get(cell, {}))))
    return next((known[one] for one in mine if one in known), None)


def _probed(session: Session, cells: Collection[int]) -> Mapping[int, Mapping[str, object]]:
    query = (
        select(AttemptRow.cell, EnvironmentRow.document)
        .join(AttemptRow, AttemptRow.pk == EnvironmentRow.attempt)
        .where(AttemptRow.cell.in_(cells))
        .order_by(AttemptRow.number)
    )
    return dict(session.execute(query).all())


def _facts(session: Session, cells: Collection[int]) -> Mapping[int, Mapping[str, str]]:
    query = (
        select(AttemptRow.cell, AttestationRow.document)
        .join(LeaseRow, LeaseRow.attempt == AttemptRow.pk)
        .join(AttestationRow, AttestationRow.lease == LeaseRow.pk)
        .where(AttemptRow.cell.in_(cells))
        .order_by(AttemptRow.number)
    )
    return {cell: document.facts for cell, document in session.execute(query)}


def _first(rows: CTE, pairs: int, each: int) -> Subquery:
    """Of each pair and kind so many, by number: names of thousands are not sorted for a few."""
    place = func.row_number().over(partition_by=(rows.c.pair, rows.c.kind), order_by=rows.c.test)
    differing = select(rows, place.label("place")).where(rows.c.kind != RANKS[Difference.SAME])
    ranked = differing.subquery("ranked")
    return (
        select(ranked, TestCaseRow.job, TestCaseRow.nodeid)
        .join(TestCaseRow, TestCaseRow.id == ranked.c.test)
        .where(ranked.c.place <= each)
        # More there cannot be. Untold, Postgres expects them all, and reads every result for them.
        .limit(pairs * len(RANKS) * each)
        .subquery("mine")
    )


def _named(mine: Subquery) -> Select[Any]:
    """Tests with their messages, by name."""
    was = aliased(TestCaseRow)
    where = func.coalesce(mine.c.after_cell, mine.c.before_cell)
    return (
        select(
            *(mine.c.pair, mine.c.kind, mine.c.after, cast(null(), Integer).label("many")),
            *(mine.c.test, mine.c.before, mine.c.job, mine.c.nodeid, was.nodeid.label("was")),
            *(TestResultRow.message, TestResultRow.reason),
        )
        .join(was, was.id == mine.c.was, isouter=True)
        .join(
            TestResultRow,
            (TestResultRow.cell == where) & (TestResultRow.test_id == mine.c.test),
            isouter=True,
        )
    )


def _changed(row: Row[Any]) -> Changed:
    return Changed(
        pair=row.pair,
        test=row.test,
        job=row.job,
        nodeid=row.nodeid,
        was=row.was or "",
        before=_outcome(row.before),
        after=_outcome(row.after),
        message=row.message or row.reason or "",
        difference=KINDS[row.kind],
    )


def _place_of(one: Changed) -> tuple[int, str, str, int]:
    return RANKS[one.difference], one.job, one.nodeid, one.pair


def _outcome(number: int | None) -> TestOutcome | None:
    return None if number is None else TestOutcome(number)
