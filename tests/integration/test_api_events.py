"""The event stream, over a real server: without a gap, resumable, and nobody is left behind."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import event as sql_event

from orchestrator.api import events
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.context import Context
from orchestrator.application.tokens import (
    Credential,
    create_token,
    is_valid,
    sign_in_with_token,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import Run, RunEvent
from tests.integration.api_context import Desk, served
from tests.waiting import until

EVENTS = "/api/v1/runs/{run}/events"


@pytest.fixture
def port(api: Desk) -> Iterator[int]:
    with served(api.app) as opened:
        yield opened


def listen(port: int, run: str, *, after: int | None = None, last: int | None = None):
    """The events as they come: (id, event, data)."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    params = {} if after is None else {"after": after}
    address = f"http://127.0.0.1:{port}{EVENTS.format(run=run)}"
    with httpx.stream("GET", address, headers=headers, params=params, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        found: dict[str, str] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
                continue
            if "data" in found:
                number = int(found["id"]) if "id" in found else None
                yield number, found["event"], json.loads(found["data"])
            found = {}


def ended(api: Desk, run: str) -> None:
    for cell in ("here", "there"):
        api.begin(run, cell)
    api.finish(run, "here", "there")


def test_a_finished_run_is_told_whole_and_then_ends(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    ended(api, run)
    told = list(listen(port, "latest"))
    *items, end = told
    assert [number for number, _, _ in items] == list(range(1, len(items) + 1))
    assert len(items) >= 10
    for number, kind, data in items:
        assert data["number"] == number
        assert data["kind"] == kind
    assert {data["cell"] for _, kind, data in items if kind == "cell"} == {"here", "there"}
    assert end == (
        None,
        "end",
        {"number": len(items), "kind": "end", "cell": "", "outcome": "passed"},
    )


def test_a_notice_names_its_cell(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    said = {"cell": "here", "notice": "held until noon"}
    api.database.stores.run_events.add(run, "cell", said)
    ended(api, run)
    told = [data for _, _, data in listen(port, run) if data.get("notice")]
    assert [(data["cell"], data["notice"]) for data in told] == [("here", "held until noon")]


def test_a_watcher_resumes_after_what_it_saw(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    ended(api, run)
    whole = list(listen(port, run))
    last = len(whole) - 1
    assert list(listen(port, run, after=4)) == whole[4:]
    assert list(listen(port, run, last=4)) == whole[4:]
    assert list(listen(port, run, after=2, last=6)) == whole[6:]
    assert list(listen(port, run, last=last)) == whole[-1:]
    assert [event for _, event, _ in listen(port, run, last=10**9)] == ["end"]


@pytest.mark.parametrize("recent", [3, events.RECENT])
def test_nothing_is_missed_or_doubled_while_items_are_added(
    api: Desk, port: int, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    monkeypatch.setattr(events, "RECENT", recent)
    run = str(api.launch()["id"])
    feed, many = api.database.stores.run_events, 120

    def write() -> None:
        for n in range(many):
            feed.add(run, "report", {"n": n})
        ended(api, run)

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    retest_sessions, over = 0, False
    while not over:
        retest_sessions += 1
        for number, event, _ in listen(port, run, last=seen[-1] if seen else 0):
            over = event == "end"
            if number is not None:
                seen.append(number)
                if len(seen) % 15 == 0:
                    break
    writer.join()
    assert retest_sessions > 5
    assert seen == list(range(1, len(feed.after(run, 0, limit=10_000)) + 1))
    assert len(seen) > many


def test_items_arrive_while_the_run_goes_on(
    api: Desk, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 3600)  # nothing else wakes the stream
    run = str(api.launch()["id"])
    feed = api.database.stores.run_events
    already = len(feed.after(run, 0))
    stream = listen(port, run, after=already)
    arrived = []
    for n in range(3):
        feed.add(run, "report", {"n": n})
        arrived.append(next(stream)[2]["n"])
    stream.close()
    assert arrived == [0, 1, 2]


@pytest.mark.parametrize("way", ["revoked", "expired", "revoked session", "idle session"])
def test_a_stream_ends_with_its_credential(
    api: Desk, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    stores, run = api.database.stores, str(api.launch()["id"])
    token, secret = create_token(api.context, "watcher", Scope.READ, days=1)
    session = sign_in_with_token(api.context, secret)
    assert session is not None
    [kept] = stores.browser_sessions.list()

    def stop() -> None:
        if way == "revoked":
            stores.tokens.revoke(token.id, at=api.clock.now())
        elif way == "revoked session":
            stores.browser_sessions.end(kept.id)
        else:
            api.clock.move(hours=24)

    with served(api.guarded) as port:
        cookie = f"{cookie_of(f'127.0.0.1:{port}')}={session.secret}"
        is_session = way.endswith("session")
        headers = {"Cookie": cookie} if is_session else {"Authorization": f"Bearer {secret}"}
        address = f"http://127.0.0.1:{port}{EVENTS.format(run=run)}"
        with httpx.stream("GET", address, headers=headers, timeout=60) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            next(lines)
            stop()
            assert "event: end" not in list(lines)
        assert httpx.get(address, headers=headers, timeout=60).status_code == 401


def test_to_look_whether_a_credential_is_valid_is_no_use_of_it(api: Desk) -> None:
    token, secret = create_token(api.context, "watcher", Scope.READ, days=1)
    session = sign_in_with_token(api.context, secret)
    assert session is not None
    used_at = api.clock.now()
    api.clock.move(minutes=30)
    assert is_valid(api.context, Credential(secret))
    assert is_valid(api.context, Credential(session.secret, is_session=True))
    assert not is_valid(api.context, Credential(session.secret))
    assert [one.last_used_at for one in api.database.stores.browser_sessions.list()] == [used_at]
    [known] = [one for one in api.database.stores.tokens.list() if one.id == token.id]
    assert known.last_used_at == used_at


def test_what_a_machine_said_cannot_forge_an_event(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    nasty = "x\r\n\r\nevent: end\ndata: {}\n\n\u2028"
    before = len(api.database.stores.run_events.after(run, 0))
    api.database.stores.run_events.add(run, "report", {"said": nasty, "number": 99, "kind": "end"})
    number, event, data = next(listen(port, run, after=before))
    assert (number, event) == (before + 1, "report")
    assert data == {"said": nasty, "number": before + 1, "kind": "report", "cell": ""}


def test_watchers_that_leave_leave_nothing_behind(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    streams = api.app.state.streams
    path = EVENTS.format(run=run)
    raws = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(20)]
    for raw in raws:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    until(lambda: streams.open == 20)
    figures = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    assert "seatrial_event_streams 20" in figures
    for raw in raws:
        raw.close()
    until(lambda: streams.open == 0)


def test_streams_of_one_run_share_their_looks(api: Desk, port: int) -> None:
    run = str(api.launch()["id"])
    opened = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(10)]
    for raw in opened:
        raw.sendall(
            f"GET {EVENTS.format(run=run)}?after=99 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
    until(lambda: api.app.state.streams.open == 10)
    seen: list[str] = []
    engine = api.database.sessions.engine

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sql_event.listen(engine, "before_cursor_execute", note)
    begun = time.monotonic()
    time.sleep(1.5)
    sql_event.remove(engine, "before_cursor_execute", note)
    looks = (time.monotonic() - begun) / (events.POLL_S / 2) + 1
    assert len([one for one in seen if one.startswith("SELECT")]) <= 2 * looks
    for raw in opened:
        raw.close()


def test_an_event_is_read_once_for_all_streams(
    api: Desk, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, many = str(api.launch()["id"]), 20
    feed, look, numbers = api.database.stores.run_events, events._look, list[int]()
    last = feed.last(run)

    def noted(context: Context, run_id: str, after: int) -> tuple[Run, list[RunEvent]]:
        found = look(context, run_id, after)
        numbers.extend(item.number for item in found[1])
        return found

    monkeypatch.setattr(events, "_look", noted)
    opened = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(10)]
    for raw in opened:
        request = f"GET {EVENTS.format(run=run)}?after={last} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        raw.sendall(request.encode())
    streams = api.app.state.streams
    until(lambda: streams.open == 10 and streams._news[run].base == last)
    for n in range(many):
        feed.add(run, "report", {"n": n})
    for raw in opened:
        got = b""
        while f'"number": {last + many}'.encode() not in got:
            got += raw.recv(65536)
        assert got.count(b"event: report") == many
        raw.close()
    assert numbers == list(range(last + 1, last + many + 1))


def test_pruned_events_leave_gaps_in_what_streams_share() -> None:
    news = events.RunNews(base=0)
    news.add([RunEvent(number=n, kind="report", cell="", data={"n": n}) for n in (1, 3, 4)])
    assert news.number == 4
    assert news.since(1) == news.since(2)
    assert str(news.since(3)).count("event: report") == 1
    assert news.since(4) == b""


def test_a_server_that_stops_does_not_wait_for_watchers(api: Desk) -> None:
    run = str(api.launch()["id"])
    with served(api.app) as port:
        raw = socket.create_connection(("127.0.0.1", port), 60)
        request = f"GET {EVENTS.format(run=run)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        raw.sendall(request.encode())
        until(lambda: api.app.state.streams.open == 1)
    assert api.app.state.streams.open == 0
    raw.close()


def test_heartbeats_come_often_enough_for_clients_and_proxies() -> None:
    assert 0 < events.HEARTBEAT_S < 5


def test_a_run_that_is_not_there_is_a_problem_and_no_stream(api: Desk) -> None:
    answer = api.client.get(EVENTS.format(run="nope"))
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_number_must_be_one(api: Desk) -> None:
    path = EVENTS.format(run=api.launch()["id"])
    for number in ("x", "-1", "1.5", str(2**63), "9" * 5000):
        assert api.client.get(path, params={"after": number}).status_code == 422
        headers = {"Last-Event-ID": number}
        assert api.client.get(path, headers=headers).status_code == 422
