"""Test grids: tests by cells, grouped by their results, in a bounded number of statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from string import ascii_uppercase

from orchestrator.domain.flaky import ResultPoint, flaky_evidence, flaky_signal, suspects
from orchestrator.domain.node_ids import KnownTest, NaturalOrder, natural_order
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.failure_groups import Failing
from orchestrator.store.grid_of_tests import GridCell, GridMark, TestsWanted
from orchestrator.store.stores import Stores

CELLS_WITH_TESTS = 3
"""Number of newest cells with results that determine the present tests."""
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_SUSPECTS = 1_000
"""Maximum tests whose results are read for signs of flakiness."""


class GridGroup(StrEnum):
    """Group of a test in a grid, in the order of the rows."""

    FAILING = "failing"
    MISSING = "missing"
    """Collected and not reported."""
    FLAKY = "flaky"
    """Failed and passed with one build on one platform, or passed only on retry (`flaky.py`)."""
    GONE = "gone"
    """Failed before, and newer runs of its job do not have it."""
    STEADY = "steady"


@dataclass(frozen=True, slots=True)
class GridRow:
    """A test with its result in each cell that has it."""

    test: KnownTest
    group: GridGroup
    marks: Mapping[int, GridMark]
    """Results by cell number."""


@dataclass(frozen=True, slots=True)
class GridFailureGroup:
    """Failures of one signature."""

    signature: str
    letter: str
    """Letter in the grid; empty for a signature that occurs once, or after 26 frequent ones."""
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A page of a test grid."""

    cells: Sequence[GridCell]
    rows: Sequence[GridRow] = ()
    groups: Mapping[GridGroup, int] = field(default_factory=dict)
    """Number of tests by group that do not pass, over all pages."""
    kinds: Mapping[str, GridFailureGroup] = field(default_factory=dict)
    """Signatures of all failures in these cells."""
    retried: Collection[tuple[int, int]] = frozenset()
    """Cell and test of retried results."""
    next: int | None = None
    """Cursor: the last test of the page, where there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFilter:
    """Filter of a grid."""

    tests: TestsWanted = field(default_factory=TestsWanted)
    group: GridGroup | None = None
    """Group of the tests; None includes every test."""
    limit: int = 50
    after: int | None = None
    """Cursor: the last test of the previous page."""


def grid_of_cells(
    stores: Stores, product: str, name: str, wanted: GridFilter, *, cells: int
) -> Grid:
    """Return the grid of the newest cells of one name, newest first.

    A test's newest result in them is its present state, whatever newer runs ran.
    """
    columns = stores.grids.newest(product, name, limit=cells)
    now = next((at for at, one in enumerate(columns) if one.counts.collected), len(columns))
    return _Sorting(stores, columns, columns[: now + 1]).page(wanted)


def grid_of_run(stores: Stores, run: str, wanted: GridFilter) -> Grid:
    """Return the grid of a run's cells in matrix order; all are the present state."""
    columns = stores.grids.of_run(run)
    return _Sorting(stores, columns, columns).page(wanted)


