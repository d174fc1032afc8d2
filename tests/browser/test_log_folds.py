"""Folds of a log: a job's lines go and come, and what is looked for unfolds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import signed_in
from tests.browser.log_view import Open, seen, until
from tests.browser.log_world import writer
from tests.browser.page_watch import watched
from tests.browser.server import served

LINES = 3_000


@pytest.fixture(scope="module")
def path() -> list[str]:
    return []


@pytest.fixture(scope="module")
def log(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, path: list[str]
) -> Iterator[Open]:
    """Three jobs of so many lines; a traceback ends the second one."""
    home = tmp_path_factory.mktemp("folds")
    with writer(home) as found:
        for job in ("one", "two", "three"):
            found.write(f"===== seatrial: {job} (demo) =====\n")
            found.write("".join(f"{job} {number}\n" for number in range(1, LINES)))
        found.finish()
        path.append(found.path)
    with served(home, "--no-cells") as it:
        yield partial(watched, chromium, it, signed_in(chromium, it))


def texts(page: Page) -> list[str]:
    return [text for _, text in seen(page)]


def test_a_folded_job_is_its_heading(log: Open, path: list[str]) -> None:
    with log() as eyes:
        page = eyes.open(path[0] + "?line=1") or eyes.page
        page.locator("#L1 .log-fold").click()
        until(lambda: texts(page)[1].startswith("===== seatrial: two"))
        assert [number for number, _ in seen(page)][:3] == [1, LINES + 1, LINES + 2]
        page.get_by_role("button", name="Fold all").click()
        until(lambda: len(seen(page)) == 3)
        page.locator(f"#L{LINES + 1} .log-fold").click()
        until(lambda: "two 1" in texts(page))
        assert [text.split()[-3] for text in texts(page)[:2]] == ["one", "two"]


def test_what_is_searched_for_unfolds_its_job(log: Open, path: list[str]) -> None:
    with log() as eyes:
        page = eyes.open(path[0] + "?line=1") or eyes.page
        page.get_by_role("button", name="Fold all").click()
        until(lambda: len(seen(page)) == 3)
        page.get_by_label("Search in this log").fill("three 2000")
        page.keyboard.press("Enter")
        until(lambda: "three 2000" in texts(page))
        page.keyboard.press("Escape")
        page.locator(".log-box").focus()
        page.keyboard.press("k")
        until(lambda: page.locator(".log-row.chosen").inner_text().endswith("three 1999"))


def test_a_jobs_link_leads_to_its_heading(log: Open, path: list[str]) -> None:
    with log() as eyes:
        page = eyes.open(path[0]) or eyes.page
        page.locator(".log-jobs a", has_text="two").click()
        until(lambda: page.locator(".log-row.chosen .log-number").inner_text() == str(LINES + 1))
