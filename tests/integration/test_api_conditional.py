"""Conditional requests: 304 while nothing changed, 412 where something did, on both databases."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient
from sqlalchemy import event, insert, literal, select, text, update
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from orchestrator.api import conditional_reads
from orchestrator.api.conditional_reads import AGE_S, PROGRESS_S, ConditionalReads
from orchestrator.api.security import token_guard
from orchestrator.bootstrap.http_server import AsgiDispatch
from orchestrator.dashboard.session import CSRF_FIELD
from orchestrator.store.database import Database, open_database
from orchestrator.store.errors import StoreError
from orchestrator.store.sessions import progress_marks
from orchestrator.store.tables import ORPHAN_SIGHTINGS, PersonRow
from tests.databases import NOW, together
from tests.integration.api_context import MATRIX, Desk, desk
from tests.integration.dashboard.desk import HOST, dashboard
from tests.integration.dashboard.shown import read_page
from tests.integration.test_api_history import ISSUE

SCHEDULES = "/api/v1/schedules"
PATH = f"{SCHEDULES}/nightly"
BODY = {
    "name": "nightly",
    "cron": "0 2 * * *",
    "tz": "Europe/Berlin",
    "owner": "release team",
    "matrix": MATRIX,
}


@pytest.fixture
def both(tmp_path: Path, database: Database) -> Iterator[Desk]:
    """The interface over either database, with a schedule."""
    with desk(tmp_path, database) as opened:
        assert opened.client.post(SCHEDULES, json=BODY).status_code == 201
        yield opened


def read(client: Any, path: str = PATH, tag: str = "", **headers: str) -> Any:
    return client.get(path, headers={"If-None-Match": tag} | headers)


def put(client: Any, tag: str, hour: int = 3) -> Any:
    body = BODY | {"cron": f"0 {hour} * * *"}
    return client.put(PATH, json=body, headers={"If-Match": tag})


def test_nothing_new_is_answered_304_with_two_statements(both: Desk) -> None:
    client = both.with_token("read")
    first = read(client)
    tag = first.headers["etag"]
    with statements(both) as seen:
        again = read(client, tag=tag)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert again.headers["cache-control"] == "no-store"
    assert len(seen) == 2, seen
    assert read(client, tag=f'"other", W/{tag}').status_code == 304
    assert client.head(PATH, headers={"If-None-Match": tag}).status_code == 304
    assert read(client, tag="*").status_code == 304
    assert read(client, tag="*").headers["etag"] == tag


@contextmanager
def statements(both: Desk) -> Iterator[list[str]]:
    """What the database is asked inside."""
    engine, seen = both.database.sessions.engine, list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_an_answer_is_kept_while_nothing_changes(both: Desk) -> None:
    client, other = (both.with_token("read", name=name) for name in ("one", "two"))
    first = read(client, SCHEDULES)
    with statements(both) as seen:
        again = read(client, SCHEDULES)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers == first.headers
    assert len(seen) == 2, seen
    with statements(both) as seen:
        assert read(other, SCHEDULES).headers["etag"] != first.headers["etag"]
    assert len(seen) > 2
    assert both.client.post(f"{PATH}/pause").status_code == 200
    assert read(client, SCHEDULES).content != first.content


def test_a_large_answer_is_not_kept_and_has_a_tag(
    both: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional_reads, "_LARGEST_BYTES", 100)
    tag = read(both.client).headers["etag"]
    with statements(both) as seen:
        assert len(read(both.client).content) > 100
    assert len(seen) > 1
    assert read(both.client, tag=tag).status_code == 304


def test_the_answers_that_were_asked_for_last_are_kept(
    both: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(read(both.client).content)
    monkeypatch.setattr(conditional_reads, "_KEPT_BYTES", 2 * size + size // 2)
    asked = ("a", "b", "a", "c", "a", "b")
    made = list[str]()
    for one in asked:
        with statements(both) as seen:
            assert read(both.client, f"{PATH}?x={one}").status_code == 200
        if len(seen) > 1:
            made.append(one)
    assert made == ["a", "b", "c", "b"]


def test_only_the_progress_of_jobs_may_be_seconds_old(both: Desk) -> None:
    run = str(both.launch()["id"])
    agent = both.begin(run, "here")
    path = f"/api/v1/runs/{run}/cells/here/tests"

    def names(**headers: str) -> list[str]:
        answer = read(both.client, path, **headers)
        return [one["nodeid"] for one in answer.json()["items"]]

    tag = read(both.client, path).headers["etag"]
    agent.send(agent.manifest("t.py::a"), agent.test("t.py::a"))
    assert names() == []
    assert read(both.client, path, tag).status_code == 304
    fresh = {"Cache-Control": "no-cache"}
    assert names(**{"HX-Request": "true"}) == names(**fresh) == ["t.py::a"]
    agent.send(agent.test("t.py::b"))
    assert names(**fresh) == ["t.py::a", "t.py::b"]
    agent.send(agent.test("t.py::c"))
    both.clock.move(seconds=PROGRESS_S)
    assert len(names()) == 3
    agent.send(agent.test("t.py::d"))
    both.finish(run, "here")
    assert len(names()) == 4


def test_the_progress_of_another_run_changes_no_answer_of_this_one(both: Desk) -> None:
    one = other = str(both.launch()["id"])
    keys = map(str, itertools.count())
    while progress_marks(other) == progress_marks(one):  # some share them
        other = str(both.launch(next(keys))["id"])
    agents = [both.begin(run, "here") for run in (one, other)]
    path, fresh = f"/api/v1/runs/{one}/cells/here/tests", {"Cache-Control": "no-cache"}
    tags = {each: read(both.client, each).headers["etag"] for each in (path, f"{path}?limit=5")}

    def statuses() -> list[int]:
        return [read(both.client, each, tag, **fresh).status_code for each, tag in tags.items()]

    agents[1].send(agents[1].manifest("t.py::a"), agents[1].test("t.py::a"))
    # A query may name other runs.
    assert statuses() == [304, 200]
    agents[0].send(agents[0].manifest("t.py::a"), agents[0].test("t.py::a"))
    assert statuses() == [200, 200]


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 (the code under test has no event for it)
        await asyncio.sleep(0.01)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What requests found before they were answered or waited."""
    found, look = list[object](), run_in_threadpool

    async def looked(*asked: Any) -> Any:
        found.append(await look(*asked))
        return found[-1]

    monkeypatch.setattr(conditional_reads, "run_in_threadpool", looked)
    return found