class _Sorting:
    """Groups tests by their results other than passes."""

    def __init__(self, stores: Stores, cells: Sequence[GridCell], now: Sequence[GridCell]) -> None:
        self._grids = stores.grids
        self._cells = cells
        self._now = {cell.number for cell in now}
        numbers = self._numbers = [cell.number for cell in cells]
        self._bad = stores.failure_groups.failing(numbers)
        retried = stores.failure_groups.retried(numbers)
        self._earlier = {(cell, test): tries for (test, cell), tries in retried.items()}
        is_lacking = [cell.number for cell in cells if cell.counts.missing + cell.counts.not_run]
        lacking = self._grids.unreported(is_lacking) if is_lacking else []
        self._groups = self._judge(lacking)

    def page(self, wanted: GridFilter) -> Grid:
        """Return the requested page of rows."""
        tests, more = self._tests(wanted)
        marks: dict[int, dict[int, GridMark]] = {}
        for mark in self._grids.marks(self._numbers, [test.id for test in tests]):
            marks.setdefault(mark.test, {})[mark.cell] = mark
        return Grid(
            cells=self._cells,
            rows=[
                GridRow(test, self._status(test.id), marks.get(test.id, {}))
                for test in sorted(tests, key=self._order)
            ],
            groups=Counter(self._groups.values()),
            kinds=repeated_signatures(self._bad),
            retried=self._earlier.keys(),
            next=tests[-1].id if more else None,
        )

    def _judge(self, lacking: Collection[tuple[int, int]]) -> dict[int, GridGroup]:
        """Return the group of each test that is not steady; `lacking` are (cell, test) pairs."""
        failing = {one.test_id for one in self._bad if not self._now.isdisjoint(one.cells)}
        missing = {test for cell, test in lacking if cell in self._now}
        flaky = self._flaky()
        before = {*flaky, *(one.test_id for one in self._bad), *(test for _, test in lacking)}
        newest = self._newest(before - failing - missing)
        gone = self._grids.gone([(mark.test, mark.cell) for mark in newest])
        left = {test for test, _ in gone}
        for mark in newest:
            if mark.test not in left:
                failing |= {mark.test} if mark.outcome in _BAD else set()
                missing |= {mark.test} if mark.outcome is TestOutcome.MISSING else set()
        told = dict.fromkeys(flaky, GridGroup.FLAKY)
        told |= dict.fromkeys(left, GridGroup.GONE)
        told |= dict.fromkeys(missing, GridGroup.MISSING)
        return told | dict.fromkeys(failing, GridGroup.FAILING)

    def _newest(self, tests: Collection[int]) -> Collection[GridMark]:
        """Return the newest result of each test on each platform; awaited ones replace none."""
        cells = {cell.number: cell for cell in self._cells}
        order = {number: place for place, number in enumerate(cells)}
        newest: dict[tuple[int, str], GridMark] = {}
        for mark in sorted(self._grids.marks(self._numbers, tests), key=lambda m: order[m.cell]):
            cell = cells[mark.cell]
            if cell.is_done or mark.outcome is not TestOutcome.MISSING:
                newest.setdefault((mark.test, cell.name), mark)
        return newest.values()

    def _flaky(self) -> Collection[int]:
        """Return the tests whose results in these cells show flakiness, as on the flaky page."""
        cells = {cell.number: cell for cell in reversed(self._cells)}
        builds: dict[str, list[str]] = {}
        place: dict[int, int] = {}
        for cell in cells.values():
            some = builds.setdefault(cell.name, [])
            place[cell.number] = len(some)
            some.append(cell.build)
        failing = (
            (one.test_id, cells[number].name, place[number])
            for one in self._bad
            for number in one.cells
        )
        retried = (test for _, test in self._earlier)
        asked, _ = suspects(retried, failing, builds, most=_SUSPECTS)
        results: dict[int, list[ResultPoint]] = {}
        for mark in self._grids.marks(list(cells), asked):
            cell, earlier = cells[mark.cell], self._earlier.get((mark.cell, mark.test), ())
            results.setdefault(mark.test, []).append(
                ResultPoint(cell.run, cell.version, cell.build, cell.name, mark.outcome, earlier)
            )
        return {test for test, some in results.items() if flaky_signal(flaky_evidence(some))}

    def _status(self, test: int) -> GridGroup:
        return self._groups.get(test, GridGroup.STEADY)

    def _tests(self, wanted: GridFilter) -> tuple[Sequence[KnownTest], bool]:
        """Return a page of tests, and whether more follow."""
        asked = {test for test, group in self._groups.items() if wanted.group in (None, group)}
        loud = sorted(self._grids.some(asked, wanted.tests), key=self._order)
        known = self._grids.some([wanted.after]) if wanted.after is not None else []
        last = known[0] if known else None
        is_steady = last is not None and last.id not in self._groups
        if last is not None:
            loud = [
                test for test in loud if not is_steady and self._order(test) > self._order(last)
            ]
        room = wanted.limit + 1 - len(loud)
        if room > 0 and wanted.group in (None, GridGroup.STEADY):
            loud += self._steady(wanted.tests, last if is_steady else None, room)
        return loud[: wanted.limit], len(loud) > wanted.limit

    def _steady(self, wanted: TestsWanted, last: KnownTest | None, room: int) -> list[KnownTest]:
        """Return the next steady tests by name; reads enough to skip others."""
        full = [cell.number for cell in self._cells if cell.counts.collected or not cell.is_done]
        some = full[:CELLS_WITH_TESTS] if len(self._now) < len(self._cells) else full
        found = self._grids.after(some, wanted, after=last, limit=room + len(self._groups))
        return [test for test in found if test.id not in self._groups][:room]

    def _order(self, test: KnownTest) -> tuple[int, NaturalOrder, int]:
        """Return the sort key of a test: its group, then its name."""
        rank = list(GridGroup).index(self._status(test.id))
        return rank, natural_order(test.nodeid), test.id


def repeated_signatures(bad: Iterable[Failing]) -> Mapping[str, GridFailureGroup]:
    """Return signatures by frequency; repeated ones get a letter."""
    counted: Counter[str] = Counter()
    for one in bad:
        if one.signature:
            counted[one.signature] += len(one.cells)
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    letters = iter(ascii_uppercase)
    return {
        signature: GridFailureGroup(signature, next(letters, "") if seen > 1 else "", seen)
        for signature, seen in ranked
    }
