"""The controller's own proxy: it passes on what may be reached, and says why where it does not."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from orchestrator.adapters.guarded_proxy import guarded_proxy
from tests.integration.test_git_subjects import listener

NAMES = {"files.example": ["127.0.0.1"], "two.example": ["93.184.216.34", "10.0.0.1"]}


def resolved(host: str, port: int) -> list[str]:
    return NAMES.get(host, [host])


def asked(proxy: str, line: str) -> tuple[socket.socket, str]:
    parts = urlsplit(proxy)
    client = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30)
    client.sendall(f"{line}\r\nHost: x\r\n\r\n".encode())
    return client, client.recv(4096).decode()


def test_bytes_pass_both_ways_to_an_address_that_may_be_reached() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        guarded_proxy(resolved, look=lambda address: "") as proxy,
    ):
        client, said = asked(proxy, f"CONNECT files.example:{server.getsockname()[1]} HTTP/1.1")
        assert said.startswith("HTTP/1.1 200 ")
        upstream, _ = server.accept()
        with client, upstream:
            for one, other in ((client, upstream), (upstream, client)):
                one.sendall(b"sealed")
                assert other.recv(100) == b"sealed"
            upstream.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("CONNECT {ours} HTTP/1.1", "127.0.0.1 is this computer's own address"),
        ("CONNECT files.example:443 HTTP/1.1", "files.example: 127.0.0.1 is this computer's own"),
        ("CONNECT two.example:443 HTTP/1.1", "two.example: 10.0.0.1 is a private address"),
        ("CONNECT [::ffff:10.0.0.1]:443 HTTP/1.1", "is a private address"),
        ("CONNECT 169.254.169.254:443 HTTP/1.1", "is a link-local or cloud metadata address"),
        ("CONNECT 93.184.216.34:99999 HTTP/1.1", ""),
        ("GET http://{ours}/ HTTP/1.1", "only https:// addresses are taken"),
        ("CONNECT files.example HTTP/1.1", "only https:// addresses are taken"),
        ("\x16\x03\x01", "only https:// addresses are taken"),
    ],
)
def test_what_may_not_be_reached_is_said_and_not_connected(line: str, why: str) -> None:
    with listener() as (port, heard), guarded_proxy(resolved) as proxy:
        client, said = asked(proxy, line.format(ours=f"127.0.0.1:{port}"))
        client.close()
        assert said.startswith("HTTP/1.1 403 ")
        assert why in said
    assert heard == []
