"""Bounds of requests in a minute, and how the command line waits; nothing here really waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.responses import Response
from starlette.testclient import TestClient
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from orchestrator.api.errors import answer_known
from orchestrator.api.request_limits import MOST_WAITING, RequestLimits
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.tokens import PREFIX, create_token, keep_token, sign_in_with_token
from orchestrator.bootstrap.http_server import AsgiDispatch, refused
from orchestrator.client.errors import RefusalError
from orchestrator.client.transport import API, Client
from orchestrator.dashboard.app import FORM_LIMIT_BYTES
from orchestrator.domain.caller_identity import Scope
from tests.integration.api_context import Desk
from tests.integration.dashboard.desk import HOST, dashboard

RUNS = f"{API}/runs"


class Port:
    """A port that takes five requests and three guesses in a minute."""

    def __init__(self, api: Desk, *, requests: int = 5, guesses: int = 3) -> None:
        self.api = api
        pages = dashboard(api.context)
        self.app: Any = RequestLimits(
            AsgiDispatch(api.guarded, pages),
            now=api.clock.now,
            requests=requests,
            guesses=guesses,
            refuse=partial(refused, pages),
        )

    def client(self, token: str = "", *, address: str = "192.0.2.1") -> TestClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.api.speak(
            self.app,
            base=f"http://{HOST}",
            headers=headers,
            client=(address, 1),
            follow_redirects=False,
        )

    def token(self, name: str) -> str:
        return create_token(self.api.context, name, Scope.READ, days=1)[1]


def statuses(client: TestClient, times: int, path: str = RUNS) -> list[int]:
    return [client.get(path).status_code for _ in range(times)]


def sign_in(client: TestClient, token: str) -> int:
    return client.post("/login", data={"token": token}).status_code


def test_a_read_that_would_wait_behind_too_many_is_refused_at_once() -> None:
    asyncio.run(wait_behind_others())


async def wait_behind_others() -> None:
    begun: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        end = asyncio.Event()
        begun.put_nowait(end)
        await end.wait()
        await Response()(scope, receive, send)

    app = RequestLimits(
        slow,
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        requests=1000,
        guesses=9,
        refuse=lambda scope, error: answer_known(scope["path"], error),
    )
    transport = httpx.ASGITransport(cast(Any, app))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        waiting = [asyncio.create_task(client.get(RUNS)) for _ in range(MOST_WAITING)]
        waiting.append(asyncio.create_task(client.post(RUNS)))
        ends = [await begun.get() for _ in waiting]
        answer = await client.get(RUNS)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["type"] == "urn:seatrial:problem:busy"
        for end in ends:
            end.set()
        assert {(await one).status_code for one in waiting} == {200}
        left = asyncio.create_task(client.get(RUNS))
        await begun.get()
        left.cancel()  # a client that goes away waits no longer
        await asyncio.gather(left, return_exceptions=True)
    assert app.waiting == 0


def test_a_credential_has_its_requests_of_a_minute_and_is_told_what_is_left(api: Desk) -> None:
    port = Port(api)
    one, other = port.client(port.token("one")), port.client(port.token("other"))
    assert statuses(one, 1) == [200]  # until then it counts for the address
    answer = one.get(RUNS)
    assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60'
    assert answer.headers["ratelimit"] == '"requests";r=4;t=60'
    api.clock.move(seconds=20)
    assert statuses(one, 5) == [200] * 4 + [429]
    refused = one.get(RUNS)
    assert refused.headers["retry-after"] == "40"
    assert refused.headers["ratelimit"] == '"requests";r=0;t=40'
    assert refused.json()["type"] == "urn:seatrial:problem:too-many-requests"
    assert statuses(other, 1) == [200]
    api.clock.move(seconds=40)
    assert statuses(one, 1) == [200]


def test_who_sends_no_credential_has_the_requests_of_the_address(api: Desk) -> None:
    port = Port(api)
    assert statuses(port.client(), 6, "/openapi.json") == [200] * 5 + [429]
    assert statuses(port.client(address="192.0.2.2"), 1, "/openapi.json") == [200]
    assert statuses(port.client(), 6, "/healthz") == [200] * 6
    page = port.client().get("/runs")
    assert (page.status_code, page.headers["retry-after"]) == (429, "60")
    assert "There were too many requests" in page.text
    assert "nonce-" in page.headers["content-security-policy"]
    assert port.client().get("/runs.md").text.startswith("There were too many requests: more than")


def test_guesses_count_for_the_address_and_whoever_is_known_goes_on(api: Desk) -> None:
    port = Port(api, requests=50)
    known, right = port.client(port.token("known")), port.token("right")
    assert statuses(known, 1) == [200]
    for number in range(3):
        assert statuses(port.client(f"seatrial_wrong{number}"), 1) == [401]
    refused = port.client("seatrial_wrong").get(RUNS)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert "credentials of this address were refused" in refused.json()["detail"]
    assert statuses(port.client(right), 1) == [200]  # 256 random bits cannot be guessed
    assert statuses(port.client(PREFIX + "x" * 43), 1) == [401]
    chosen = "a word"
    keep_token(api.context, "chosen", Scope.READ, chosen, days=1)
    assert statuses(port.client(chosen), 1) == [429]  # else the answer would tell which is right
    assert sign_in(port.client(), right) == 303
    assert statuses(known, 1) == [200]
    assert statuses(port.client(right, address="192.0.2.2"), 1) == [200]
    api.clock.move(minutes=1)
    assert statuses(port.client("seatrial_wrong"), 1) == [401]


@pytest.mark.parametrize("way", ["header", "cookie", "form", "page", "form and cookie", "both"])
def test_no_way_to_guess_is_left_out(api: Desk, way: str) -> None:
    port = Port(api, requests=50)
    token, session = port.token("own"), ""
    begun = sign_in_with_token(api.context, token)
    assert begun is not None
    session = begun.secret
    told = []
    for number in range(5):
        client = port.client(f"seatrial_{number}" if way in ("header", "page", "both") else "")
        if way == "form and cookie":
            client.cookies.set(cookie_of(HOST), session)
            assert client.get("/runs").status_code == 200  # it is known, and tells nothing
        if way in ("cookie", "both"):
            client.cookies.set(cookie_of(HOST), f"junk{number}")
        if way.startswith("form"):
            told.append(sign_in(client, f"seatrial_{number}"))
        else:
            told.append(client.get("/runs" if way == "page" else RUNS).status_code)
    assert told == [303 if way == "page" else 401] * 3 + [429] * 2


def test_addresses_of_one_ipv6_network_are_one(api: Desk) -> None:
    port = Port(api, requests=50)
    for number in range(3):
        address = f"2001:db8::{number + 1}%eth0"
        assert statuses(port.client("seatrial_wrong", address=address), 1) == [401]
    assert statuses(port.client("seatrial_wrong", address="2001:db8::9"), 1) == [429]
    assert statuses(port.client("seatrial_wrong", address="2001:db8:0:1::9"), 1) == [401]


def test_an_address_of_ipv4_is_one_in_each_notation(api: Desk) -> None:
    port = Port(api, requests=50, guesses=1)
    assert statuses(port.client("seatrial_wrong", address="::ffff:192.0.2.1"), 1) == [401]
    assert statuses(port.client("seatrial_wrong", address="::ffff:192.0.2.2"), 1) == [401]
    assert statuses(port.client("seatrial_wrong", address="192.0.2.2"), 1) == [429]


def test_what_is_no_address_counts_together(api: Desk) -> None:
    port = Port(api, requests=50)
    asked = [
        statuses(port.client("seatrial_wrong", address=each), 1) for each in ("a:b", "c:d", "")
    ]
    assert asked == [[401], [401], [401]]
    assert statuses(port.client("seatrial_wrong", address="e:f"), 1) == [429]


def test_a_guess_counts_before_it_is_checked(api: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    port, tokens = Port(api, guesses=1), type(api.context.stores.tokens)
    find = tokens.find
    told: list[int] = []

    def found(self: Any, digest: str) -> Any:
        if not told:
            told.append(0)
            told[0] = port.client("another").get(RUNS).status_code
        return find(self, digest)

    monkeypatch.setattr(tokens, "find", found)
    assert port.client("one").get(RUNS).status_code == 401
    assert told == [429]


def test_a_request_that_lasts_over_a_minute_tells_of_the_present_one(
    api: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, tokens = Port(api), type(api.context.stores.tokens)
    find = tokens.find

    def found(self: Any, digest: str) -> Any:
        api.clock.move(minutes=1)
        return find(self, digest)

    monkeypatch.setattr(tokens, "find", found)
    assert port.client("one").get(RUNS).headers["ratelimit"] == '"requests";r=5;t=60'


def test_a_session_that_has_just_begun_has_its_own_requests(api: Desk) -> None:
    port = Port(api, requests=2)
    client = port.client()
    assert sign_in(client, port.token("one")) == 303
    assert statuses(port.client(), 2, "/openapi.json") == [200, 429]
    assert statuses(client, 2, "/runs") == [200, 200]


@pytest.mark.parametrize(("proxy", "expected"), [("192.0.2.1", 401), ("192.0.2.9", 429)])
def test_only_a_trusted_proxy_says_whose_request_it_is(
    api: Desk, proxy: str, expected: int
) -> None:
    port = Port(api, guesses=1)
    port.app = ProxyHeadersMiddleware(cast(Any, port.app), ["192.0.2.0/29"])
    told = []
    for number in range(2):
        client = port.client(f"junk{number}", address=proxy)
        told.append(client.get(RUNS, headers={"X-Forwarded-For": f"198.51.100.{number}"}))
    assert [one.status_code for one in told] == [401, expected]


def test_a_revoked_token_is_a_guess_again(api: Desk) -> None:
    port = Port(api, requests=50)
    keep_token(api.context, "chosen", Scope.READ, "a word", days=1)
    client = port.client("a word")
    assert statuses(client, 1) == [200]
    [token] = api.context.stores.tokens.list()
    api.context.stores.tokens.revoke(token.id, at=api.clock.now())
    assert statuses(client, 5) == [401] * 4 + [429]


def test_the_first_clients_are_forgotten_and_not_everything_kept(
    api: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.request_limits._KEPT", 10)
    port = Port(api, requests=50)
    for number in range(30):
        assert statuses(port.client(port.token(f"n{number}"), address=f"192.0.2.{number}"), 1) == [
            200
        ]
        assert statuses(port.client("a", address=f"192.0.2.{number}"), 1) == [401]
    kept = (port.app.requests.known, port.app.guesses.known, port.app.accepted)
    assert [len(one) for one in kept] == [10, 10, 10]


def through(port: TestClient) -> httpx.Client:
    """A client as commands have it, whose requests a port answers."""

    def answer(request: httpx.Request) -> httpx.Response:
        told = port.request(request.method, request.url.path)
        kept = {name: told.headers[name] for name in ("retry-after",) if name in told.headers}
        return httpx.Response(told.status_code, headers=kept, stream=httpx.ByteStream(told.content))

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://here")


def commands(api: Desk, http: httpx.Client, **options: Any) -> tuple[Client, list[float]]:
    """The client of commands, and how long it has waited each time."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        api.clock.move(seconds=seconds)

    clock = SimpleNamespace(now=api.clock.now, sleep=sleep)
    line = SimpleNamespace(open=lambda: http, where="here", revive=lambda: None)
    return Client(cast(Any, line), cast(Any, clock), **options), waits


