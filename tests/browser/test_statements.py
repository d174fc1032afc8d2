"""What is told of every page without a browser: its statements, its HTML and its other formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import event
from starlette.testclient import TestClient

from orchestrator.application.tokens import create_token
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import Settings
from orchestrator.dashboard import urls
from orchestrator.dashboard.app import create_dashboard
from orchestrator.domain.caller_identity import Scope
from tests.browser.addresses import PAGES, Address
from tests.browser.world import World
from tests.integration.dashboard.shown import Element, read_page
from tests.prose import faults

EVERY = pytest.mark.parametrize("address", PAGES, ids=lambda one: one.name)


@dataclass
class Counted:
    """The pages, in this process, and what they ask the database."""

    client: TestClient
    world: World
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def counted(hostile_world: World) -> Iterator[Counted]:
    """Pages over a world, seen by somebody who may do everything."""
    parts = build(Settings(home=hostile_world.home), runs_cells=False)
    _, secret = create_token(parts.context, "looker", Scope.ADMIN, days=1)
    it = Counted(
        TestClient(
            create_dashboard(parts.context),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {secret}"},
        ),
        hostile_world,
    )

    @event.listens_for(parts.database.sessions.engine, "before_cursor_execute")
    def count(_connection, _cursor, statement, _parameters, _context, _many) -> None:
        if not statement.startswith("BEGIN"):
            it.asked.append(statement)

    with it.client:
        yield it
    parts.database.close()


@EVERY
def test_a_page_keeps_to_its_statements(counted: Counted, address: Address) -> None:
    path = address.path(counted.world)
    counted.client.get(path)  # what is read once a process is none of the page's
    counted.asked.clear()
    answer = counted.client.get(path)
    assert answer.status_code == 200
    asked = [" ".join(it.split())[:100] for it in counted.asked]
    assert len(asked) <= address.statements, f"{len(asked)}\n" + "\n".join(asked)
    assert not [it for it in counted.asked if it.startswith(("INSERT", "UPDATE", "DELETE"))], (
        "looking changes nothing"
    )


@EVERY
def test_a_page_can_be_read_without_javascript(counted: Counted, address: Address) -> None:
    page = read_page(counted.client.get(address.path(counted.world)).text)
    assert page.one("h1").text
    assert page.one("main").text
    assert page.one("nav", aria_label="Pages").all("a", href=urls.GATES)
    buttons = [one for one in page.all("button") if one.get("type") != "submit"]
    dead = [one for one in buttons if not one.has("hidden") and "needs-script" not in one.classes]
    assert dead == [], "buttons that would do nothing"


@EVERY
def test_a_page_is_json_csv_and_markdown_too(counted: Counted, address: Address) -> None:
    path, _, query = address.path(counted.world).partition("?")
    shorter = "/index" if path == urls.BOARD else path
    for suffix, kind in (
        ("json", "application/json"),
        ("csv", "text/csv"),
        ("md", "text/markdown"),
    ):
        answer = counted.client.get(f"{shorter}.{suffix}?{query}")
        if suffix == "json":
            assert answer.status_code == 200, answer.text
            answer.json()
        if answer.status_code == 200:
            assert answer.headers["content-type"].startswith(kind)
        else:
            assert answer.status_code == 404, "a page without a table says so"


@EVERY
def test_a_page_is_written_for_people(counted: Counted, address: Address) -> None:
    """No ``1 tests``, no raw time or code, no heading above nothing, no table without rows."""
    page = read_page(counted.client.get(address.path(counted.world)).text)
    main = page.one("main")
    logged = main.all(class_="log-text")
    for one in (*logged, *(one for tag in _AS_WRITTEN for one in main.all(tag))):
        one.children.clear()
    wrong = [f"{one.tag} {one.text}" for one in main.all() if _is_empty(one)]
    for one in main.all():
        if one.tag not in _INLINE:
            one.children.append(" | ")
    assert [*wrong, *faults(main.text)] == []


_AS_WRITTEN = ("pre", "textarea", "code", "time")
_INLINE = ("a", "b", "bdi", "em", "i", "span", "strong", "wbr")


def _is_empty(one: Element) -> bool:
    """Whether it is a table without rows, or a section of nothing but its heading."""
    if one.tag == "tbody":
        return not one.all("tr")
    inside = [child for child in one.children if isinstance(child, Element)]
    return one.tag == "section" and all(child.tag in ("h2", "h3") for child in inside)
