"""Failure groups over many runs, by indexes of failing results."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import (
    Select,
    Text,
    and_,
    case,
    cast,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.event_facts import EARLIER_LIMIT, TestFact
from orchestrator.domain.failure_signature import BAD, SIGNATURE_VERSION, Signature
from orchestrator.domain.known_issue import IssueMatch
from orchestrator.domain.node_ids import KnownTest, resolve
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.aliases import confirmed_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import Records, insert_into, slices, values_of
from orchestrator.store.tables import (
    SIGNATURES,
    AttemptRow,
    CellRow,
    EnvironmentReportRow,
    IngestRow,
    JobRollupRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
    TestRetryRow,
    TextRow,
)

_COMMA = ","
_MATCHES = 100
"""Maximum conditions in a statement; SQLite accepts 1,000 nested ones."""
# Written out, and not as parameters: neither database takes a partial index for a parameter.
IS_BAD = TestResultRow.outcome.in_(
    [literal_column(str(value)) for value in sorted(outcome.value for outcome in BAD)]
)


def write_signatures(session: Session, signatures: Iterable[Signature]) -> None:
    """Store new signatures, in the order of ids to avoid deadlocks."""
    rows = [
        values_of(SIGNATURES, one, version=SIGNATURE_VERSION)
        for one in sorted(signatures, key=lambda one: one.id)
    ]
    if rows:
        session.execute(insert_into(session, SIGNATURES).on_conflict_do_nothing(), rows)


SIGNATURE = Records(Signature, SIGNATURES)


def write_retries(
    session: Session, cell_pk: int, attempt_pk: int, tests: Mapping[int, TestFact]
) -> None:
    """Store earlier tries; a newer attempt's replace older ones."""
    rows = [
        {
            "cell": cell_pk,
            "test_id": test_id,
            "attempt": attempt_pk,
            "earlier": _COMMA.join(outcome.word for outcome in fact.earlier),
        }
        for test_id, fact in tests.items()
        if fact.earlier
    ]
    if not rows:
        return
    insert = insert_into(session, TestRetryRow)
    new = insert.excluded
    both = TestRetryRow.earlier + _COMMA + new.earlier
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "test_id"],
        set_={
            "attempt": new.attempt,
            "earlier": case((TestRetryRow.attempt == new.attempt, both), else_=new.earlier),
        },
        where=TestRetryRow.attempt <= new.attempt,
    )
    session.execute(statement, rows)


def of_result() -> ColumnElement[bool]:
    """Join a retry with its result, of the same attempt only."""
    return and_(
        TestRetryRow.cell == TestResultRow.cell,
        TestRetryRow.test_id == TestResultRow.test_id,
        TestRetryRow.attempt == TestResultRow.attempt,
    )


def read_earlier(words: str | None) -> tuple[TestOutcome, ...]:
    """Parse the outcomes of earlier tries."""
    found = words.split(_COMMA)[:EARLIER_LIMIT] if words else []
    return tuple(TestOutcome[word.upper()] for word in found)


NAMED_TESTS = 50_000
"""Maximum pairs of signature and test per query."""


@dataclass(frozen=True, slots=True)
class WindowCell:
    """A cell of the newest runs."""

    pk: int
    name: str
    run_id: str
    product: str
    version: str
    """Version of the subject."""
    build: str
    """Digest of what was tested."""
    at: datetime
    """Launch time of the run; of ingested evidence, the stated time."""

    @property
    def platform(self) -> str:
        """Return the platform's id: the part before the environment's name."""
        return self.name.partition(".")[0]


Place = tuple[str, str, int]
"""Signature, job and number of a cell."""


@dataclass(frozen=True, slots=True)
class CellFailureGroup:
    """Failing results of one signature in one job of one cell."""

    signature: str
    job: str
    cell: int
    count: int

    @property
    def place(self) -> Place:
        """Signature, job and cell."""
        return self.signature, self.job, self.cell


@dataclass(frozen=True, slots=True)
class RunWindow:
    """The newest runs of a product."""

    runs: int = 0
    cells: Mapping[int, WindowCell] = field(default_factory=dict)
    """Their cells by number."""


@dataclass(frozen=True, slots=True)
class Window:
    """Failing results of cells, by signature."""

    groups: Sequence[CellFailureGroup] = ()
    tests: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Number of results by signature and test.

    Results of one node id in several jobs are summed under one of its tests.
    """


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A failing result of a signature."""

    test_id: int
    cell: int
    message: str
    """The unmasked message."""


@dataclass(frozen=True, slots=True)
class Places:
    """Occurrences of a signature, newest cells first."""

    items: Sequence[GroupMember] = ()
    cells: Mapping[int, WindowCell] = field(default_factory=dict)
    is_cut: bool = False
    """Whether there are older occurrences than the limit."""