def test_commands_wait_as_long_as_they_are_told_and_go_on(api: Desk) -> None:
    port = Port(api)
    said: list[str] = []
    client, waits = commands(api, through(port.client(port.token("one"))), say=said.append)
    for _ in range(12):
        assert client.get("/runs")["items"] == []
    assert waits == [60, 60]
    assert said == ["there were too many requests; the next one is sent in 60 s"] * 2
    for _ in range(5):
        with client.stream("/runs") as answer:
            assert answer.status_code == 200
    assert waits == [60, 60, 60]


@pytest.mark.parametrize("how", ["post", "stream"])
def test_what_was_not_done_is_sent_again_until_ten_minutes_are_over(api: Desk, how: str) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(
            429, headers={"Retry-After": "120"}, stream=httpx.ByteStream(b'{"detail": "wait"}')
        )

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://here")
    client, waits = commands(api, http)

    def send() -> None:
        if how == "post":
            client.post("/runs")
        else:
            client.stream("/runs").__enter__()

    with pytest.raises(RefusalError, match="wait") as refused:
        send()
    assert (refused.value.status, waits, len(asked)) == (429, [120] * 5, 6)


def test_the_waits_of_all_tries_are_bounded_together(api: Desk) -> None:
    answers = [429, 429, 503, *[429] * 9]

    def answer(_: httpx.Request) -> httpx.Response:
        told = httpx.ByteStream(b'{"detail": "no"}')
        return httpx.Response(answers.pop(0), headers={"Retry-After": "200"}, stream=told)

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://here")
    client, waits = commands(api, http)
    with pytest.raises(RefusalError):
        client.get("/runs")
    assert [wait for wait in waits if wait == 200] == [200] * 3


def test_a_command_that_has_a_time_limit_waits_no_longer(api: Desk) -> None:
    port = Port(api, requests=1)
    http = through(port.client(port.token("one")))
    client, waits = commands(api, http, timeout_s=59, pauses_s=())
    assert client.get("/runs")["items"] == []
    assert client.get("/runs")["items"] == []
    with pytest.raises(RefusalError, match="wait 60 s"):
        client.get("/runs")
    assert waits == []


@pytest.mark.parametrize("how", ["announced", "in parts", "file"])
def test_a_form_that_is_too_large_is_refused_before_it_is_parsed(api: Desk, how: str) -> None:
    client = Port(api).client()
    large = b"token=" + b"x" * FORM_LIMIT_BYTES
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    if how == "file":
        answer = client.post("/login", files={"token": ("large.bin", large)})
    elif how == "announced":
        answer = client.post("/login", content=large, headers=form)
    else:
        answer = client.post("/login", content=iter([large[:100], large[100:]]), headers=form)
    assert answer.status_code == 413
    assert f"at most {FORM_LIMIT_BYTES} bytes" in answer.text
