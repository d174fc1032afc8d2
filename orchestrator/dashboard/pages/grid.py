"""Tests by runs of one platform, or by the platforms of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Response

from orchestrator.application.result_grid import (
    Grid,
    GridFailureGroup,
    GridFilter,
    GridGroup,
    GridRow,
    grid_of_cells,
    grid_of_run,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.pages.tests import name_cell
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_products,
    products,
    run_of,
)
from orchestrator.dashboard.table import Column, Number, OutcomeMark, Row, Table, Text
from orchestrator.domain.cell import Run
from orchestrator.domain.failure_signature import Signature
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.vocabulary import term
from orchestrator.store.grid_of_tests import GridCell, GridMark, TestsWanted

PAGE_SIZE = 50
WIDTHS = (30, 60)
LINKED_MARKS = 1_000
"""Maximum number of marks that are links, the newest columns first; more elements slow a
browser's layout."""
_QUIET = frozenset({"passed", "skipped", "xfailed", ""})
_TITLES = {
    None: "All tests",
    GridGroup.FAILING: "Last result failed",
    GridGroup.MISSING: "Last result missing",
    GridGroup.FLAKY: "Flaky, did not fail last",
    GridGroup.GONE: "Failed, now gone",
    GridGroup.STEADY: "Steady",
}
_PLAIN = {outcome: OutcomeMark(outcome.word) for outcome in TestOutcome}
_NOTHING = OutcomeMark("")
_NOT_AVAILABLE = OutcomeMark("not_available")
_TO_COME = OutcomeMark("running")
_RETRIED = OutcomeMark("flaky")

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Shown:
    """The product, platform or run that a grid shows, with its results."""

    product: str
    cell: str
    """Name of the cell whose runs are the columns; empty if the cells of `run` are."""
    run: Run | None
    grid: Grid
    named: Mapping[str, Signature]

    @property
    def caption(self) -> str:
        """The selection in words."""
        if self.run is not None:
            return f"Tests by the cells of run {self.run.id}"
        return f"Tests by runs of {self.cell or 'nothing'}, the newest run first"


@router.get(urls.GRID)
def show_grid(
    request: PageRequestDep, q: str = "", job: str = "", after: int | None = None
) -> Response:
    """Show a page of tests by runs."""
    known = products(request)
    product = of_products(request, known)
    names = request.context.stores.grids.names(product)
    wanted = GridFilter(
        tests=_tests_wanted(q, job), group=_group(request), limit=PAGE_SIZE, after=after
    )
    shown = _shown(request, product, names, wanted)
    facts = {
        "shown": shown,
        "product": product,
        "products": known,
        "names": names,
        "jobs": request.context.stores.grids.jobs(product),
        "groups": _tabs(request, shown.grid),
        "width": _width(request),
        "widths": WIDTHS,
        "q": q,
        "job": job,
    }
    tables = (_table(request, shown), _legend(shown))
    return request.answer(
        Page(
            template="grid.html.j2",
            title="Tests by runs" if shown.run is None else "Tests by cells",
            tables=tables,
            facts=facts,
            section=urls.GRID,
        )
    )


def _shown(request: PageRequest, product: str, names: Sequence[str], wanted: GridFilter) -> _Shown:
    stores = request.context.stores
    run = run_of(request, request.query["run"]) if request.query.get("run") else None
    cell = request.query.get("cell", "") or next(iter(names), "")
    if run is not None:
        grid, cell = grid_of_run(stores, run.id, wanted), ""
    else:
        grid = grid_of_cells(stores, product, cell, wanted, cells=_width(request))
    lettered = [kind.signature for kind in grid.kinds.values() if kind.letter]
    return _Shown(
        product, cell, run, grid, stores.failure_groups.named(lettered) if lettered else {}
    )


def _tests_wanted(q: str, job: str) -> TestsWanted:
    """Parse the filter: words that a name must contain and, with ``-``, must not contain."""
    words = q.split()
    return TestsWanted(
        words=[word for word in words if not word.startswith("-")],
        without=[word[1:] for word in words if len(word) > 1 and word.startswith("-")],
        job=job,
    )


def _group(request: PageRequest) -> GridGroup | None:
    named = request.query.get("group", "")
    if named and named not in list(GridGroup):
        raise PageMissingError(f"tests are {', '.join(GridGroup)}; none is {named!r}")
    return GridGroup(named) if named else None


def _width(request: PageRequest) -> int:
    named = request.query.get("columns", "")
    return int(named) if named in map(str, WIDTHS) else WIDTHS[0]


def _tabs(request: PageRequest, grid: Grid) -> list[dict[str, object]]:
    """Return a tab for each group, with title, count, URL and whether it is selected."""
    now = _group(request)
    return [
        {
            "title": title,
            "many": grid.groups.get(group, 0) if group else None,
            "tone": term(group).tone if group else "",
            "href": request.here(group=group or "", after=""),
            "is_now": group is now,
        }
        for group, title in _TITLES.items()
        if group is not GridGroup.STEADY
    ]


