"""What one project of a port can see and change of another one: nothing.

Each role of one project asks every route of REST, every page and every form with what there is in
the other one. Routes that are added are asked, too.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from orchestrator.adapters.files.home_folder import system_user
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.ports.engine import Durable, NotServedError
from orchestrator.application.tokens import create_token
from orchestrator.bootstrap import controller_wiring
from orchestrator.bootstrap.controller_wiring import CellFlows
from orchestrator.bootstrap.projects import (
    require_own_accounts,
    require_own_databases,
    warn_of_left_out,
)
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings
from orchestrator.dashboard.app import create_dashboard
from orchestrator.domain.audit import AuditFilters
from orchestrator.domain.caller_identity import Scope
from orchestrator.store.database import open_database
from orchestrator.store.errors import StoreUnusableError, UnknownIdError
from tests.databases import create, make_database
from tests.e2e.home import DEADLINE_S, a_home, eventually, free_port, serving
from tests.integration.api_context import MATRIX, Slots
from tests.integration.project_worlds import (
    API,
    HOST,
    ROLES,
    Full,
    Project,
    fill_up,
    two_projects,
    words,
)

_NAMED = re.compile(r"\{(\w+)(?::\w+)?\}")
_OPEN = ("/healthz", "/readyz", "/login", "/logout")
"""What everybody may ask, and what begins and ends a session."""
_NOT_FILLED = (
    f"{API}/runs/{{run_id}}/cells/{{cell}}/artifacts/",
    f"{API}/benchmarks/",
    "/benchmarks/",
)
"""What a world of this size does not have."""
Worlds = tuple[Project, Project, Full]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) for name in ("first", "further")],
)
def worlds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, slots: Slots
) -> Iterator[Worlds]:
    """An empty project, a full one, and what there is in that; each of the two is the first."""
    home = tmp_path_factory.mktemp("projects")
    with two_projects(home, slots, full=request.param) as (empty, full):
        empty.caller("person")  # both have the digest of the issuer's roles, which is no secret
        yield empty, full, fill_up(full)


@cache
def page_routes() -> tuple[tuple[str, str], ...]:
    """The method and path of every page and form."""

    def found(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
        for route in routes:
            included = getattr(route, "original_router", None)
            if included is not None:
                yield from found(included.routes)
            elif isinstance(route, APIRoute):
                yield from ((method, route.path) for method in route.methods)

    made = found(create_dashboard(None).routes)  # type: ignore[arg-type]
    return tuple(sorted(one for one in made if not one[1].startswith(_OPEN)))


def addressed(path: str, told: Full) -> str:
    """A path with what there is in the full project; a name that is not known fails."""
    noun = re.sub(r".*/(\w+)s/$", r"\1", path.partition("{name}")[0])
    named = {**told.ids, "name": told.ids.get(noun, told.ids["name"])}
    named["format"] = "junit" if "/export/" in path else "md"
    return _NAMED.sub(lambda one: named[one[1]], path)


def calls(full: Project, told: Full) -> Iterator[tuple[str, str, dict[str, str], Any]]:
    """Every call of REST: method, path, query and body."""
    document = full.desk.guarded.openapi()
    for path, methods in document["paths"].items():
        if path.startswith(_OPEN):
            continue
        for method, operation in methods.items():
            asked = {
                one["name"]: told.ids[one["name"]]
                for one in operation.get("parameters", ())
                if one["in"] == "query" and one["name"] in told.ids
            }
            yield method.upper(), path, asked, None
            body = _body(document, operation, told)
            if body:
                yield method.upper(), path, asked, body


def _body(document: Any, operation: Any, told: Full) -> dict[str, object]:
    """A body of what the full project has, as far as its names say what is meant."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    known = {name: told.ids[name] for name in schema.get("properties", ()) if name in told.ids}
    extra = {"rule": "cost", "reason": "because", "days": 7, "note": "seen", "level": "read"}
    return {**known, **{name: extra[name] for name in schema.get("required", ()) if name in extra}}


def leaked(answer: Any, secret: set[str], *said: object) -> set[str]:
    """What an answer has of the full project that the caller did not say."""
    return (words(f"{answer.text} {answer.headers}") & secret) - words(repr(said))


