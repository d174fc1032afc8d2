"""Tests: searching for one, and one over all versions and platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Response

from orchestrator.application.show_test import TestStory, follow_test
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.test_names import name_cell, short_name
from orchestrator.dashboard.pages.test_story import (
    beside_table,
    history_table,
    names_table,
    platforms_table,
    told_of,
)
from orchestrator.dashboard.products import of_products, products
from orchestrator.dashboard.responses import Asked, AskedDep, Page, PageMissingError
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, Text
from orchestrator.domain.alias import KnownTest
from orchestrator.store.grids import CellGo

PAGE_SIZE = 50
EACH = 60
"""Results of a test that are looked at for each platform."""
HISTORY = 60
_FOUND = (
    Column("test", "Test"),
    Column("newest", "Newest result"),
    Column("platform", "On"),
    Column("version", "Version"),
    Column("at", "When"),
    Column("id", "Number", is_number=True),
)

router = APIRouter()


@router.get(urls.TESTS)
def search(asked: AskedDep, q: str = "", job: str = "", after: int | None = None) -> Response:
    """Tests whose node id holds some words."""
    known = products(asked)
    product = of_products(asked, known)
    stores = asked.context.stores
    found = stores.tests.page(
        product=product, job=job or None, contains=q.strip(), limit=PAGE_SIZE, after=after
    )
    last = {go.test: go for go in stores.grids.last([test.id for test in found.items])}
    table = Table(
        id="tests",
        caption="Tests by their numbers",
        columns=_FOUND,
        rows=[_found(asked, test, last.get(test.id)) for test in found.items],
        empty="No test's name holds this." if q or job else "No test has been reported yet.",
        command="" if product else "seatrial run matrices/local.yaml",
        next=asked.here(after=str(found.next)) if found.next is not None else "",
        is_caption_hidden=True,
    )
    facts = {
        "product": product,
        "products": known,
        "jobs": stores.grids.jobs(product),
        "q": q,
        "job": job,
    }
    page = Page(
        template="tests.html.j2", title="Tests", tables=(table,), facts=facts, section=urls.GRID
    )
    return asked.answer(page)


@router.get(urls.TESTS + "/{test_id}")
def show_test(asked: AskedDep, test_id: int, cell: str = "", before: str = "") -> Response:
    """One test, by any of its names."""
    story = follow_test(asked.context.stores, test_id, each=EACH, at=asked.now)
    if story is None:
        raise PageMissingError(f"there is no test {test_id}; {urls.TESTS} searches for one")
    shown, older = _page(_history(asked, story, cell, before))
    more = asked.here(before=older) if older else ""
    tables = (
        platforms_table(asked, story),
        history_table(story, shown, more=more),
        beside_table(story),
        names_table(story),
    )
    return asked.answer(
        Page(
            template="test.html.j2",
            title=short_name(story.test.nodeid),
            tables=tables,
            facts={"story": story, "told": told_of(asked, story), "cell": cell, "before": before},
            data=_data(story),
            section=urls.GRID,
        )
    )


def _history(asked: Asked, story: TestStory, cell: str, before: str) -> Sequence[CellGo]:
    """Results, the newest first; more than a page has where there are more."""
    if not before and not cell:
        goes = (go for one in story.cells for go in one.goes)
        return sorted(goes, key=lambda go: go.run, reverse=True)
    tests = [story.test.id, *(one.id for one in story.names)]
    return asked.context.stores.grids.strips(tests, each=HISTORY + 1, cell=cell, before=before)


def _page(goes: Sequence[CellGo]) -> tuple[Sequence[CellGo], str]:
    """A page ends with the last result of a run, which the next page begins after."""
    if len(goes) <= HISTORY:
        return goes, ""
    cut_off = goes[HISTORY].run
    shown = [go for go in goes[:HISTORY] if go.run != cut_off] or goes[:HISTORY]
    return shown, shown[-1].run


def _found(asked: Asked, test: KnownTest, last: CellGo | None) -> Row:
    if last is None:
        nothing = Text("–")
        return Row((name_cell(test), Badge(""), nothing, nothing, Moment(None), _number(test)))
    return Row(
        (
            name_cell(test),
            Badge(last.outcome.word, urls.cell_url(last.run, last.cell)),
            Text(last.cell),
            Text(last.version),
            Moment(last.at, asked.now),
            _number(test),
        )
    )


def _number(test: KnownTest) -> Text:
    return Text(str(test.id))


def _data(story: TestStory) -> Mapping[str, object]:
    test = story.test
    return {
        "test": {
            "id": test.id,
            "product": test.product,
            "job": test.job,
            "nodeid": test.nodeid,
            "older_names": [one.nodeid for one in story.names],
        },
        "flaky": {
            "passed_on_retry": story.flaky.passed_on_retry,
            "split": story.flaky.split,
            "flips": story.flaky.flips,
            "chances": story.flaky.chances,
            "judged": story.flaky.judged,
            "failures": story.flaky.failures,
            "likely": story.flaky.likely,
        },
        "newest_failure": story.message or None,
    }