def _table(request: PageRequest, shown: _Shown) -> Table:
    grid = shown.grid
    marks = _Marks(shown)
    linked = marks.linked()
    return Table(
        id="grid",
        caption=visible(cut(shown.caption, 300)),
        columns=[Column("test", "Test"), *(_column(shown, cell) for cell in grid.cells)],
        rows=[
            Row((_name(row), *(marks.mark(row, cell, linked) for cell in grid.cells)))
            for row in grid.rows
        ],
        empty=_empty(request, shown),
        command="" if shown.product else "seatrial init && seatrial run seatrial.yaml",
        next=request.here(after=str(grid.next)) if grid.next is not None else "",
        is_caption_hidden=True,
        is_grid=True,
    )


def _empty(request: PageRequest, shown: _Shown) -> str:
    if not shown.product:
        return "No run has been launched yet."
    if not shown.grid.cells:
        return f"No run of {visible(shown.cell)} has tests; another platform may."
    if request.query.get("after"):
        return "There are no more tests: go back to the first page."
    if request.query.get("q") or request.query.get("job") or request.query.get("group"):
        return "No test is like that: take a word or a choice away."
    return "No test has been reported yet: they come as the run goes on."


def _column(shown: _Shown, cell: GridCell) -> Column:
    """Return a column with time and version; unusual outcomes have a sign."""
    outcome = cell.outcome or cell.state
    is_usual = outcome in (Outcome.PASSED, Outcome.FAILED)
    sign = "" if is_usual else f"{term(outcome).glyph} {term(outcome).word} · "
    what = cell.name if shown.run is not None else f"{cell.at:%m-%d %H:%M} · {cell.version}"
    title = " · ".join(filter(None, (f"{sign}{visible(cut(what, 40))}", cell.origin)))
    id_ = cell.name if shown.run is not None else cell.run
    return Column(id_, title, href=urls.cell_url(cell.run, cell.name))


def _name(row: GridRow) -> Text:
    return name_cell(row.test, "" if row.group is GridGroup.STEADY else term(row.group).word)


class _Marks:
    """Creates the marks of results."""

    def __init__(self, shown: _Shown) -> None:
        self._shown = shown
        self._kinds: Mapping[str, GridFailureGroup] = shown.grid.kinds
        self._alive = {cell.number for cell in shown.grid.cells if not cell.is_done}

    def linked(self) -> frozenset[tuple[int, int]]:
        """Return the (cell, test) pairs whose marks are links, up to `LINKED_MARKS`."""
        return frozenset(list(self._loud())[:LINKED_MARKS])

    def _loud(self) -> Iterator[tuple[int, int]]:
        for cell in self._shown.grid.cells:
            for row in self._shown.grid.rows:
                mark = row.marks.get(cell.number)
                if mark is not None and self._word(mark) not in _QUIET:
                    yield cell.number, row.test.id

    def _word(self, mark: GridMark) -> str:
        is_good = mark.outcome in (TestOutcome.PASSED, TestOutcome.XPASSED)
        if is_good and (mark.cell, mark.test) in self._shown.grid.retried:
            return "flaky"
        if mark.outcome is TestOutcome.MISSING and mark.cell in self._alive:
            return ""
        return mark.outcome.word

    def mark(self, row: GridRow, cell: GridCell, linked: frozenset[tuple[int, int]]) -> OutcomeMark:
        """Return the mark of the test's outcome in the cell."""
        found = row.marks.get(cell.number)
        if found is None:
            return _lacking(cell)
        if found.outcome is TestOutcome.MISSING and cell.number in self._alive:
            return _TO_COME
        word = self._word(found)
        if (cell.number, row.test.id) not in linked:
            return self._plain(word, found)
        kind = self._kinds.get(found.signature)
        href = urls.result_url(cell.run, cell.name, row.test.id)
        return OutcomeMark(word, kind.letter if kind else "", href)

    def _plain(self, word: str, mark: GridMark) -> OutcomeMark:
        kind = self._kinds.get(mark.signature)
        if kind is not None and kind.letter:
            return OutcomeMark(word, kind.letter)
        return _RETRIED if word == "flaky" else _PLAIN[mark.outcome]


def _lacking(cell: GridCell) -> OutcomeMark:
    """Return the mark of a test without a result; it differs if the whole cell has no result."""
    if cell.outcome is Outcome.NOT_AVAILABLE:
        return _NOT_AVAILABLE
    has_none = cell.is_done and not cell.counts.collected
    return _PLAIN[TestOutcome.NOT_RUN] if has_none else _NOTHING


def _legend(shown: _Shown) -> Table:
    here = {mark.signature for row in shown.grid.rows for mark in row.marks.values()}
    kinds = [kind for kind in shown.grid.kinds.values() if kind.letter and kind.signature in here]
    return Table(
        id="kinds",
        caption="Failure groups",
        columns=(
            Column("letter", "Letter"),
            Column("failure", "Failure"),
            Column("seen", "Seen here", is_number=True),
        ),
        rows=[
            Row(
                (
                    Text(kind.letter),
                    Text(
                        str(shown.named.get(kind.signature, kind.signature)),
                        urls.signature_url(kind.signature),
                    ),
                    Number(kind.seen),
                )
            )
            for kind in kinds
        ],
        empty="No failure on this page was seen twice in these cells.",
    )
