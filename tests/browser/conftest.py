"""Chromium, and controllers with something to show, for the tests of the pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, sync_playwright

from orchestrator.application.context import Context
from orchestrator.dashboard.app import create_dashboard
from tests.browser.page_watch import Watched, watched
from tests.browser.server import Served, served
from tests.browser.world import World, make_world

CHROMIUM = shutil.which("chromium")
Watch = Callable[..., AbstractContextManager[Watched]]


@dataclass(frozen=True)
class Trial:
    """A controller that answers, and what it has to tell."""

    served: Served
    world: World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A home with a history."""
    return make_world(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def hostile_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A home in which every text tries to be more than text."""
    return make_world(tmp_path_factory.mktemp("hostile"), hostile=True)


@pytest.fixture(scope="session")
def trial(world: World) -> Iterator[Trial]:
    """A controller over a home with a history."""
    # Without cells: the world's live run is nobody's but the tests'.
    with served(world.home, "--no-cells") as it:
        yield Trial(it, world)


@pytest.fixture(scope="session")
def hostile_trial(hostile_world: World) -> Iterator[Trial]:
    """A controller over the home that means harm."""
    with served(hostile_world.home, "--no-cells") as it:
        yield Trial(it, hostile_world)


# Not for the session: while it is open, this thread has a running event loop, and other tests
# of the same worker start one of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def watch(chromium: Browser, trial: Trial) -> Watch:
    """Opens a watched page, signed in."""
    return partial(watched, chromium, trial.served, signed_in(chromium, trial.served))


@pytest.fixture(scope="module")
def watch_hostile(chromium: Browser, hostile_trial: Trial) -> Watch:
    """Opens a watched page of the hostile home, signed in."""
    served = hostile_trial.served
    return partial(watched, chromium, served, signed_in(chromium, served))


@pytest.fixture(scope="session")
def application_routes() -> list[APIRoute]:
    """What the application of pages answers."""
    return list(_routes(create_dashboard(cast(Context, None)).routes))


def _routes(found: Iterable[Any]) -> Iterator[APIRoute]:
    """A router that was included keeps its routes to itself."""
    for one in found:
        if isinstance(one, APIRoute):
            yield one
        elif inner := getattr(one, "original_router", None):
            yield from _routes(inner.routes)


def signed_in(browser: Browser, server: Served) -> Any:
    """What the browser keeps after somebody has followed the printed link and sent its form."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.sign_in)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/login" not in url)
    assert "token=" not in page.url, "the secret stays in the address"
    state = context.storage_state()
    context.close()
    assert state["cookies"], f"not signed in: {page.url}"
    return state
