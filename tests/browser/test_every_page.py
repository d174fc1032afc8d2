"""Every page in a real browser: nothing breaks, leaks, shouts or runs over, for anybody."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Route

from tests.browser.addresses import NO_PAGES, PAGES, Address
from tests.browser.conftest import Trial, Watch
from tests.browser.page_watch import COLOUR_RULES, Scheme
from tests.browser.screenshots import keep_picture

EVERY = pytest.mark.parametrize("address", PAGES, ids=lambda one: one.name)
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard"
WRITES = os.environ.get("SEATRIAL_WRITE_SCREENSHOTS") == "1"
WIDTHS = (1600, 1000, 400, 320)


@EVERY
def test_a_page_is_right(trial: Trial, watch: Watch, address: Address) -> None:
    """In both schemes, and in one window that is made narrower and narrower, as people do it."""
    with watch(width=WIDTHS[0]) as eyes:
        eyes.open(address.path(trial.world))
        eyes.ask_axe()
        eyes.page.emulate_media(color_scheme="dark")
        eyes.ask_axe(COLOUR_RULES)
        for width in WIDTHS[1:]:
            eyes.narrow(width)
        eyes.ask_axe()


_LONG = """() => {
    const rows = document.querySelectorAll('#tests tbody tr');
    rows[0].querySelector('th bdi').textContent = 'tests/' + 'long'.repeat(30) + '.py::test_x';
    rows[1].querySelector('td:nth-child(3) bdi').textContent = 'Error: /tmp/' + 'long'.repeat(30);
}"""
_ROOM = """(box) => [box.scrollWidth - box.clientWidth, box.scrollHeight - box.clientHeight]"""


_CUT = """() => [...document.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth && !box.closest('#board, #rates'))
    .map((box) => `${box.closest('[id]').id}: ${box.scrollWidth} of ${box.clientWidth}`)"""


@EVERY
def test_tables_are_whole_in_a_small_window(trial: Trial, watch: Watch, address: Address) -> None:
    """The board's two have a column for each platform or suite, and slide where these are many."""
    with watch(width=1280) as eyes:
        eyes.open(address.path(trial.world))
        assert eyes.page.evaluate(_CUT) == []


_PLOTS = """let real; window.plots = [];
Object.defineProperty(window, "uPlot", {
    set: (value) => { real = value; },
    get: () => real && class extends real {
        constructor(...given) { super(...given); window.plots.push(this); }
    },
});"""


def _only_one_point(route: Route) -> None:
    answer = route.fetch()
    page = answer.json()
    chart = page["chart"]
    chart |= {"points": [chart["points"][-1] | {"value": 1.21e-7}], "y": [1e-7, 2e-7]}
    chart |= {"levels": [], "changes": [], "versions": []}
    route.fulfill(response=answer, json=page)


def test_the_chart_of_one_run_shows_its_day_and_its_whole_numbers(
    trial: Trial, watch: Watch
) -> None:
    address = next(one for one in PAGES if one.name == "benchmark")
    with watch(width=1280) as eyes:
        eyes.page.add_init_script(_PLOTS)
        eyes.page.route(re.compile(r"/benchmarks/.*\.json"), _only_one_point)
        eyes.open(address.path(trial.world))
        eyes.page.wait_for_function("plots.length")
        days, labels, width = eyes.page.evaluate(
            "[(plots[0].scales.x.max - plots[0].scales.x.min) / 86400, plots[0].axes[1]._values,"
            " plots[0].axes[1]._size]"
        )
    assert days == 1
    assert all(len(label) < 8 and label.endswith("e-7") for label in labels)
    assert width > 56


def test_long_names_and_messages_leave_a_table_in_its_frame(trial: Trial, watch: Watch) -> None:
    address = next(one for one in PAGES if one.name == "cell")
    with watch(width=1280) as eyes:
        eyes.open(address.path(trial.world))
        eyes.page.evaluate(_LONG)
        assert eyes.page.locator("#tests .scroll").evaluate(_ROOM) == [0, 0]


def test_a_grid_is_scrolled_with_its_page(trial: Trial, watch: Watch) -> None:
    address = next(one for one in PAGES if one.name == "grid")
    with watch(width=1280) as eyes:
        eyes.open(address.path(trial.world))
        assert eyes.page.locator("#grid .scroll").evaluate(_ROOM) == [0, 0]


@pytest.mark.parametrize("name", ["run-live", "log", "gate"])
def test_without_javascript_what_needs_it_is_not_seen(
    trial: Trial, watch: Watch, name: str
) -> None:
    address = next(one for one in PAGES if one.name == name)
    with watch(scripts=False, width=400) as eyes:
        eyes.open(address.path(trial.world))
        page = eyes.page
        assert page.locator("main").inner_text().strip()
        dead = page.locator("button:not([type='submit']):visible").all_inner_texts()
        assert dead == [], "buttons that do nothing"
        page.locator("summary", has_text="Menu").click()
        about = page.get_by_role("navigation", name="Pages")
        assert about.get_by_role("link", name="Gates", exact=True).is_visible()


@pytest.mark.skipif(not WRITES, reason="SEATRIAL_WRITE_SCREENSHOTS=1 writes the manual's pictures")
def test_pages_have_their_pictures(trial: Trial, watch: Watch) -> None:
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for address, scheme in product([one for one in PAGES if one.has_picture], schemes):
        with watch(scheme=scheme, width=1280) as eyes:
            eyes.open(address.path(trial.world))
            assert eyes.wrong == [], "no picture of what is not right"
            keep_picture(eyes.page, PICTURES / f"{address.name}-{scheme}.png")


def test_every_page_of_the_application_is_looked_at(application_routes: list[APIRoute]) -> None:
    shown = {route.path for route in application_routes if "GET" in route.methods}
    assert shown - set(NO_PAGES) - {one.route for one in PAGES} == set()


def test_every_page_that_is_looked_at_is_one(application_routes: list[APIRoute]) -> None:
    assert {one.route for one in PAGES} <= {route.path for route in application_routes}
