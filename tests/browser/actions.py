"""Hands on a keyboard, and no mouse."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator

from tests.browser.page_watch import Watched

MOST_STOPS = 80


class Hands:
    """Presses keys, as somebody would who has nothing else."""

    def __init__(self, eyes: Watched) -> None:
        self._eyes = eyes
        self._page = eyes.page

    def press(self, *keys: str) -> None:
        """One after the other."""
        for key in keys:
            self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._page.keyboard.type(text)

    def tab_to(self, wanted: Locator) -> None:
        """Go on with Tab until it has the focus; it must be in sight then."""
        self._until(wanted, lambda: self.press("Tab"))

    def down_to(self, wanted: Locator) -> None:
        """Go down in a table until it has the focus."""
        self._until(wanted, lambda: self.press("j"))

    def _until(self, wanted: Locator, step: Callable[[], None]) -> None:
        for _ in range(MOST_STOPS):
            step()
            if wanted.evaluate("(it) => it === document.activeElement"):
                self._assert_seen()
                return
        at = self._page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        raise AssertionError(f"{MOST_STOPS} keys did not lead to {wanted}; the focus is at {at}")

    def _assert_seen(self) -> None:
        """The focus is in the window, and has a line round it."""
        seen = self._page.evaluate(
            """() => {
                const it = document.activeElement, box = it.getBoundingClientRect();
                const line = getComputedStyle(it);
                return [box.bottom > 0 && box.top < innerHeight, line.outlineStyle !== 'none'];
            }"""
        )
        assert seen == [True, True], "the focus is not to be seen"

    def open(self, wanted: Locator) -> None:
        """Press Enter on what has the focus, and wait for the page that it leads to."""
        assert wanted.evaluate("(it) => it === document.activeElement")
        before = self._page.url
        self.press("Enter")
        self._page.wait_for_url(lambda url: url != before)
        self._eyes.look()
