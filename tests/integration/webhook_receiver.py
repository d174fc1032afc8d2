"""A receiver of messages: a real HTTP server on the loopback, which keeps what comes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        said: dict[str, object] = json.loads(self.body)
        return said

    def verified(self, secret: str) -> Any:
        """What it says, if the secret signed it within the last minutes; raises otherwise."""
        return Webhook(secret).verify(self.body, dict(self.headers))


@dataclass
class Reply:
    """What the receiver answers."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    before: Callable[[], object] = lambda: None
    """Done before it answers."""


@dataclass
class Receiver:
    """Answers one reply after the other, and the last one for ever."""

    port: int = 0
    replies: list[Reply] = field(default_factory=lambda: [Reply()])
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def reply(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextlib.contextmanager
def receiver(*replies: Reply) -> Iterator[Receiver]:
    """A server on a port of its own."""
    kept = Receiver(replies=list(replies) or [Reply()])

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            kept.received.append(Received(self.command, self.path, headers, body))
            reply = kept.reply()
            reply.before()
            with contextlib.suppress(ConnectionError):
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        do_POST = do_GET = answer  # noqa: N815 - the server's own names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join(60)