@dataclass(frozen=True, slots=True)
class TestOutcomes:
    """Cells in which a test has one outcome."""

    test_id: int
    outcome: TestOutcome
    cells: tuple[int, ...]
    """Unordered."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Cells in which a test failed with one signature."""

    test_id: int
    signature: str
    """Empty without a signature."""
    cells: tuple[int, ...]
    """Unordered."""


_EVALUATED = [
    TestOutcome.PASSED.value,
    TestOutcome.XPASSED.value,
    TestOutcome.FAILED.value,
    TestOutcome.ERROR.value,
]


class FailureGroupStore:
    """Failing results by signature, and retried tests."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def cells(self, product: str | None, *, runs: int) -> RunWindow:
        """Return cells of a product's newest runs; None means any product."""
        newest = select(RunRow.id).order_by(RunRow.id.desc()).limit(runs)
        if product is not None:
            newest = newest.where(RunRow.product == product)
        with self._sessions.read() as session:
            ids = session.scalars(newest).all()
            return RunWindow(len(ids), _cells_of(session, ids))

    def cells_of(self, runs: Collection[str]) -> Mapping[int, WindowCell]:
        """Return the cells of these runs by number."""
        with self._sessions.read() as session:
            return _cells_of(session, sorted(runs))

    def window(self, cells: Collection[int]) -> Window:
        """Return the failing results of these cells, by signature."""
        asked = sorted(cells)
        with self._sessions.read() as session:
            groups = list(_groups(session, asked))
            pairs = list(_pairs(session, asked))
        return Window(groups, count_by_node_id(pairs))

    def failing_tests(
        self, cells: Collection[int], signatures: Collection[str]
    ) -> list[tuple[Place, str]]:
        """Return the failing results of these signatures in the cells, with their node ids."""
        row, test = TestResultRow, TestCaseRow
        query = select(row.signature, test.job, row.cell, test.nodeid)
        query = query.join(test, test.id == row.test_id)
        found: list[tuple[Place, str]] = []
        with self._sessions.read() as session:
            for some in slices(sorted(set(cells))):
                for signature, job, cell, nodeid in session.execute(query.where(*_bad_in(some))):
                    if signature is not None and signature in signatures:
                        found.append(((signature, job, cell), nodeid))
        return found

    def suites(self, cells: Collection[int]) -> Mapping[int, frozenset[str]]:
        """Return jobs with passed or failed tests of finished cells, by cell."""
        row = JobRollupRow
        has_judged = row.passed + row.failed + row.error > 0
        query = select(row.cell, row.job).where(has_judged)
        found: dict[int, set[str]] = {}
        with self._sessions.read() as session:
            for some in slices(sorted(set(cells))):
                for cell, job in session.execute(query.where(row.cell.in_(some))):
                    found.setdefault(cell, set()).add(job)
        return {cell: frozenset(jobs) for cell, jobs in found.items()}

    def of_exception(self, exception: str, *, limit: int) -> list[Signature]:
        """Return signatures of an exception class, by id."""
        query = select(SIGNATURE).where(SIGNATURES.c.exception == exception)
        return list(self._sessions.scalars(query.order_by(SIGNATURES.c.id).limit(limit)))

    def like(self, matches: Sequence[IssueMatch], names: Collection[str]) -> list[Signature]:
        """Return the signatures that may match one of these known issues, by id.

        `names` are the ids of signatures for the matches by signature.
        """
        found: dict[str, Signature] = {}
        with self._sessions.read() as session:
            for start in range(0, len(matches), _MATCHES):
                some = matches[start : start + _MATCHES]
                may_match = or_(false(), *(_may_match(match, names) for match in some))
                query = select(SIGNATURE).where(may_match)
                found.update((one.id, one) for one in session.scalars(query))
        return sorted(found.values(), key=lambda one: one.id)

    def failed_so(self, product: str, signatures: Collection[str]) -> Mapping[str, set[KnownTest]]:
        """Return by signature id the product's tests that failed with it in any run.

        A renamed test is included with its old number and with its newest one.
        """
        row, test = TestResultRow, TestCaseRow
        query = (
            select(row.signature, test.id, test.product, test.job, test.nodeid)
            .join(test, test.id == row.test_id)
            .where(test.product == product, IS_BAD, row.final.is_(True))
            .distinct()
        )
        found: dict[str, set[KnownTest]] = {}
        with self._sessions.read() as session:
            aliases = confirmed_of(session)
            for some in slices(sorted(set(signatures))):
                asked = query.where(row.signature.in_(some))
                for name, number, its_product, job, nodeid in session.execute(asked):
                    one = KnownTest(number, its_product, job, nodeid)
                    newest = replace(one, id=resolve(number, aliases))
                    found.setdefault(name or "", set()).update((one, newest))
        return found

    def named(self, signatures: Collection[str]) -> Mapping[str, Signature]:
        """Return signatures by id; unknown ones are left out."""
        with self._sessions.read() as session:
            return {
                one.id: one
                for some in slices(sorted(set(signatures)))
                for one in session.scalars(select(SIGNATURE).where(SIGNATURES.c.id.in_(some)))
            }

    def places(self, signature: str, *, limit: int) -> Places:
        """Return the newest results of a signature."""
        query = (
            select(TestResultRow.test_id, TestResultRow.cell, TestResultRow.message)
            .where(TestResultRow.signature == signature, IS_BAD, TestResultRow.final.is_(True))
            .order_by(TestResultRow.cell.desc(), TestResultRow.test_id)
            .limit(limit + 1)
        )
        with self._sessions.read() as session:
            found = [GroupMember(*row) for row in session.execute(query)]
            shown = found[:limit]
            cells = _known(session, sorted({place.cell for place in shown}))
        return Places(shown, cells, len(found) > limit)

    def traceback(self, place: GroupMember) -> str:
        """Return the stored text of a result; empty without one."""
        query = (
            select(TextRow.body)
            .join(TestResultRow, TestResultRow.text_digest == TextRow.digest)
            .where(TestResultRow.cell == place.cell, TestResultRow.test_id == place.test_id)
        )
        with self._sessions.read() as session:
            body = session.scalar(query)
        return zlib.decompress(body).decode() if body is not None else ""

    def tests(self, ids: Collection[int]) -> Mapping[int, KnownTest]:
        """Return tests by number."""
        row = TestCaseRow
        query = select(row.id, row.product, row.job, row.nodeid)
        with self._sessions.read() as session:
            return {
                found[0]: KnownTest(*found)
                for some in slices(sorted(set(ids)))
                for found in session.execute(query.where(row.id.in_(some)))
            }

    def find_tests(self, product: str, nodeids: Collection[str]) -> list[KnownTest]:
        """Return a product's tests of these names, in every job."""
        row = TestCaseRow
        query = select(row.id, row.product, row.job, row.nodeid).where(row.product == product)
        with self._sessions.read() as session:
            return [
                KnownTest(*found)
                for some in slices(sorted(set(nodeids)))
                for found in session.execute(query.where(row.nodeid.in_(some)).order_by(row.id))
            ]

    def packages(self, cells: Collection[int]) -> Mapping[int, Mapping[str, str]]:
        """Return the packages of each cell's newest attempt."""
        query = (
            select(AttemptRow.cell, EnvironmentReportRow.document)
            .join(EnvironmentReportRow, EnvironmentReportRow.attempt == AttemptRow.pk)
            .order_by(AttemptRow.cell, AttemptRow.number)
        )
        with self._sessions.read() as session:
            return {
                cell: _packages(document)
                for some in slices(sorted(set(cells)))
                for cell, document in session.execute(query.where(AttemptRow.cell.in_(some)))
            }

    def failing(self, cells: Collection[int]) -> list[Failing]:
        """Return every failing result of these cells, by the index of failures."""
        row = TestResultRow
        names = _listed(row.cell, is_postgres=self._sessions.is_postgres)
        query = select(row.test_id, row.signature, names).group_by(row.test_id, row.signature)
        with self._sessions.read() as session:
            return [
                Failing(test, signature or "", _numbers(found))
                for some in slices(sorted(set(cells)))
                for test, signature, found in session.execute(query.where(*_bad_in(some)))
            ]

    def retried(self, cells: Collection[int]) -> dict[tuple[int, int], tuple[TestOutcome, ...]]:
        """Return the outcomes of earlier tries by test and cell, of the attempts that count."""
        query = select(TestRetryRow.test_id, TestRetryRow.cell, TestRetryRow.earlier).join(
            TestResultRow, of_result()
        )
        with self._sessions.read() as session:
            return {
                (test, cell): read_earlier(earlier)
                for some in slices(sorted(set(cells)))
                for test, cell, earlier in session.execute(query.where(TestRetryRow.cell.in_(some)))
            }

    def outcomes_of(self, tests: Collection[int], cells: Collection[int]) -> list[TestOutcomes]:
        """Return for each test and outcome the cells among these in which the test has it."""
        row = TestResultRow
        names = _listed(row.cell, is_postgres=self._sessions.is_postgres)
        mine = (
            row.test_id.in_(sorted(set(tests))),
            row.final.is_(True),
            row.outcome.in_(_EVALUATED),
        )
        query = select(row.test_id, row.outcome, names).where(*mine)
        query = query.group_by(row.test_id, row.outcome)
        with self._sessions.read() as session:
            return [
                TestOutcomes(test, TestOutcome(outcome), _numbers(found))
                for some in slices(sorted(set(cells)))
                # The oldest cell again; otherwise Postgres reads every result of all these cells.
                for test, outcome, found in session.execute(
                    query.where(row.cell.in_(some), row.cell >= some[0])
                )
            ]


