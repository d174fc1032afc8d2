"""Ways through a log end where they lead, whatever glides, fails or is pressed meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.log_view import Open, a_log, expect, seen, until

LAST = 300_000
SLOWER = 4  # times, as on a small computer: a glide takes long enough to be cut off


@pytest.fixture(scope="module")
def log(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """More lines than the bar has room for."""
    with a_log(chromium, tmp_path_factory.mktemp("ways"), lines=LAST) as opened:
        yield opened


def slow(page: Page) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})


def test_an_end_is_reached_though_the_browser_was_gliding(log: Open) -> None:
    chance = random.Random(5)
    keys = ("PageDown", "PageUp", "ArrowDown", "ArrowUp", "Space", "Home", "End", "wheel", "wheel")
    missed = []
    with log() as eyes:
        page = eyes.page
        expect(page, LAST)
        page.locator(".log-box").hover()
        page.locator(".log-box").focus()
        slow(page)
        for _ in range(20):
            way = [(chance.choice(keys), chance.choice((0, 20, 60, 120, 200))) for _ in range(3)]
            for key, after_ms in way:
                if key == "wheel":
                    page.mouse.wheel(0, chance.choice((-300, 300, 900)))
                else:
                    page.keyboard.press(key)
                page.wait_for_timeout(after_ms)
            last, end = chance.choice((("Home", 1), ("End", LAST)))
            page.keyboard.press(last)
            try:
                expect(page, end)
            except AssertionError:
                missed.append((*way, last))
        assert missed == []


def test_pages_lead_on_with_two_lines_in_common_and_back(log: Open) -> None:
    with log("?line=1000") as eyes:
        page = eyes.page
        expect(page, 1000)
        page.locator(".log-box").focus()
        before = seen(page)
        page.keyboard.press("PageDown")
        until(lambda: seen(page)[0] in before[-2:])
        page.keyboard.press("Shift+Space")
        until(lambda: seen(page) == before)
        page.keyboard.press("ArrowDown")
        until(lambda: seen(page)[0] == before[1])


def test_a_key_that_scrolls_ends_the_way_that_g_began(log: Open) -> None:
    with log() as eyes:
        page = eyes.page
        page.locator(".log-box").focus()
        here = page.url
        for key in ("g", "PageDown", "g", "Home", "g", "End"):
            page.keyboard.press(key)
        expect(page, LAST)
        assert page.url == here


def test_lines_that_could_not_be_had_are_asked_for_again(log: Open) -> None:
    with log() as eyes:
        page = eyes.page
        expect(page, LAST)
        state = page.locator(".log-state")
        assert state.inner_text() == ""
        page.route("**/log.json?*", lambda route: route.abort())
        page.keyboard.press("Home")
        until(lambda: "lost" in state.inner_text())
        page.unroute_all()
        expect(page, 1)
        until(lambda: state.inner_text() == "")
        eyes.wrong = [it for it in eyes.wrong if "ERR_FAILED" not in it]
