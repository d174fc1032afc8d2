"""A proxy of the controller's own, through which other programs reach only allowed addresses.

git and pip resolve names and follow redirects themselves. Behind this proxy they cannot: it
resolves each name once, looks at every address, and connects to one of just these. It takes only
`CONNECT`, so that https:// is all that passes, and what passes stays sealed.
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

from orchestrator.adapters.notify.guarded_http import Resolve, addresses_of, refusal

Look = Callable[[str], str]
"""Why nothing is sent to an address; empty where it may be."""
_LINE_BYTES = 4096
_HEADERS_MOST = 100
_CONNECT_S = 10.0
_IDLE_S = 60.0
_POLL_S = 0.05
"""How often the server looks whether it is to stop: `shutdown` waits for this at most."""
_PIECE_BYTES = 65536
_CONNECT = re.compile(
    rb"CONNECT (?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})"
    rb" HTTP/1\.[01]\r?\n"
)


class ProxyRefusedError(Exception):
    """Nothing is sent there; the text says why, for a person."""


def look_public(address: str) -> str:
    """Allow only what is everybody's: no private address, no loopback, no cloud's metadata."""
    return refusal(address, allow_private=False, remedy="")


def checked_addresses(host: str, port: int, *, resolve: Resolve, look: Look) -> list[str]:
    """The addresses of a host: if one is not allowed, none is. Raises ProxyRefusedError."""
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
    """Answer on a port of the loopback for as long as the block takes; gives the proxy's URL."""
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
        """Connect one client to the host that it names, or say why not."""
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
    """Until either side ends, or both are silent for a minute."""
    peers = {one: other, other: one}
    while ready := select.select(list(peers), [], [], _IDLE_S)[0]:
        for source in ready:
            piece = source.recv(_PIECE_BYTES)
            if not piece:
                return
            peers[source].sendall(piece)