def _listed(number: InstrumentedAttribute[int], *, is_postgres: bool) -> ColumnElement[str]:
    """Select a group's numbers as comma-separated text."""
    if is_postgres:
        return func.string_agg(cast(number, Text), ",")
    return func.group_concat(number, ",")


def _numbers(listed: str) -> tuple[int, ...]:
    return tuple(map(int, listed.split(",")))


def _all_cells() -> Select[int, str, str, str, str, str, datetime]:
    return select(
        *(CellRow.pk, CellRow.name, RunRow.id, RunRow.product),
        *(RunRow.subject_version, RunRow.build, RunRow.created_at),
    ).join(RunRow, RunRow.id == CellRow.run_id)


def _cells(
    session: Session, query: Select[int, str, str, str, str, str, datetime]
) -> Iterator[WindowCell]:
    rows = session.execute(query).all()
    dated = _dated(session, [row[0] for row in rows])
    for pk, name, run, product, version, build, launched in rows:
        yield WindowCell(pk, name, run, product, version, build, dated.get(pk) or launched)


def _cells_of(session: Session, runs: Sequence[str]) -> dict[int, WindowCell]:
    return {
        cell.pk: cell
        for some in slices(runs)
        for cell in _cells(session, _all_cells().where(CellRow.run_id.in_(some)))
    }


