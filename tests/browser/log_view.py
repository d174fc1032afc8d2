"""What a reader of a log in a browser sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.browser.conftest import signed_in
from tests.browser.log_world import writer
from tests.browser.page_watch import Watched, watched
from tests.browser.server import served

# Read in an animation frame, after the page's own: between two frames a page is as nobody sees it.
_SEEN = """async () => {
    await new Promise(requestAnimationFrame);
    const box = document.querySelector('.log-box').getBoundingClientRect();
    return [...document.querySelectorAll('.log-row')].filter((row) => {
        const at = row.getBoundingClientRect();
        return at.top >= box.top - 1 && at.bottom <= box.bottom + 1;
    }).map((row) => [Number(row.id.slice(1)), row.querySelector('.log-text').textContent]);
}"""
Open = Callable[..., AbstractContextManager[Watched]]


@contextmanager
def a_log(chromium: Browser, home: Path, *, lines: int) -> Iterator[Open]:
    """A log of numbered lines that is over, and how a browser opens it."""
    with writer(home) as found:
        found.number(1, lines)
        found.finish()
        path = found.path
    with served(home, "--no-cells") as it:
        state = signed_in(chromium, it)

        @contextmanager
        def opened(query: str = "", **more: Any) -> Iterator[Watched]:
            with watched(chromium, it, state, **more) as eyes:
                eyes.open(path + query)
                yield eyes

        yield opened


def seen(page: Page) -> list[tuple[int, str]]:
    """The lines that a reader sees, once the text of each has arrived."""
    lines: list[tuple[int, str]] = []

    def arrived() -> bool:
        lines[:] = [(number, text) for number, text in page.evaluate(_SEEN)]
        return all(text != "…" for _, text in lines)

    until(arrived)
    return lines


def until(met: Callable[[], bool], *, within_s: float = 90.0) -> float:
    """Wait; how long it took."""
    begin = time.monotonic()
    while not met():
        assert time.monotonic() - begin < within_s, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - begin


def shows(page: Page, number: int) -> bool:
    return (number, f"line {number} of the log") in seen(page)


def expect(page: Page, number: int) -> None:
    until(lambda: shows(page, number))
