"""Comparison of the tests of two runs.

One `GROUP BY` over the results of both sides pairs the tests within the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    CTE,
    Integer,
    Row,
    Select,
    SmallInteger,
    Subquery,
    Text,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.compare_tests import BAD, GOOD, NEVER, Difference, beginning_of
from orchestrator.domain.node_ids import AliasState
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.benchmark_rollup import COUNTED
from orchestrator.store.failure_groups import IS_BAD
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import (
    AttemptRow,
    AttestationRow,
    CellReuseRow,
    CellRow,
    EnvironmentReportRow,
    JobResultRow,
    LeaseRow,
    TestAliasRow,
    TestCaseRow,
    TestResultRow,
)

Pair = tuple[str, str]
"""Ids of two cells: before, after."""


KINDS = tuple(Difference)
COLLECTION = "collection"
"""Reason of the error of a module or folder that could not be collected."""
BROKEN_LIMIT = 500
"""Maximum collection errors that are read."""
RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
"""Difference kinds as numbers, which group faster than words."""


@dataclass(frozen=True, slots=True)
class ResultSources:
    """The sources of cells' results: cell numbers, and reused jobs."""

    numbers: Mapping[str, int]
    """Cell numbers by id."""
    lent: Mapping[int, Mapping[int, Sequence[str]]]
    """Reused jobs by cell number, with the source cell's number."""


def sources_of(session: Session, cells: Sequence[str]) -> ResultSources:
    """Return the source cells of reused jobs, and the numbers of all cells."""
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
    return ResultSources(numbers, lent)


def paired_tests(session: Session, pairs: Sequence[Pair], product: str) -> CTE:
    """Return a CTE with one row for each test of each pair.

    Columns: pair, test, before, after, old test, new test, kind. The database computes it once per
    statement.
    """
    sources = sources_of(session, [cell for pair in pairs for cell in pair])
    both = _both(pairs, sources)
    if _has_aliases(session, product):
        both = _as_one(both, _renamed_tests(both, product)).cte("renamed_tests")
    rows = _as_one(both, _in_other_jobs(both)).subquery("named")
    hidden = or_(
        _hidden(rows, _broken(session, pairs, sources)),
        *_only_counted(session, rows, pairs, sources),
    )
    kind = _kind_of(rows, hidden)
    return select(rows, kind.label("kind")).cte("paired_tests")


def _broken(
    session: Session, pairs: Sequence[Pair], sources: ResultSources
) -> Sequence[tuple[int, str, str]]:
    """Return collection errors of the newer sides: pair index, job, node id."""
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


def _only_counted(
    session: Session, rows: Subquery, pairs: Sequence[Pair], sources: ResultSources
) -> Iterator[ColumnElement[bool]]:
    """Yield whether the side that lacks the test counts tests without their names."""
    named = JobResultRow.cell.in_(sources.numbers.values()), JobResultRow.unnamed.is_not(None)
    counting = set(session.scalars(select(JobResultRow.cell).where(*named)))
    for side, outcome in enumerate((rows.c.before, rows.c.after)):
        mine = [at for at, pair in enumerate(pairs) if sources.numbers[pair[side]] in counting]
        yield and_(outcome.is_(None), rows.c.pair.in_(mine))


def _hidden(rows: Subquery, broken: Sequence[tuple[int, str, str]]) -> ColumnElement[bool]:
    """Select whether the newer side lacks the test because its module could not be collected."""
    if not broken:
        return false()
    ways = (
        and_(
            rows.c.pair == at,
            TestCaseRow.job == job,
            TestCaseRow.nodeid.startswith(beginning_of(nodeid), autoescape=True),
        )
        for at, job, nodeid in broken
    )
    mine = exists(select(TestCaseRow.id).where(TestCaseRow.id == rows.c.test, or_(*ways)))
    return and_(rows.c.after.is_(None), mine)


