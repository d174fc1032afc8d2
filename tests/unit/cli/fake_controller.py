"""A controller of the tests' own: real HTTP on a real socket, with answers that a test chooses."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.cli import runs

Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, status: int = 200) -> Answer:
        return cls(status, json.dumps(value).encode())

    @classmethod
    def problem(cls, status: int, detail: str, **more: object) -> Answer:
        return cls.of({"title": "T", "status": status, "detail": detail, **more}, status)


Reply = Answer | Callable[[Request], Answer]


class FakeController:
    """Answers from `answers`, by method and path; the shown run and its feed are built in."""

    def __init__(self) -> None:
        self.shown: Json = runs.typical()
        self.log = b""
        self.tests: list[Json] = []
        self.told: list[Json] = []
        """Data of the feed's events, one a connection."""
        self.requests: list[Request] = []
        self.answers: dict[tuple[str, str], Reply] = {
            ("GET", "/healthz"): Answer.of({"status": "ok"}),
            ("POST", "/api/v1/plan"): Answer.of(plan()),
            ("POST", f"/api/v1/runs/{runs.RUN_ID}/rerun/plan"): Answer.of(plan()),
            ("POST", "/api/v1/runs"): lambda request: Answer.of(self.shown, 202),
        }
        self.on_look: Callable[[int], None] = lambda looks: None
        """Called with the number of looks before each answer to one."""
        self.looks = 0
        self.stored: dict[str, bytes] = {}
        """Uploads, by path."""

    def finish(self, outcome: str) -> None:
        """End the run."""
        self.shown = self.shown | {"state": "finished", "outcome": outcome}

    def sent(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def reply(self, request: Request) -> Answer:
        self.requests.append(request)
        chosen = self.answers.get((request.method, request.path))
        if chosen is not None:
            return chosen(request) if callable(chosen) else chosen
        base = f"/api/v1/runs/{self.shown['id']}"
        if request.path in (base, "/api/v1/runs/latest") and request.method == "GET":
            self.looks += 1
            self.on_look(self.looks)
            return Answer.of(self.shown)
        if request.path.startswith(("/api/v1/payloads/", "/api/v1/subjects/")):
            return self._upload(request)
        if request.path.endswith("/log"):
            after = int(request.query["after"][0])
            ahead = {"Seatrial-Next-Offset": str(len(self.log))}
            return Answer(200, self.log[after:], "application/octet-stream", ahead)
        if request.path.endswith("/tests"):
            wanted = request.query["outcome"][0]
            (job,) = request.query.get("job", [None])
            items = [
                test
                for test in self.tests
                if test["outcome"] == wanted and job in (None, test["job"])
            ]
            return Answer.of({"items": items, "next": None})
        return Answer.problem(404, f"there is nothing at {request.path}")

    def _upload(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.stored[request.path] = request.body
            return Answer.of({}, 201)
        return Answer() if request.path in self.stored else Answer.problem(404, "not there")


def stored_policy(digit: str) -> Json:
    """The policy of the gate `release`; its digest is of this digit alone."""
    at = "2026-01-19T00:00:00Z"
    text = {"text": "kind: ReleaseGate", "document": "{}"}
    return {
        "gate": "release",
        "product": "torchbridge",
        "digest": digit * 64,
        "by": "me",
        "first_seen": at,
        "since": at,
        **text,
    }


def plan(provider: str = "local", usd: str | None = "0") -> Json:
    planned = {
        "id": "local-cpu",
        "platform": {"id": "local-cpu", "provider": provider},
        "environment": "image",
        "jobs": ["moe", "moe-demo"],
    }
    cell = {
        "cell": planned,
        "places": [{"name": "here", "price_usd_per_hour": usd}],
        "worst_usd": usd,
        "note": "",
    }
    return {"cells": [cell], "worst_usd": usd, "max_usd": None, "payload": "0" * 64}


class Handler(BaseHTTPRequestHandler):
    """Hands requests to the server's controller."""

    protocol_version = "HTTP/1.1"
    server: Server | TcpServer

    def do(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, url.path, parse_qs(url.query), dict(self.headers), body)
        if url.path.endswith("/events"):
            self._feed(request)
            return
        answer = self.server.controller.reply(request)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _feed(self, request: Request) -> None:
        """One event, and the end of the connection: a reader has to come back."""
        self.server.controller.requests.append(request)
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = int(request.headers.get("Last-Event-ID") or 0) + 1
        told = self.server.controller.told
        data = json.dumps(told[number - 1] if number <= len(told) else {})
        self.wfile.write(f"id: {number}\nevent: cell\ndata: {data}\n\n".encode())

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do  # noqa: N815 - http.server's names

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *args: object) -> None:
        pass


class _Threads(socketserver.ThreadingMixIn):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True
    controller: FakeController

    def __init__(self, address: Any, handler: type[Handler]) -> None:
        self.open: list[socket.socket] = []
        super().__init__(address, handler)  # type: ignore[call-arg]  # the other parent's

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.append(request)
        super().process_request(request, client_address)

    def cut(self) -> None:
        """Break every connection, as the end of a process would."""
        for connection in self.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *args: object) -> None:
        pass  # a client that leaves in the middle is what some tests are about


class Server(_Threads, socketserver.UnixStreamServer):
    """On a socket."""


class TcpServer(_Threads, socketserver.TCPServer):
    """On a port."""


@contextlib.contextmanager
def serving(home: Path, controller: FakeController) -> Iterator[FakeController]:
    """Serve on the home's socket for as long as the context lasts."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "controller.sock"
    with Server(str(path), Handler) as server, _running(server, controller):
        try:
            yield controller
        finally:
            path.unlink()


@contextlib.contextmanager
def serving_tcp(controller: FakeController, port: int = 0) -> Iterator[int]:
    """Serve on a port of this computer; the port is what the context is entered with."""
    with TcpServer(("127.0.0.1", port), Handler) as server, _running(server, controller):
        yield server.server_address[1]


@contextlib.contextmanager
def _running(server: Server | TcpServer, controller: FakeController) -> Iterator[None]:
    server.controller = controller
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.cut()