def of_audit(address: str, told: Full) -> object:
    """What callers said earlier: the audit log of their own project has that they were refused."""
    return told if "/audit" in address else ""


def unseen(empty: Project, full: Project) -> set[str]:
    """What only the full project has."""
    return words(repr(full.rows())) - words(repr(empty.rows()))


@pytest.mark.parametrize("role", ROLES)
def test_rest_of_one_project_knows_nothing_of_another(worlds: Worlds, role: str) -> None:
    empty, full, told = worlds
    secret, before, wrong, asked = unseen(empty, full), full.rows(), [], 0
    client = empty.caller(role)
    for number, (method, path, query, body) in enumerate(calls(full, told)):
        address = addressed(path, told)
        answer = client.request(
            method,
            address,
            params=query,
            json=body,
            headers={"Idempotency-Key": f"{role}-{number}"},
        )
        asked += 1
        found = leaked(answer, secret, address, query, body, of_audit(address, told))
        is_of_another = "{" in path and method != "PUT"
        is_refused = answer.status_code in ((401, 403, 404) if role != "admin" else (404,))
        is_invalid = body is not None and answer.status_code == 422
        if found or answer.status_code >= 500 or (is_of_another and not (is_refused or is_invalid)):
            wrong.append((method, address, body, answer.status_code, found, answer.text[:200]))
    assert wrong == []
    assert asked >= 80
    assert full.rows() == before


@pytest.mark.parametrize("role", ROLES)
def test_pages_of_one_project_know_nothing_of_another(worlds: Worlds, role: str) -> None:
    empty, full, told = worlds
    secret, before, wrong = unseen(empty, full), full.rows(), []
    client = empty.caller(role)
    for address in told.pages:
        answer = client.get(address)
        found = leaked(answer, secret, address, of_audit(address, told))
        if answer.status_code >= 500 or found:
            wrong.append(("GET", address, answer.status_code, found))
    for method, path in page_routes():
        address = addressed(path, told)
        answer = client.request(method, address, data={**told.ids, "csrf": csrf_of(client)})
        found = leaked(answer, secret, address, told)
        if answer.status_code == 500 or found:
            wrong.append((method, address, answer.status_code, found))
    assert wrong == []
    assert full.rows() == before


def csrf_of(client: TestClient) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/runs").text)
    assert found is not None
    return found[1]


def test_its_own_people_see_what_others_do_not(worlds: Worlds) -> None:
    """The same calls, so that nothing above is unseen because it is not there."""
    empty, full, told = worlds
    secret, seen, missing = unseen(empty, full), set(), []
    client = full.caller("admin")
    for method, path, query, _ in calls(full, told):
        if method != "GET" or path.endswith("/events"):
            continue
        answer = client.get(addressed(path, told), params=query)
        seen |= leaked(answer, secret)
        if "{" in path and answer.status_code == 404:
            missing.append(path)
    for address in told.pages:
        answer = client.get(address)
        seen |= leaked(answer, secret)
        if answer.status_code == 404:
            missing.append(address)
    assert [one for one in missing if not one.startswith(_NOT_FILLED)] == []
    assert len(seen) > 30


@pytest.mark.parametrize("role", ROLES)
def test_a_secret_is_taken_by_its_own_project_alone(worlds: Worlds, role: str) -> None:
    """Also where its mark is changed to that of another project, or taken away."""
    empty, full, _ = worlds
    client = full.caller(role)
    name = "authorization" if role != "person" else "cookie"
    kept = client.headers.get(name) or "; ".join(f"{k}={v}" for k, v in client.cookies.items())
    other = kept.replace("further.", "") if "further." in kept else marked(kept)
    for project in (empty, full):
        stranger = project.desk.speak(project.whole.application, base=f"http://{HOST}")
        for path in (f"{API}/runs", "/runs", f"{API}/runs/nope/cancel"):
            method = "POST" if path.endswith("cancel") else "GET"
            answer = stranger.request(method, path, headers={name: other}, follow_redirects=False)
            assert answer.status_code in (303, 401), (path, answer.status_code)


