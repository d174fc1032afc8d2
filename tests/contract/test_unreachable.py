"""Whatever else is behind an address: an SSH connection says that nobody can be reached there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.domain.machine import ClosedPortError, SshEndpoint, UnreachableError
from runners.shell.connection import KeyFile
from runners.shell.ssh import SshShell
from tests.ssh_hosts import LOOPBACK, make_key


@contextlib.contextmanager
def answering(said: bytes, *, hang_up: bool) -> Iterator[int]:
    """A port whose server says so much, and hangs up or goes silent."""
    with socket.create_server((LOOPBACK, 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = server.accept()
                    stream.sendall(said)
                    stream.close() if hang_up else kept.append(stream)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for stream in kept:
            stream.close()


@pytest.mark.parametrize("hang_up", [True, False])
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 9, b"SSH-2.0-x\r\n"]
)
def test_whatever_else_answers_there_is_unreachable(
    tmp_path: Path, said: bytes, hang_up: bool
) -> None:
    key = make_key(tmp_path / "key")
    pinned = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    with answering(said, hang_up=hang_up) as port:
        endpoint = SshEndpoint(LOOPBACK, "me", pinned, key_file="key", port=port)
        with pytest.raises(UnreachableError, match=f"me@{LOOPBACK}:{port}"):
            SshShell(endpoint, key=KeyFile(key), connect_timeout_s=0.5).run("true")


@pytest.mark.parametrize("address", ["no-such-host.invalid", "a" * 70, "255.255.255.255", ""])
def test_an_address_that_leads_nowhere_is_unreachable(tmp_path: Path, address: str) -> None:
    key = make_key(tmp_path / "key")
    pinned = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    endpoint = SshEndpoint(address, "me", pinned, key_file="key", port=1)
    with pytest.raises(UnreachableError, match="no connection"):
        SshShell(endpoint, key=KeyFile(key), connect_timeout_s=0.5).run("true")


@pytest.mark.parametrize(
    ("error", "in_short", "next_step"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused", "start its SSH"),
        (TimeoutError("timed out"), "no answer", "check that the machine is up"),
        (OSError(113, "No route to host"), "no route", "network or VPN"),
        (OSError(101, "Network is unreachable"), "no route", "network or VPN"),
        (socket.gaierror(-2, "Name or service not known"), "address not known", "correct the add"),
        (PermissionError(13, "Permission denied"), "no answer", "check that the machine is up"),
    ],
)
def test_why_there_is_no_connection_is_said_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, in_short: str, next_step: str
) -> None:
    def refuse(*_: object, **__: object) -> socket.socket:
        raise error

    key = make_key(tmp_path / "key")
    pinned = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    monkeypatch.setattr(socket, "create_connection", refuse)
    endpoint = SshEndpoint(LOOPBACK, "me", pinned, key_file="key", port=1)
    with pytest.raises(UnreachableError) as caught:
        SshShell(endpoint, key=KeyFile(key)).run("true")
    assert caught.value.in_short == in_short
    assert str(error) in str(caught.value)
    assert next_step in str(caught.value)


def test_a_port_where_nothing_listens_is_told_as_one(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    pinned = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    with socket.socket() as bound:  # and not listening: the port stays this test's own
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        endpoint = SshEndpoint("127.0.0.1", "me", pinned, key_file="key", port=port)
        with pytest.raises(ClosedPortError, match="Connection refused"):
            SshShell(endpoint, key=KeyFile(key), connect_timeout_s=30).run("true")
