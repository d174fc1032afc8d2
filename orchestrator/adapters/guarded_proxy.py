"""A local proxy through which other programs reach only allowed addresses.

git and pip resolve names and follow redirects themselves. Behind this proxy they cannot: it
resolves each name once, checks every address, and connects to one of the checked addresses. It
accepts only `CONNECT`, so that only https:// passes and the content stays encrypted.
"""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from socketserver import StreamRequestHandler, ThreadingTCPServer

from orchestrator.adapters.guarded_http import Resolve, addresses_of, refusal

Look = Callable[[str], str]
"""Returns why an address is refused; empty if it is allowed."""
_LINE_BYTES = 4096
_HEADERS_MOST = 100
_CONNECT_S = 10.0
_IDLE_S = 60.0
_POLL_S = 0.05
"""Seconds between checks for a requested shutdown, which `shutdown` waits for at most."""
_PIECE_BYTES = 65536
_CONNECT = re.compile(
    rb"CONNECT (?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})"
    rb" HTTP/1\.[01]\r?\n"
)


class ProxyRefusedError(Exception):
    """The address is refused; the text gives the reason for a person."""


def look_public(address: str) -> str:
    """Return why a private, loopback or metadata address is refused; empty for others."""
    return refusal(address, allow_private=False, remedy="")


def checked_addresses(host: str, port: int, *, resolve: Resolve, look: Look) -> list[str]:
    """Return the addresses of a host. Raises ProxyRefusedError if any of them is not allowed."""
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise ProxyRefusedError(f"the name {host} cannot be resolved: {error}") from None
    for address in found:
        why = look(address)
        if why:
            raise ProxyRefusedError(f"{host}: {why}" if host != address else why)
    return found


@contextmanager
def guarded_proxy(resolve: Resolve = addresses_of, look: Look = look_public) -> Iterator[str]:
    """Serve on a loopback port while the context is open; yield the proxy's URL."""
    with _Server(resolve, look) as server:
        serve = partial(server.serve_forever, poll_interval=_POLL_S)
        thread = threading.Thread(target=serve, name="guarded-proxy", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, resolve: Resolve, look: Look) -> None:
        self.resolve = resolve
        self.look = look
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log no request: git and pip report their own errors to the caller."""


class _Handler(StreamRequestHandler):
    timeout = _CONNECT_S
    server: _Server

    def handle(self) -> None:
        """Connect one client to the host of its CONNECT request, or answer 403 with the reason."""
        asked = _CONNECT.fullmatch(self.rfile.readline(_LINE_BYTES))
        for _ in range(_HEADERS_MOST):
            if self.rfile.readline(_LINE_BYTES) in (b"\r\n", b"\n", b""):
                break
        try:
            if asked is None:
                raise ProxyRefusedError("only https:// addresses are taken")
            host = (asked["six"] or asked["name"]).decode("ascii")
            upstream = self._connected(host, int(asked["port"]))
        except (ProxyRefusedError, OSError, OverflowError) as error:
            said = str(error).encode("ascii", "replace").replace(b"\n", b" ")
            self.wfile.write(b"HTTP/1.1 403 " + said + b"\r\nContent-Length: 0\r\n\r\n")
            return
        with upstream:
            self.wfile.write(b"HTTP/1.1 200 connected\r\n\r\n")
            _pass_on(self.connection, upstream)

    def _connected(self, host: str, port: int) -> socket.socket:
        server = self.server
        addresses = checked_addresses(host, port, resolve=server.resolve, look=server.look)
        for address in addresses:
            try:
                return socket.create_connection((address, port), timeout=_CONNECT_S)
            except OSError as error:
                if address == addresses[-1]:
                    raise ProxyRefusedError(f"{host} does not answer: {error}") from None
        raise ProxyRefusedError(f"{host} has no address")


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    """Relay bytes until either side ends, or both are silent for `_IDLE_S` seconds."""
    peers = {one: other, other: one}
    while ready := select.select(list(peers), [], [], _IDLE_S)[0]:
        for source in ready:
            piece = source.recv(_PIECE_BYTES)
            if not piece:
                return
            peers[source].sendall(piece)
