"""A page of a real browser, watched: what it logs, loads, breaks and weighs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

from tests.browser.server import Served
from tests.browser.vendoring.__main__ import BROWSER_TESTS

Scheme = Literal["light", "dark"]
MOST_NODES = 5_000
MOST_BYTES = 150_000
HEIGHT = 900
SETTLE_MS = 120
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOUR_RULES = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""Those of them that another colour scheme can break: the elements are the same."""
CANARY = "__a_script_of_theirs_ran"
"""Hostile texts try to set it on the window."""
_EARLY = """
window.__violations = [];
addEventListener('securitypolicyviolation', (e) =>
    __violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
"""
_WIDER = """() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    const inside = (e) => e.parentElement &&
        (getComputedStyle(e.parentElement).overflowX !== 'visible' || inside(e.parentElement));
    const out = [...document.body.querySelectorAll('*')].filter(
        (e) => e.getBoundingClientRect().right > wide + 1 && !inside(e));
    return [`${document.documentElement.scrollWidth} > ${wide}`,
        ...out.slice(0, 5).map((e) => e.outerHTML.slice(0, 120))];
}"""
_AXE = """(rules) => axe.run(document, {runOnly: rules, resultTypes: ['violations']}).then(
    (found) => found.violations.map((v) => `${v.id}: ${v.help}: ` + v.nodes.slice(0, 3).map(
        (n) => `${n.target} ${n.any.map((a) => a.message).join('; ').slice(0, 200)}`).join(' | ')))
"""


@dataclass
class Watched:
    """A page, and all that was seen to be wrong with it so far."""

    page: Page
    served: Served
    wrong: list[str] = field(default_factory=list)
    answers: list[Response] = field(default_factory=list)
    has_scripts: bool = True
    expected: int = 200

    def open(self, path: str, *, status: int = 200) -> None:
        """Go to one of the pages, and see what it weighs and how it lies."""
        self.expected = status
        answer = self.page.goto(self.served.url(path), wait_until="load")
        assert answer is not None
        if answer.status != status:
            self.wrong.append(f"{path}: answered {answer.status}")
        self.page.wait_for_timeout(SETTLE_MS)
        self.look()

    def narrow(self, width: int) -> None:
        """Make the window narrower, and look again."""
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.wait_for_timeout(SETTLE_MS)
        self.look()

    def look(self) -> None:
        """See what can be seen of the page as it is now."""
        at = self.page.url.removeprefix(self.served.origin)
        self.wrong += [f"{at}: wider than the window: {it}" for it in self.page.evaluate(_WIDER)]
        nodes = self.page.evaluate("document.getElementsByTagName('*').length")
        if nodes > MOST_NODES:
            self.wrong.append(f"{at}: {nodes} nodes")
        weight = self.weight()
        if weight > MOST_BYTES:
            self.wrong.append(f"{at}: {weight} bytes compressed")
        if self.has_scripts:
            self.wrong += [f"{at}: {it}" for it in self.page.evaluate("window.__violations")]
            if self.page.evaluate(f"window.{CANARY}"):
                self.wrong.append(f"{at}: a script of theirs ran")

    def weight(self) -> int:
        """Bytes that the last page needed, compressed, without the data of charts."""
        needed = [it for it in self.answers if "json" not in it.headers.get("content-type", "")]
        return sum(_compressed(it) for it in needed)

    def ask_axe(self, rules: object = RULES) -> None:
        """Have the page looked over for people who do not see, or not well."""
        if not self.has_scripts:
            return  # it would wait for a timer of the page for ever
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(_axe_source())
        at = self.page.url.removeprefix(self.served.origin)
        self.wrong += [f"{at}: axe: {it}" for it in self.page.evaluate(_AXE, rules)]

    def heard(self, message: ConsoleMessage) -> None:
        """What the console says; that an expected refusal came is no news."""
        refused = f"status of {self.expected}" in message.text and self.expected >= 400
        if message.type in {"error", "warning", "assert"} and not refused:
            self.wrong.append(f"{self.page.url}: console: {message.text}")

    def asked(self, request: Request) -> None:
        """Nothing is asked of anybody else."""
        if not request.url.startswith((self.served.origin + "/", "data:")):
            self.wrong.append(f"{self.page.url}: asks {request.url}")

    def answered(self, answer: Response) -> None:
        """Everything that a page asks for is there."""
        is_page = answer.request.is_navigation_request()
        if is_page:
            self.answers.clear()
        self.answers.append(answer)
        if answer.status >= 400 and not (is_page and answer.status == self.expected):
            self.wrong.append(f"{self.page.url}: {answer.url} answered {answer.status}")

    def failed(self, request: Request) -> None:
        """A stream that is closed because the page is left is no failure."""
        if "ERR_ABORTED" not in (request.failure or ""):
            self.wrong.append(f"{self.page.url}: {request.url} failed: {request.failure}")


@contextmanager
def watched(
    browser: Browser,
    served: Served,
    state: Any,
    *,
    scheme: Scheme = "light",
    width: int = 1000,
    scripts: bool = True,
) -> Iterator[Watched]:
    """A page of a fresh browser context that is signed in; nothing may be wrong at the end."""
    context: BrowserContext = browser.new_context(
        storage_state=state,
        color_scheme=scheme,
        viewport={"width": width, "height": HEIGHT},
        java_script_enabled=scripts,
        locale="en-GB",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
    )
    context.set_default_timeout(90_000)
    context.add_init_script(_EARLY)
    page = context.new_page()
    eyes = Watched(page, served, has_scripts=scripts)
    _listen(eyes)
    try:
        yield eyes
        assert not eyes.wrong, "\n".join(eyes.wrong)
    except Exception as error:
        error.add_note("\n".join([f"at {page.url}", *eyes.wrong]))
        raise
    finally:
        context.close()


def _listen(eyes: Watched) -> None:
    page = eyes.page
    page.on("console", eyes.heard)
    page.on("pageerror", lambda error: eyes.wrong.append(f"{page.url}: page error: {error}"))
    page.on("dialog", lambda box: (eyes.wrong.append(f"dialog: {box.message}"), box.dismiss()))
    page.on("request", eyes.asked)
    page.on("response", eyes.answered)
    page.on("requestfailed", eyes.failed)


def _compressed(answer: Response) -> int:
    if "event-stream" in answer.headers.get("content-type", "") or answer.status >= 300:
        return 0
    if answer.headers.get("content-encoding"):
        return int(answer.request.sizes()["responseBodySize"])
    return len(gzip.compress(answer.body(), 6))


def _axe_source() -> str:
    folder = next(BROWSER_TESTS.glob("axe-*"))
    return (folder / "axe.min.js").read_text("utf-8")