def marked(kept: str) -> str:
    """The same with the mark of the further project."""
    if "seatrial_" in kept and kept.startswith("Bearer"):
        return kept.replace("seatrial_", "seatrial_further.")
    return kept.replace("=", "=further.", 1)


@pytest.fixture
def pair(tmp_path: Path, slots: Slots) -> Iterator[tuple[Project, Project]]:
    """Two empty projects of a port: the first and the further one."""
    with two_projects(tmp_path, slots, full="further") as both:
        yield both


def test_a_token_signs_in_to_its_own_project_from_anywhere(pair: tuple[Project, Project]) -> None:
    first, further = pair
    browser = first.caller("person")
    kept = browser.cookies[cookie_of(HOST)]
    _, secret = create_token(further.desk.context, "ann", Scope.READ, days=1)
    answer = browser.post("/login", data={"token": secret, "next": "/runs"})
    assert answer.status_code == 303
    session = answer.cookies[cookie_of(HOST)]
    assert session.startswith("further.")
    browser.cookies.clear()
    browser.cookies.set(cookie_of(HOST), session)
    assert not kept.startswith("further.")
    assert browser.get("/runs").status_code == 200
    assert 'title="Project">further<' in browser.get("/runs").text
    assert "Project" not in first.caller("person").get("/runs").text
    assert [operations(project) for project in pair] == [[], ["sign_in"]]
    browser.post("/login", data={"token": "seatrial_nobody." + "x" * 43})
    assert [operations(project) for project in pair] == [["sign_in"], ["sign_in"]]


def operations(project: Project) -> list[str]:
    """The operations of a project's audit log."""
    stores = project.desk.database.stores
    return [json.loads(line)["operation"] for line in stores.audit.lines(AuditFilters())]


def test_nobody_begins_to_sign_in_to_a_project_that_is_none(pair: tuple[Project, Project]) -> None:
    browser = pair[0].desk.speak(pair[0].whole.application, base=f"http://{HOST}")
    for project in ("nobody", "First", "further.", "seatrial"):
        answer = browser.get("/login/oidc", params={"project": project}, follow_redirects=False)
        assert answer.status_code == 404


def test_two_projects_never_share_a_database(
    tmp_path: Path, database_url: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "other").mkdir()
    one, same = open_database(database_url), open_database(database_url)
    fresh = (
        request.getfixturevalue("postgres_url_factory")()
        if one.sessions.is_postgres
        else make_database(tmp_path / "other")
    )
    other = open_database(fresh)
    try:
        require_own_databases([one.sessions, other.sessions])
        with pytest.raises(RefusedError, match="two projects have the same database"):
            require_own_databases([one.sessions, other.sessions, same.sessions])
    finally:
        for database in (one, same, other):
            database.close()