def _known(session: Session, cells: Sequence[int]) -> dict[int, WindowCell]:
    return {
        cell.pk: cell
        for some in slices(cells)
        for cell in _cells(session, _all_cells().where(CellRow.pk.in_(some)))
    }


def _dated(session: Session, cells: Sequence[int]) -> Mapping[int, datetime | None]:
    """Return the stated times of ingested cells."""
    found: dict[int, datetime | None] = {}
    query = select(IngestRow.cell, IngestRow.document)
    for some in slices(cells):
        rows = session.execute(query.where(IngestRow.cell.in_(some)))
        found.update((cell, document.dated_at) for cell, document in rows)
    return found


def _groups(session: Session, cells: Sequence[int]) -> Iterator[CellFailureGroup]:
    row = TestResultRow
    key = (row.signature, TestCaseRow.job, row.cell)
    query = select(row.signature, TestCaseRow.job, row.cell, func.count()).join(
        TestCaseRow, TestCaseRow.id == row.test_id
    )
    for some in slices(cells):
        for signature, job, cell, count in session.execute(
            query.where(*_bad_in(some)).group_by(*key)
        ):
            if signature is not None:
                yield CellFailureGroup(signature, job, cell, count)


def count_by_node_id(
    results: Iterable[tuple[str, KnownTest, int]],
) -> dict[str, dict[int, int]]:
    """Sum the numbers of results by signature and node id; each sum has the id of one test."""
    first: dict[tuple[str, str], int] = {}
    found: dict[str, Counter[int]] = {}
    for signature, test, count in results:
        number = first.setdefault((test.product, test.nodeid), test.id)
        found.setdefault(signature, Counter())[number] += count
    return {signature: dict(counts) for signature, counts in found.items()}


def _pairs(session: Session, cells: Sequence[int]) -> Iterator[tuple[str, KnownTest, int]]:
    row, test = TestResultRow, TestCaseRow
    query = select(row.signature, row.test_id, func.count().label("many"))
    for some in slices(cells):
        counted = query.where(*_bad_in(some), row.signature.is_not(None))
        few = counted.group_by(row.signature, row.test_id).limit(NAMED_TESTS).subquery()
        named = select(few.c.signature, few.c.many, test.id, test.product, test.job, test.nodeid)
        for signature, many, *known in session.execute(named.join(test, test.id == few.c.test_id)):
            yield signature, KnownTest(*known), many


def _bad_in(cells: Sequence[int]) -> tuple[ColumnElement[bool], ...]:
    return TestResultRow.cell.in_(cells), IS_BAD, TestResultRow.final.is_(True)


def _packages(document: Mapping[str, object]) -> Mapping[str, str]:
    found = document.get("packages")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def _may_match(match: IssueMatch, names: Collection[str]) -> ColumnElement[bool]:
    asked: list[ColumnElement[bool]] = []
    if match.signature:
        asked.append(SIGNATURES.c.id.in_(sorted(names)))
    for column, pattern in (
        (SIGNATURES.c.exception, match.exception),
        (SIGNATURES.c.frame, match.frame),
    ):
        if pattern and not set(pattern) & set("*?["):
            asked.append(column == pattern)
    return and_(true(), *asked)
