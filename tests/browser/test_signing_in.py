"""The way in and out, and what there is to see for who went astray."""

from __future__ import annotations

import re

from playwright.sync_api import Browser

from orchestrator.dashboard import urls
from tests.browser.conftest import Trial, Watch, signed_in
from tests.browser.page_watch import watched


def test_a_stranger_signs_in_by_keyboard_and_gets_where_they_wanted(
    chromium: Browser, trial: Trial
) -> None:
    token = trial.served.sign_in.partition("token=")[2]
    with watched(chromium, trial.served, None, width=400) as eyes:
        eyes.open(f"{urls.RUNS}?before=zzzz")
        eyes.ask_axe()
        eyes.page.emulate_media(color_scheme="dark")
        eyes.page.get_by_label("Token").fill("seatrial_wrong")
        eyes.expected = 401
        eyes.page.keyboard.press("Enter")
        eyes.page.get_by_role("alert").wait_for()
        eyes.ask_axe()
        eyes.page.get_by_label("Token").fill(token)
        eyes.expected = 200
        eyes.page.keyboard.press("Enter")
        eyes.page.wait_for_url(re.compile(re.escape(urls.RUNS) + r"\?before=zzzz$"))
        assert eyes.page.get_by_role("heading", level=1).inner_text() == "Runs"


def test_signing_out_ends_the_session(chromium: Browser, trial: Trial) -> None:
    mine = signed_in(chromium, trial.served)  # that of `watch` is for the other tests
    with watched(chromium, trial.served, mine) as eyes:
        eyes.open(urls.RUNS)
        eyes.page.get_by_role("button", name="Sign out").press("Enter")
        eyes.page.wait_for_url(re.compile(urls.SIGN_IN))
        assert eyes.page.context.cookies() == []
        eyes.open(urls.RUNS)
        assert urls.SIGN_IN in eyes.page.url


def test_what_is_not_there_says_what_to_do_next(watch: Watch) -> None:
    with watch(width=400) as eyes:
        eyes.open("/nowhere/at/all", status=404)
        assert eyes.page.get_by_role("heading", level=1).inner_text() == "There is no such page"
        eyes.ask_axe()
        eyes.page.emulate_media(color_scheme="dark")
        eyes.ask_axe()
        eyes.page.get_by_role("link", name="Release board").press("Enter")