@pytest.mark.parametrize("earlier", [0, 1])
def test_requests_for_an_answer_that_is_being_made_wait_for_it(
    both: Desk, looks: list[object], earlier: int
) -> None:
    made = list[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        made.append(len(made))
        if len(made) == earlier + 1:
            await until(lambda: len(looks) == earlier + 2)  # the other request waits
        await Response(f"answer {len(made)}")(scope, receive, send)

    async def asked() -> list[str]:
        async with AsyncClient(transport=ASGITransport(kept), base_url=f"http://{HOST}") as client:
            for _ in range(earlier):
                await client.get("/x")
            both.launch()
            first = asyncio.create_task(client.get("/x"))
            await until(lambda: len(made) == earlier + 1)
            waiting = await client.get("/x")
            return [(await first).text, waiting.text]

    kept = ConditionalReads(app, context=both.context, guard=None)
    assert asyncio.run(asked()) == [f"answer {earlier + 1}"] * 2
    assert (len(made), len(looks)) == (earlier + 1, earlier + 3)


def test_an_answer_that_is_not_kept_is_waited_for_until_it_begins(
    both: Desk, looks: list[object]
) -> None:
    began, is_read = list[int](), asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        began.append(len(began))
        if len(began) == 1:
            await until(lambda: len(looks) == 2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if len(began) == 1:
            await is_read.wait()  # a slow reader of the first
        await send({"type": "http.response.body", "body": b"%d" % len(began)})

    async def asked() -> list[str]:
        async with AsyncClient(transport=ASGITransport(kept), base_url=f"http://{HOST}") as client:
            first = asyncio.create_task(client.get("/x"))
            await until(lambda: len(began) == 1)
            second = await client.get("/x")
            is_read.set()
            return [second.text, (await first).text]

    kept = ConditionalReads(app, context=both.context, guard=None)
    assert asyncio.run(asked()) == ["2", "2"]


def test_another_address_credential_or_form_is_another_answer(both: Desk) -> None:
    client = both.with_token("read")
    tag = read(client).headers["etag"]
    assert read(client, path=f"{PATH}?x=1", tag=tag).status_code == 200
    assert read(client, path=SCHEDULES, tag=tag).status_code == 200
    assert read(client, tag=tag, Accept="text/csv").status_code == 200
    assert read(both.with_token("read", name="other"), tag=tag).status_code == 200
    assert read(both.with_token(None), tag=tag).status_code == 401


def test_who_may_no_longer_read_is_not_told_that_nothing_changed(both: Desk) -> None:
    client = both.with_token("read")
    both.clock.move(days=1, seconds=-1)
    tag = read(client).headers["etag"]
    assert read(client, tag=tag).status_code == 304
    both.clock.move(seconds=1)
    assert read(client, tag=tag).status_code == 401


def test_a_revoked_token_is_not_told_that_nothing_changed(both: Desk) -> None:
    client = both.with_token("read")
    tag = read(client).headers["etag"]
    [token] = both.context.stores.tokens.list()
    both.context.stores.tokens.revoke(token.id, at=both.clock.now())
    assert read(client, tag=tag).status_code == 401
    assert read(client).status_code == 401


def test_an_answer_is_current_for_seconds_as_it_may_tell_the_time(both: Desk) -> None:
    tag = read(both.client).headers["etag"]
    both.clock.move(seconds=AGE_S - 1)
    assert read(both.client, tag=tag).status_code == 304
    both.clock.move(seconds=1)
    assert read(both.client, tag=tag).status_code == 200


def test_what_needs_more_than_the_database_and_what_failed_has_no_tag(both: Desk) -> None:
    for path in ("/api/v1/runs", "/api/v1/costs"):
        assert "etag" in read(both.client, path=path).headers, path
    for path in ("/api/v1/prune", "/api/v1/runs/nope", "/metrics", "/healthz"):
        assert "etag" not in read(both.client, path=path).headers, path


ONE = {"provider": "p", "machine_id": "one", "first_seen": NOW}
CHANGES = {
    "insert": insert(ORPHAN_SIGHTINGS).values(**ONE | {"machine_id": "two"}),
    "insert from select": insert(ORPHAN_SIGHTINGS).from_select(
        ["provider", "machine_id", "first_seen"],
        select(literal("q"), ORPHAN_SIGHTINGS.c.machine_id, ORPHAN_SIGHTINGS.c.first_seen),
    ),
    "update": update(ORPHAN_SIGHTINGS).values(provider="q"),
    "update returning": update(ORPHAN_SIGHTINGS)
    .values(provider="q")
    .returning(ORPHAN_SIGHTINGS.c.provider),
    "text": text("UPDATE orphan_sighting SET provider = 'q'"),
    "delete": text("  DELETE FROM orphan_sighting"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_kind_of_change_is_another_mark(database: Database, name: str) -> None:
    changes, write = database.stores.changes, database.sessions.write
    with write() as session:
        session.execute(insert(ORPHAN_SIGHTINGS).values(**ONE))
    before = changes.state()
    assert before.mark
    with write() as session:
        session.execute(CHANGES[name])
    assert changes.state().mark not in ("", before.mark)


def test_an_object_that_is_flushed_is_another_mark(database: Database) -> None:
    before = database.stores.changes.state()
    with database.sessions.write() as session:
        session.add(PersonRow(name="ann", display_name="Ann"))
    assert database.stores.changes.state() != before


def test_what_changes_no_row_or_is_undone_leaves_the_mark(database: Database) -> None:
    stores, write = database.stores, database.sessions.write
    with write() as session:
        session.execute(insert(ORPHAN_SIGHTINGS).values(**ONE))
    before = stores.changes.state()
    with write() as session:
        session.execute(update(ORPHAN_SIGHTINGS).where(literal(1) == 0).values(provider="q"))
        session.execute(select(ORPHAN_SIGHTINGS)).all()
    stores.controllers.beat("me")
    with write() as session:
        session.execute(CHANGES["update"])
        session.rollback()
    assert stores.changes.state() == before


@pytest.mark.needs_postgres
def test_commits_do_not_wait_for_one_another_and_each_is_another_mark(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that is marked and not committed is overtaken by as many as there may be."""
    with closing(open_database(postgres_url)) as opened:
        changes, write = opened.stores.changes, opened.sessions.write
        commit, seen = opened.sessions.engine.dialect.do_commit, [changes.state().mark]

        def overtaken(connection: Any) -> None:
            monkeypatch.undo()
            for number in range(30):
                with write() as session:
                    session.execute(text("SET LOCAL lock_timeout = '30s'"))
                    session.execute(
                        insert(ORPHAN_SIGHTINGS).values(ONE | {"machine_id": str(number)})
                    )
                seen.append(changes.state().mark)
            commit(connection)

        monkeypatch.setattr(opened.sessions.engine.dialect, "do_commit", overtaken)
        with write() as session:
            session.execute(insert(ORPHAN_SIGHTINGS).values(**ONE))
        seen.append(changes.state().mark)
    assert len(set(seen)) == len(seen) == 32


def test_a_mark_that_cannot_be_stored_undoes_the_change(database: Database) -> None:
    with database.sessions.write() as session:
        session.execute(text("DROP TABLE change_mark"))
    with pytest.raises(StoreError, match="change_mark"), database.sessions.write() as session:
        session.execute(insert(ORPHAN_SIGHTINGS).values(**ONE))
    with database.sessions.read() as session:
        assert session.execute(select(ORPHAN_SIGHTINGS)).all() == []


def test_a_change_of_what_was_read_is_made_and_one_of_something_older_is_not(both: Desk) -> None:
    seen = read(both.client).headers["etag"]
    assert put(both.client, seen).status_code == 200
    refused = put(both.client, seen, hour=4)
    assert (refused.status_code, refused.json()["type"]) == (412, "urn:seatrial:problem:changed")
    now = read(both.client, tag=seen)
    assert (now.status_code, now.json()["schedule"]["cron"]) == (200, "0 3 * * *")
    deleted = both.client.delete(PATH, headers={"If-Match": seen})
    assert deleted.status_code == 412
    assert both.client.delete(PATH, headers={"If-Match": now.headers["etag"]}).status_code == 204
    assert put(both.client, "*").status_code == 404


def test_only_changes_of_the_resource_itself_count(both: Desk) -> None:
    seen = read(both.client).headers["etag"]
    both.launch()
    assert both.client.post(f"{PATH}/trigger").status_code == 202
    reader = both.with_token("read")
    assert reader.put(PATH, json=BODY).status_code == 403
    assert put(both.client, seen).status_code == 200


def test_if_match_is_refused_where_nothing_has_a_tag(both: Desk) -> None:
    answer = both.client.post(SCHEDULES, json=BODY, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:seatrial:problem:unmatched")
    assert put(both.client, "not an ETag").status_code == 412


@pytest.mark.parametrize("form", ["W/{}", "x{}", "{}x", '"other" {}', '"{}"'])
def test_if_match_takes_whole_strong_tags_only(both: Desk, form: str) -> None:
    seen = read(both.client).headers["etag"]
    assert put(both.client, form.format(seen)).status_code == 412
    assert put(both.client, f'W/"other", {seen}').status_code == 200


def test_a_put_that_changes_nothing_is_not_refused(both: Desk) -> None:
    seen = read(both.client).headers["etag"]
    assert put(both.client, seen).status_code == 200
    assert put(both.client, seen).status_code == 200


def test_of_two_controllers_that_have_read_the_same_one_makes_its_change(
    tmp_path: Path, database_url: str
) -> None:
    with desk(tmp_path / "one", database_url) as one, desk(tmp_path / "two", database_url) as two:
        assert one.client.post(SCHEDULES, json=BODY).status_code == 201
        clients = (one.client, two.client)
        for turn in range(5):
            tags = [read(client).headers["etag"] for client in clients]
            hours = (3 + 2 * turn, 4 + 2 * turn)
            answers = together(
                [
                    lambda client=client, tag=tag, hour=hour: put(client, tag, hour).status_code
                    for client, tag, hour in zip(clients, tags, hours, strict=True)
                ]
            )
            assert sorted(answers) == [200, 412]
            won = hours[answers.index(200)]
            assert read(one.client).json()["schedule"]["cron"] == f"0 {won} * * *"


@contextmanager
def marks(both: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """For what the mark of the database is read inside."""
    kind, seen = type(both.context.stores.changes), []
    state = kind.state

    def noted(self: Any, resource: str = "", **run: str) -> Any:
        seen.append(resource)
        return state(self, resource, **run)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "state", noted)
        yield seen


def test_the_mark_is_not_read_for_what_never_has_a_tag(
    both: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"/api/v1/runs/{both.launch()}"
    with marks(both, monkeypatch) as seen:
        for path in (f"{run}/cells/nope/log", f"{run}/cells/nope/artifacts/nope"):
            assert read(both.client, path=path, tag='"x"').status_code == 404
        assert seen == []
        assert read(both.client).status_code == 200
    assert seen == ["schedules/nightly"]


def test_a_page_is_answered_304_to_its_own_session_only(
    both: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = token_guard(both.context)
    pages = ConditionalReads(dashboard(both.context), context=both.context, guard=guard)
    clients = [both.with_token("gate", name=name) for name in ("one", "two")]
    app = AsgiDispatch(both.guarded, pages)
    mine, other = (
        both.speak(app, base=f"http://{HOST}", headers=dict(client.headers)) for client in clients
    )
    assert "etag" in mine.get("/costs").headers
    page = mine.get("/schedules/nightly")
    tag = page.headers["etag"]
    for path in ("/static/x/x.css", "/runs/x/cells/y/log", "/runs/x/cells/y/log/raw"):
        with marks(both, monkeypatch) as seen:
            assert "etag" not in mine.get(path, headers={"If-None-Match": tag}).headers
        assert seen == []
    again = mine.get("/schedules/nightly", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    # The nonce of the page that the client has stays in force.
    assert "content-security-policy" not in again.headers
    foreign = other.get("/schedules/nightly", headers={"If-None-Match": tag})
    assert foreign.status_code == 200
    values = [
        read_page(one.text).all("input", name=CSRF_FIELD)[0]["value"] for one in (page, foreign)
    ]
    assert values[0] != values[1]


KEPT = (
    *("runs", "gates", "schedules", "costs", "known-issues", "quarantines", "tokens", "audit"),
    *("waivers", "channels", "aliases", "products", "failures", "tests", "benchmarks"),
)
_OWN = re.compile(r'nonce-[\w-]+|nonce="[\w-]+"|name="(csrf|key)" value="[\w=-]+"')
"""What each answer has of its own: a nonce, a form's CSRF value and its key.

Forms of two pages that are loaded within seconds have one key: they ask for the same thing once.
"""


def test_a_kept_answer_is_the_one_that_would_be_made_anew(
    both: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each kind of change, for every list and the run's addresses, of REST and pages."""
    guard = token_guard(both.context)
    pages = ConditionalReads(dashboard(both.context), context=both.context, guard=guard)
    headers = dict(both.with_token("admin").headers) | {"Cache-Control": "no-cache"}
    client = both.speak(AsgiDispatch(both.guarded, pages), base=f"http://{HOST}", headers=headers)
    run = str(both.launch()["id"])
    own = ("", "/cells/here", "/cells/here/tests", "/slowest", "/report")
    paths = [f"{kind}/{name}" for kind in ("/api/v1", "") for name in KEPT]
    paths += [f"{kind}/runs/{run}{rest}" for kind in ("/api/v1", "") for rest in own] + ["/"]

    def answers() -> dict[str, tuple[int, str]]:
        found = {path: client.get(path) for path in paths}
        return {path: (one.status_code, _OWN.sub("", one.text)) for path, one in found.items()}

    agent = both.begin(run, "here")
    changes: tuple[Callable[[], Any], ...] = (
        lambda: both.launch("another"),
        lambda: agent.send(agent.manifest("t.py::a"), agent.test("t.py::a")),
        lambda: both.client.post(f"{PATH}/pause").raise_for_status(),
        lambda: both.client.post("/api/v1/known-issues", json=ISSUE).raise_for_status(),
        lambda: both.client.post(f"{PATH}/trigger").raise_for_status(),
        lambda: both.with_token("read", name="new"),
        lambda: both.finish(run, "here"),
        lambda: both.client.delete(PATH).raise_for_status(),
    )
    answered = [path for path, (status, _) in answers().items() if status == 200]
    assert len(answered) >= 28, answered
    for change in changes:
        change()
        kept = answers()
        with monkeypatch.context() as patched:
            patched.setattr(conditional_reads, "AGE_S", 0)
            made = answers()
        for path, one in kept.items():
            assert one == made[path], path
