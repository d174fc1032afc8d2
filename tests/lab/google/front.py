"""The door of the emulated REST services: one call in, its fault or its answer out."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request as WsgiRequest

from tests.lab.faults import Call, Fault, Faults

Json = dict[str, Any]
_NO_FAULT = Fault()


def utc_now() -> datetime:
    return datetime.now(UTC)


class ApiError(Exception):
    """What a Google REST service refuses a call with."""

    def __init__(self, reason: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reason, self.message, self.status = reason, message, status


@dataclass(frozen=True, slots=True)
class Request:
    """One call, read: its name as Google's discovery document has it, and what came with it."""

    name: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json
    fault: Fault = field(default=_NO_FAULT)  # for the operation that the call starts


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str = "application/json"


class _Handler(WSGIRequestHandler):
    # One call per connection: nothing lingers when the server is closed.
    protocol_version = "HTTP/1.0"

    def log(self, *_: Any) -> None:
        """Say nothing: `calls` is the log."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Close without an answer: a fault asked for it, or the client is gone."""


class RestFront:
    """A server on the loopback. A service adds its routes, `places` and `answer`."""

    begins_operations: frozenset[str] = frozenset()

    def __init__(self, routes: Mapping[str, str], clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.faults = Faults()
        self.crashes: list[str] = []
        self._map = Map([_rule(name, route) for name, route in routes.items()])
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._server: Any = None

    def places(self, request: Request) -> tuple[str, ...]:
        """What a scripted fault's `where` is compared with."""
        return tuple(request.path.values())

    def key(self, request: Request) -> str:
        """The call's token, or the name of what it is about."""
        return request.query.get("requestId", "") or str(request.body.get("name", ""))

    def answer(self, request: Request) -> Json:
        raise NotImplementedError

    def background(self) -> tuple[Callable[[], None], ...]:
        """What else runs while the service is open; each ends when `_stopping` is set."""
        return ()

    @property
    def endpoint_url(self) -> str:
        """Where the client is pointed to: `client_options={"api_endpoint": ...}`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        self._server = make_server("127.0.0.1", 0, self._wsgi, threaded=True,
                                   request_handler=_Handler)  # fmt: skip
        serve: Callable[[], None] = lambda: self._server.serve_forever(poll_interval=0.05)  # noqa: E731
        for target in (serve, *self.background()):
            thread = threading.Thread(target=target, name=type(self).__name__, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Close it.

        Raises:
            RuntimeError: The lab itself broke while it answered: no test may pass over that.
        """
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(10)
        if self.crashes:
            raise RuntimeError(f"the emulated {type(self).__name__} broke:\n{self.crashes[0]}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        reply = self._reply(environ)
        if reply is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("a fault asked for it")
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        start_response(f"{reply.status} Answer", headers)
        return [reply.body]

    def _reply(self, environ: dict[str, Any]) -> Reply | None:
        """The answer to one call; None for a connection that is closed instead."""
        try:
            request = self._read(environ)
        except HTTPException as error:
            self.crashes.append(f"no such call: {environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            return error_reply(ApiError("notFound", str(error), 404))
        places, key = self.places(request), self.key(request)
        call = Call(self.clock(), request.name, places, key, "", {**request.path, **request.query})
        fault = self.faults.take(request.name, places) or _NO_FAULT
        fault.wait()
        if fault.in_operation and request.name not in self.begins_operations:
            self.crashes.append(f"{request.name} begins no operation that could end {fault.code}")
        if fault.is_error and not (fault.after or fault.in_operation):
            return self._fail(call, fault)
        reply, code = self._served(replace(request, fault=fault) if fault.in_operation else request)
        fault.wait_to_answer()
        if fault.is_error and fault.after:
            details = {**call.details, "answer lost": code}
            return self._fail(replace(call, details=details), fault)
        self.calls.append(replace(call, answer=code))
        return reply

    def _read(self, environ: dict[str, Any]) -> Request:
        name, path = self._map.bind_to_environ(environ).match()
        raw = WsgiRequest(environ)
        data = raw.get_data()
        return Request(name, path, dict(raw.args), json.loads(data) if data else {})

    def _served(self, request: Request) -> tuple[Reply, str]:
        try:
            body = self.answer(request)
        except ApiError as error:
            return error_reply(error), error.reason
        except Exception:  # noqa: BLE001 - kept, answered, and raised again by `stop`
            self.crashes.append(f"{request.name}: {traceback.format_exc()}")
            return error_reply(ApiError("backendError", "the lab broke", 500)), "broken"
        return Reply(200, json.dumps(body).encode()), "ok"

    def _fail(self, call: Call, fault: Fault) -> Reply | None:
        self.calls.append(replace(call, answer=fault.code or ("dropped" if fault.drop else "page")))
        if fault.drop:
            return None
        if fault.body:
            return Reply(fault.status, fault.body.encode(), "text/html")
        return error_reply(ApiError(fault.code, fault.message, fault.status))


def _rule(name: str, route: str) -> Rule:
    method, _, path = route.partition(" ")
    return Rule(path, methods=[method], endpoint=name)


def error_reply(error: ApiError) -> Reply:
    """The error document of Google's REST services."""
    domain = "usageLimits" if "xceeded" in error.reason else "global"
    entry = {"message": error.message, "domain": domain, "reason": error.reason}
    body = {"error": {"code": error.status, "message": error.message, "errors": [entry]}}
    return Reply(error.status, json.dumps(body).encode())


def page(rows: list[Any], query: Mapping[str, str], *, size: int = 500) -> tuple[list[Any], str]:
    """One page of a list and the token of the next one, empty at the end."""
    size = int(query.get("maxResults") or query.get("pageSize") or size)
    start = int(query.get("pageToken") or 0)
    rest = str(start + size) if start + size < len(rows) else ""
    return rows[start : start + size], rest