def _both(pairs: Sequence[Pair], sources: ResultSources) -> CTE:
    """Select the results of both sides: the cells' own, and reused ones."""
    sides = [{sources.numbers[pair[side]]: at for at, pair in enumerate(pairs)} for side in (0, 1)]
    own = union_all(*(_own(side, cells) for side, cells in enumerate(sides))).cte("own")
    # Some dozen cells: as a table they keep Postgres from starting parallel workers, which would
    # take longer to start than to work.
    parts = [_results(own.prefix_with("MATERIALIZED", dialect="postgresql"))]
    if sources.lent:
        lent = union_all(*(_lent(side, cells) for side, cells in enumerate(sides))).cte("lent")
        of_job = (TestCaseRow.id == TestResultRow.test_id) & (TestCaseRow.job == lent.c.job)
        parts.append(_results(lent).join(TestCaseRow, of_job))
    told = union_all(*parts).subquery("told")
    columns = [
        func.max(case((told.c.side == side, told.c[name]))).label(f"{when}{suffix}")
        for name, suffix in (("counted", ""), ("cell", "_cell"))
        for side, when in enumerate(("before", "after"))
    ]
    grouped = select(told.c.pair, told.c.test, *columns, null().cast(Integer).label("was"))
    return grouped.group_by(told.c.pair, told.c.test).cte("both")


def _own(side: int, cells: Mapping[int, int]) -> Select[int, int, int]:
    """Select cells with pair and side."""
    pair = case(cells, value=CellRow.pk).label("pair")
    query = select(CellRow.pk.label("cell"), pair, literal(side, SmallInteger).label("side"))
    return query.where(CellRow.pk.in_(cells))


def _lent(side: int, cells: Mapping[int, int]) -> Select[int, int, int, str]:
    """Select source cells with their reused jobs."""
    row = CellReuseRow
    pair = case(cells, value=row.cell).label("pair")
    told = (row.source.label("cell"), pair, literal(side, SmallInteger).label("side"), row.job)
    return select(*told).where(row.cell.in_(cells), row.source.is_not(None))


def _results(cells: CTE) -> Select[int, int, int, int, int]:
    """Select the test results of the cells with their pair and side."""
    told = (cells.c.pair, cells.c.side, TestResultRow.test_id.label("test"))
    return select(*told, COUNTED.label("counted"), TestResultRow.cell).join_from(
        cells, TestResultRow, TestResultRow.cell == cells.c.cell
    )


def _has_aliases(session: Session, product: str) -> bool:
    mine = (TestAliasRow.product == product, TestAliasRow.state == AliasState.CONFIRMED)
    return bool(session.scalar(select(exists().where(*mine))))


def _as_one(both: CTE, moved: CTE) -> Select[Any]:
    """Select the tests of both sides; a moved test, with two numbers, is one row."""
    old, left = both.alias(f"old_{moved.name}"), moved.alias(f"left_{moved.name}")
    gone = select(left.c.old).where(left.c.pair == both.c.pair, left.c.old == both.c.test)
    return (
        select(
            *(both.c.pair, both.c.test),
            func.coalesce(both.c.before, old.c.before).label("before"),
            both.c.after,
            func.coalesce(both.c.before_cell, old.c.before_cell).label("before_cell"),
            both.c.after_cell,
            func.coalesce(both.c.was, old.c.test).label("was"),
        )
        .join(moved, and_(moved.c.pair == both.c.pair, moved.c.new == both.c.test), isouter=True)
        .join(old, and_(old.c.pair == moved.c.pair, old.c.test == moved.c.old), isouter=True)
        .where(~gone.exists())
    )


def _renamed_tests(both: CTE, product: str) -> CTE:
    """Select pair, old and new number of removed tests that have a confirmed new name."""
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


def _in_other_jobs(both: CTE) -> CTE:
    """Select pair, old and new number of tests with one node id, in one job of each side."""
    went, came = _named_side(both, "after", "went"), _named_side(both, "before", "came")
    pair, old, new = went.c.pair, went.c.test.label("old"), came.c.test.label("new")
    many = (func.count().over(partition_by=(pair, one)) for one in (old.element, new.element))
    same = (
        select(pair, old, new, *(number.label(f"many_{at}") for at, number in enumerate(many)))
        .join(came, and_(came.c.pair == pair, came.c.nodeid == went.c.nodeid))
        .subquery("same")
    )
    alone = select(same.c.pair, same.c.old, same.c.new)
    return alone.where(same.c.many_0 == 1, same.c.many_1 == 1).cte("in_other_jobs")


