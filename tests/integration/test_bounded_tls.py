"""Limits of clients of a port with TLS, over real sockets: also before a handshake is complete."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bootstrap.http_server import HttpLimits, TlsFiles
from tests.integration.test_bounded_http import HEAD, connect, listening, rest, status
from tests.integration.test_tls import certificate
from tests.waiting import until

LIMITS = HttpLimits(headers_s=8.0, pause_s=8.0, connections=8)
GET = b"GET / " + HEAD + b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def port(files: tuple[Path, Path]) -> Iterator[int]:
    with listening(LIMITS, TlsFiles(*files).context) as number:
        yield number


@pytest.fixture
def trusted(files: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files[0]))


def answer(port: int, trusted: ssl.SSLContext, source: str) -> int:
    """The status that a client from this address gets; 0 where it is cut."""
    with closing(connect(port, source)) as raw:
        try:
            with trusted.wrap_socket(raw, server_hostname="127.0.0.1") as line:
                line.sendall(GET)
                return status(rest(line))
        except OSError:
            return 0


def hold(held: ExitStack, port: int, source: str, count: int) -> list[socket.socket]:
    """So many connections that send nothing: no handshake begins."""
    return [held.enter_context(closing(connect(port, source))) for _ in range(count)]


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a record"])
def test_a_handshake_that_stands_still_is_ended(files: tuple[Path, Path], sent: bytes) -> None:
    soon = replace(LIMITS, headers_s=1.0)
    with listening(soon, TlsFiles(*files).context) as port, closing(connect(port)) as line:
        line.sendall(sent)
        assert rest(line) == b""  # else the ten seconds of the client's own end this test


def test_a_server_stops_while_a_handshake_is_under_way(files: tuple[Path, Path]) -> None:
    with ExitStack() as held:
        with listening(LIMITS, TlsFiles(*files).context) as port:
            (line,) = hold(held, port, "127.0.0.1", 1)
            line.sendall(b"\x16\x03\x01")
        assert rest(line) == b""


def test_a_client_with_too_many_is_told_so(
    port: int, trusted: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as held:
        for line in hold(held, port, "127.0.0.1", LIMITS.of_one_client):
            over = held.enter_context(trusted.wrap_socket(line, server_hostname="127.0.0.1"))
            over.sendall(b"POST / " + HEAD + b"Content-Length: 9\r\n\r\n")
        assert [answer(port, trusted, f"127.0.0.{n}") for n in (1, 2)] == [503, 200]
    until(lambda: answer(port, trusted, "127.0.0.1") == 200)
    assert [record.getMessage() for record in caplog.records] == []


def test_silent_connections_count_before_their_handshake(
    port: int, trusted: ssl.SSLContext
) -> None:
    with ExitStack() as held:
        hold(held, port, "127.0.0.3", LIMITS.of_one_client)
        assert [answer(port, trusted, f"127.0.0.{n}") for n in (3, 2)] == [503, 200]
    until(lambda: answer(port, trusted, "127.0.0.3") == 200)


def test_one_client_with_silent_connections_leaves_room_for_others(
    port: int, trusted: ssl.SSLContext
) -> None:
    with ExitStack() as held:
        lines = hold(held, port, "127.0.0.4", LIMITS.connections * 3)
        assert answer(port, trusted, "127.0.0.5") == 200
        assert all(rest(line) == b"" for line in lines[LIMITS.of_one_client :])
        assert answer(port, trusted, "127.0.0.5") == 200
