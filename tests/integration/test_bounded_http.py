"""Slow, idle and many clients, over real sockets; event streams and slow uploads go on."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.bootstrap.http_server import HttpLimits, HttpServer
from tests.waiting import until

LIMITS = HttpLimits(headers_s=1.0, pause_s=1.0, connections=8)
PATIENT = HttpLimits(headers_s=60.0, pause_s=4.0, connections=8)
"""For what goes on, by turns that take longer together."""
HEAD = b"HTTP/1.1\r\nHost: localhost\r\n"
TURNS = 12
PAUSE_S = 0.4
"""So many parts, so far apart, take longer than the pause that ends a connection."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body; below /stream with a part whenever it likes."""
    start = {"type": "http.response.start", "status": 200, "headers": []}
    if scope["path"] == "/stream":
        await send(start)
        for number in range(TURNS):
            await asyncio.sleep(PAUSE_S)
            more = {"type": "http.response.body", "body": b"%d" % number, "more_body": True}
            await send(more)
        await send({"type": "http.response.body", "body": b""})
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await send({**start, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"%02d" % size})


@contextmanager
def listening(limits: HttpLimits, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server in a thread, plain or with TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(application, limits=limits, tls=tls)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        until(lambda: server.started)
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening(LIMITS) as number:
        yield number


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120, source_address=(source, 0))


def rest(line: socket.socket) -> bytes:
    """All that comes until the other side ends it."""
    told = b""
    while part := line.recv(65536):
        told += part
    return told


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", 0),
        (b"GET / HTTP/1.1\r\nHost: local", 408),
        (b"GET / " + HEAD + b"\r\n" + b"GET / HTTP/1.1\r\nHo", 408),
        (b"POST / " + HEAD + b"Content-Length: 9\r\n\r\nhalf", 0),
    ],
    ids=["nothing", "slow headers", "slow second headers", "a body that stands still"],
)
def test_what_stands_still_is_ended(port: int, sent: bytes, answered: int) -> None:
    with closing(connect(port)) as line:
        line.sendall(sent)
        answers = rest(line)
    last = answers[answers.rfind(b"HTTP/1.1 ") :] if answers else b""
    assert status(last) == answered
    assert (b"headers were not complete within 1 s" in last) == (answered == 408)


def test_headers_that_trickle_are_ended_all_the_same(port: int) -> None:
    def trickle(line: socket.socket) -> None:
        for _ in range(200):
            line.sendall(b"X: y\r\n")
            time.sleep(0.05)

    with closing(connect(port)) as line:
        line.sendall(b"GET / " + HEAD)
        with pytest.raises(ConnectionError):
            trickle(line)


@pytest.fixture(scope="module")
def patient() -> Iterator[int]:
    with listening(PATIENT) as number:
        yield number


def test_a_slow_upload_that_goes_on_is_taken(patient: int) -> None:
    with closing(connect(patient)) as line:
        line.sendall(b"POST / " + HEAD + b"Content-Length: %d\r\n\r\n" % TURNS)
        for _ in range(TURNS):
            time.sleep(PAUSE_S)
            line.sendall(b"x")
        assert rest(line).endswith(b"\r\n\r\n%02d" % TURNS)


def test_a_stream_goes_on(patient: int) -> None:
    with closing(connect(patient)) as line:
        line.sendall(b"GET /stream " + HEAD + b"Connection: close\r\n\r\n")
        assert b"%d\r\n" % (TURNS - 1) in rest(line)


@pytest.fixture
def unhurried() -> Iterator[int]:
    with listening(replace(PATIENT, pause_s=60.0)) as number:
        yield number


def test_too_many_are_told_so_and_others_are_served(unhurried: int) -> None:
    port = unhurried
    ask = b"GET / " + HEAD + b"Connection: close\r\n\r\n"

    def answer(source: str) -> int:
        with closing(connect(port, source)) as line:
            line.sendall(ask)
            return status(rest(line))

    def hold(source: str, count: int) -> None:
        for _ in range(count):
            line = held.enter_context(closing(connect(port, source)))
            line.sendall(b"POST / " + HEAD + b"Content-Length: 9\r\n\r\n")
            lines.append(line)

    lines: list[socket.socket] = []
    with ExitStack() as held:
        hold("127.0.0.1", LIMITS.of_one_client)
        assert [answer("127.0.0.1"), answer("127.0.0.2")] == [503, 200]
        hold("127.0.0.2", LIMITS.of_one_client)
        assert answer("127.0.0.3") == 503
    until(lambda: [answer("127.0.0.1"), answer("127.0.0.3")] == [200, 200])