def _named_side(both: CTE, lacking: str, name: str) -> Subquery:
    """Select pair, number and node id of the tests that one side lacks."""
    tests = select(both.c.pair, both.c.test, TestCaseRow.nodeid)
    return (
        tests.join(TestCaseRow, TestCaseRow.id == both.c.test)
        .where(both.c[lacking].is_(None))
        .subquery(name)
    )


def _renamed(product: str) -> CTE:
    """Select old and new numbers, through any number of aliases."""
    mine = (TestAliasRow.product == product, TestAliasRow.state == AliasState.CONFIRMED)
    first = select(TestAliasRow.old_test.label("old"), TestAliasRow.new_test.label("new"))
    chain = first.where(*mine).cte("renamed", recursive=True)
    step = aliased(TestAliasRow)
    further = select(chain.c.old, step.new_test).join(step, step.old_test == chain.c.new)
    return chain.union(further.where(step.state == AliasState.CONFIRMED))


def _kind_of(rows: Subquery, hidden: ColumnElement[bool]) -> ColumnElement[int]:
    """Select the kind of difference, as in `domain.test_difference`, most frequent first."""
    before, after = rows.c.before, rows.c.after
    was_bad, was_never = (before.in_(_values(some)) for some in (BAD, NEVER))
    ways = (
        (and_(before == after, after.in_(_values(GOOD))), Difference.SAME),
        (and_(after.is_(None), hidden), Difference.HIDDEN),
        (after.is_(None), Difference.GONE),
        (and_(after.in_(_values(BAD)), was_bad), Difference.STILL_FAILING),
        (after.in_(_values(BAD)), Difference.NEW_FAILURE),
        (and_(after.in_(_values(NEVER)), was_never), Difference.SAME),
        (after.in_(_values(NEVER)), Difference.MISSING),
        (and_(before.is_(None), hidden), Difference.HIDDEN),
        (before.is_(None), Difference.NEW),
        (before == after, Difference.SAME),
        (after == TestOutcome.SKIPPED.value, Difference.NEWLY_SKIPPED),
        (and_(was_bad, after.in_(_values(GOOD))), Difference.FIXED),
    )
    told = ((way, literal(RANKS[kind], SmallInteger)) for way, kind in ways)
    return case(*told, else_=literal(RANKS[Difference.CHANGED], SmallInteger))


def _values(outcomes: frozenset[TestOutcome]) -> list[int]:
    return sorted(outcome.value for outcome in outcomes)


class DifferenceCount(NamedTuple):
    """Number of tests of one pair with one kind of difference."""

    pair: int
    """Index of the pair."""
    difference: Difference
    outcome: TestOutcome | None
    """The outcome of equal results."""
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTest:
    """One test of a pair of cells, with its outcomes on both sides and their difference."""

    pair: int
    test: int
    """Number of the test."""
    job: str
    nodeid: str
    was: str = ""
    """Its confirmed older name if that differs; else empty."""
    before: TestOutcome | None
    after: TestOutcome | None
    message: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class ComparisonOverview:
    """Differences of a comparison."""

    counts: Sequence[DifferenceCount] = ()
    first: Sequence[ChangedTest] = ()
    """The first tests of each pair and kind, without equal ones.

    They are sorted by kind, worst first, then by job, name and pair.
    """


@dataclass(frozen=True, slots=True)
class CellEnvironment:
    """The environment of a cell's results."""

    probed: Mapping[str, object] = field(default_factory=dict)
    """The agent's environment report."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts of the provider: image, instance type, zone."""


T = TypeVar("T")

