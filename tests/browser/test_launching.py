"""A run is planned and started from the page, with the keyboard, and watched until it is over."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from orchestrator.dashboard import urls
from tests.accounts import ACCOUNT, beside_account, needs_account
from tests.browser.actions import Hands
from tests.browser.conftest import signed_in
from tests.browser.page_watch import watched
from tests.browser.server import Served, served
from tests.integration.api_context import archive

pytestmark = needs_account

LINES = 12
MANIFEST = """\
schema = 1
name = "talker"
version = "1.0"
[python]
candidates = ["python3"]
[[job]]
id = "talk"
kind = "demo"
title = "Talks for a while"
command = ["{python}", "talk.py"]
"""
TALK = f"""\
import time
for number in range(1, {LINES + 1}):
    print(f"this is line {{number}}", flush=True)
    time.sleep(1)
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: talking}
subject: {name: talker, version: "1.0"}
platforms:
  - {id: here, provider: local}
jobs:
  - {id: talk}
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that runs cells on this computer."""
    home: Path = tmp_path_factory.mktemp("launching")
    beside = tmp_path_factory.mktemp("beside") / "account"
    as_account = ("--local-jobs-as", ACCOUNT)
    with served(home, *as_account, begin=lambda words: beside_account(beside, *words)) as it:
        yield it


@pytest.fixture(scope="module")
def payload(controller: Served) -> str:
    """The digest of what was uploaded."""
    whole = archive(MANIFEST, **{"talk.py": TALK})
    digest = hashlib.sha256(whole).hexdigest()
    token = (controller.home / "token").read_text().strip()
    answer = httpx.put(
        controller.url(f"{urls.API}/payloads/{digest}"),
        content=whole,
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    assert answer.is_success, answer.text
    return digest


def test_launch_and_follow_a_run(chromium: Browser, controller: Served, payload: str) -> None:
    with watched(chromium, controller, signed_in(chromium, controller)) as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.BOARD)
        eyes.ask_axe()
        hands.press("g", "l")
        page.wait_for_url(controller.url(urls.LAUNCH))
        hands.tab_to(page.locator("#text"))
        hands.press("Control+a")
        page.keyboard.insert_text(MATRIX)
        hands.press("Escape")
        hands.tab_to(page.get_by_role("textbox", name="Or one that is stored"))
        hands.type(payload)
        plan = page.get_by_role("button", name="Plan")
        hands.tab_to(plan)
        hands.press("Enter")
        start = page.get_by_role("button", name="Start")
        start.wait_for()
        eyes.look()
        eyes.ask_axe()
        hands.tab_to(start)
        hands.press("Enter")
        page.wait_for_url(re.compile(r"/runs/[0-9a-z]{26}"))
        eyes.look()
        log = page.get_by_role("link", name="log", exact=True)
        log.wait_for()
        page.get_by_text("running").first.wait_for(timeout=60_000)
        hands.tab_to(log)
        hands.open(log)
        page.get_by_text(f"this is line {LINES}", exact=True).wait_for(timeout=60_000)
        seen = page.locator(".log-text").all_inner_texts()
        said = [text for text in seen if text.startswith("this is line")]
        assert said == [f"this is line {number}" for number in range(1, LINES + 1)]
        page.go_back()
        page.get_by_text("passed").first.wait_for(timeout=60_000)
        eyes.look()
        eyes.ask_axe()