def test_another_name_of_a_file_is_no_other_database(tmp_path: Path) -> None:
    url = make_database(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "file.db").symlink_to(tmp_path / "app.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "app.db")
    names = ("sub/../app.db", "folder/app.db", "file.db", "hard.db")
    opened = [open_database(one) for one in (url, *(f"sqlite:///{tmp_path}/{n}" for n in names))]
    try:
        for other in opened[1:]:
            with pytest.raises(RefusedError, match="two projects have the same database"):
                require_own_databases([opened[0].sessions, other.sessions])
    finally:
        for database in opened:
            database.close()


@pytest.mark.slow
def test_a_refused_start_leaves_no_token_in_the_database_of_another(tmp_path: Path) -> None:
    """The further project's file is a link to the first one's."""
    with a_home(tmp_path / "home", SEATRIAL_PROJECTS="kernels") as home:
        own = home.path / "projects" / "kernels"
        own.mkdir(parents=True, mode=0o700)
        make_database(home.path)
        (own / "app.db").symlink_to(home.path / "app.db")
        done = subprocess.run(
            home.command("serve", "--port", str(free_port())),
            env=home.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode
        assert "two projects have the same database" in done.stderr
        assert not list(home.path.glob("**/token"))
        database = open_database(f"sqlite:///{home.path / 'app.db'}", read_only=True)
        try:
            assert database.stores.tokens.list() == []
        finally:
            database.close()


@dataclass
class CellsOf:
    """The cells of a project's store, which may be one that cannot be asked."""

    known: str
    failures: int = 0

    def run_id(self, cell_id: str) -> str:
        if self.failures:
            self.failures -= 1
            raise StoreUnusableError("locked")
        if cell_id != self.known:
            raise UnknownIdError("cell", cell_id)
        return "run"


def test_a_flow_is_run_with_what_the_cells_project_has(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[object, str]] = []

    async def run_cell(deps: object, _durable: object, cell_id: str) -> None:
        ran.append((deps, cell_id))

    monkeypatch.setattr(controller_wiring, "run_cell", run_cell)
    monkeypatch.setattr(controller_wiring, "_STORE_RETRY_S", 0)
    first, further = (
        cast(FlowDeps, SimpleNamespace(stores=SimpleNamespace(cells=CellsOf(name))))
        for name in ("mine", "theirs")
    )
    durable = cast(Durable, None)
    alone = CellFlows(first)
    asyncio.run(alone.run(durable, "mine"))
    with pytest.raises(NotServedError):
        asyncio.run(alone.run(durable, "theirs"))
    alone.projects.append(further)
    first.stores.cells.failures = 1_000_000  # type: ignore[attr-defined]
    asyncio.run(alone.run(durable, "theirs"))
    first.stores.cells.failures = 2  # type: ignore[attr-defined]
    asyncio.run(alone.run(durable, "mine"))
    assert ran == [(first, "mine"), (further, "theirs"), (first, "mine")]


def test_a_project_that_is_no_longer_named_is_told_while_it_has_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("busy", "idle", "named", "broken"):
        (tmp_path / "projects" / name).mkdir(parents=True)
    for name in ("busy", "idle", "named"):
        url = make_database(tmp_path / "projects" / name)
        if name != "idle":
            database = open_database(url)
            create(database.stores)
            database.close()
    (tmp_path / "projects" / "broken" / "app.db").write_bytes(b"")
    warn_of_left_out(Settings(home=tmp_path, projects="named"))
    told = [one.getMessage() for one in caplog.records]
    assert [one.split()[2] for one in told] == ["broken", "busy"]
    assert "cannot be read" in told[0]
    assert "has 1 unfinished runs and 0 open leases" in told[1]


def test_two_projects_never_run_jobs_as_the_same_user() -> None:
    require_own_accounts([None, "a", None, "b"])
    require_own_accounts([system_user()])
    for accounts in (["a", None, "a"], [system_user(), None], [None, system_user()]):
        with pytest.raises(RefusedError, match="name a"):
            require_own_accounts(accounts)


def states(client: httpx.Client, run: str) -> set[str]:
    """The states of a run's cells."""
    return {cell["state"] for cell in client.get(f"/runs/{run}").json()["cells"]}


@pytest.mark.slow
def test_one_serve_runs_the_cells_of_every_project(tmp_path: Path) -> None:
    with (
        a_home(tmp_path / "home", SEATRIAL_PROJECTS="kernels") as home,
        serving(home),
        ExitStack() as stack,
    ):
        own = home.path / "projects" / "kernels"
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=f"{home.url}{API}",
                    headers={"Authorization": f"Bearer {(one / 'token').read_text()}"},
                    timeout=60,
                )
            )
            for one in (home.path, own)
        ]
        answer = clients[1].post("/runs", json={"matrix": MATRIX}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202, answer.text
        run = answer.json()["id"]
        eventually(lambda: Decimal(clients[1].get(f"/runs/{run}").json()["cost_usd"]) > 0)
        assert clients[0].post(f"/runs/{run}/cancel").status_code == 404
        assert clients[1].post(f"/runs/{run}/cancel").status_code == 202
        eventually(lambda: states(clients[1], run) & {"releasing", "done"})
        assert clients[0].get("/runs").json()["items"] == []
        assert clients[0].get(f"/runs/{run}").status_code == 404
        assert [one["id"] for one in home.json("runs")] == []
        home.environment["SEATRIAL_PROJECT"] = "kernels"
        assert [one["id"] for one in home.json("runs")] == [run]
        made = json.loads(home.seatrial("token", "create", "ci", "--scope", "read", "--json"))
        assert made["secret"].startswith("seatrial_kernels.")