_WORDS = (
    *(("test", Integer), ("before", Integer)),
    *((name, Text) for name in ("job", "nodeid", "was", "message", "reason")),
)
"""Columns that are read only for single tests."""


class DifferenceStore:
    """Compares the results of pairs of cells. Each method is one transaction.

    Jobs that reuse earlier evidence are compared by that evidence. Two names of a confirmed alias
    are one test. Cells that are not done are compared by their present results.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def overview(self, pairs: Sequence[Pair], *, product: str, each: int) -> ComparisonOverview:
        """Return the number of tests by pair and kind, and the first ones that differ."""
        if not pairs:
            return ComparisonOverview()
        with self._sessions.read() as session:
            rows = paired_tests(session, pairs, product)
            counted = select(
                *(rows.c.pair, rows.c.kind, rows.c.after, func.count().label("many")),
                *(cast(null(), kind).label(name) for name, kind in _WORDS),
            ).group_by(rows.c.pair, rows.c.kind, rows.c.after)
            found = session.execute(
                union_all(counted, _named(_first(rows, len(pairs), each)))
            ).all()
        counts = [
            DifferenceCount(pair, KINDS[kind], _outcome(after), many)
            for pair, kind, after, many, *_ in found
            if many is not None
        ]
        first = [_changed(row) for row in found if row.many is None]
        return ComparisonOverview(counts, sorted(first, key=_place_of))

    def page(
        self,
        pairs: Sequence[Pair],
        *,
        product: str,
        kinds: Collection[Difference],
        limit: int,
        skip: int = 0,
    ) -> Sequence[ChangedTest]:
        """Return a page of tests with these kinds, by job and name."""
        if not pairs:
            return []
        with self._sessions.read() as session:
            rows = paired_tests(session, pairs, product)
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

    def surroundings(self, cells: Sequence[str]) -> Mapping[str, CellEnvironment]:
        """Return environments by cell id; a cell without one has that of its source cell."""
        with self._sessions.read() as session:
            sources = sources_of(session, cells)
            asked = {*sources.numbers.values(), *(s for o in sources.lent.values() for s in o)}
            probed = _probed(session, asked)
            facts = _facts(session, asked)
        return {
            cell: CellEnvironment(
                _of(number, probed, sources) or {}, _of(number, facts, sources) or {}
            )
            for cell, number in sources.numbers.items()
        }


def _of(cell: int, known: Mapping[int, T], sources: ResultSources) -> T | None:
    """Return the cell's own environment, or else that of its newest source."""
    mine = (cell, *reversed(list(sources.lent.get(cell, {}))))
    return next((known[one] for one in mine if one in known), None)


def _probed(session: Session, cells: Collection[int]) -> Mapping[int, Mapping[str, object]]:
    query = (
        select(AttemptRow.cell, EnvironmentReportRow.document)
        .join(AttemptRow, AttemptRow.pk == EnvironmentReportRow.attempt)
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
    """Select the first rows per pair and kind by number, before their names are sorted."""
    place = func.row_number().over(partition_by=(rows.c.pair, rows.c.kind), order_by=rows.c.test)
    differing = select(rows, place.label("place")).where(rows.c.kind != RANKS[Difference.SAME])
    ranked = differing.subquery("ranked")
    return (
        select(ranked, TestCaseRow.job, TestCaseRow.nodeid)
        .join(TestCaseRow, TestCaseRow.id == ranked.c.test)
        .where(ranked.c.place <= each)
        # There cannot be more rows. Without the limit Postgres estimates all of them and reads
        # every result.
        .limit(pairs * len(RANKS) * each)
        .subquery("mine")
    )


def _named(mine: Subquery) -> Select[Any]:
    """Return tests with their messages, by name."""
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


def _changed(row: Row[Any]) -> ChangedTest:
    return ChangedTest(
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


def _place_of(one: ChangedTest) -> tuple[int, str, str, int]:
    return RANKS[one.difference], one.job, one.nodeid, one.pair


def _outcome(number: int | None) -> TestOutcome | None:
    return None if number is None else TestOutcome(number)
