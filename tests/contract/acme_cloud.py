"""The Acme cloud of `docs/examples/provider`: REST on the loopback, machines in memory."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
TOKEN = "acme-token"
PAGE = 2
_NEXT = {"queued": "starting", "starting": "running", "deleting": "deleted"}
_STATUS = {
    "not_signed_in": 401,
    "not_found": 404,
    "no_such_type": 404,
    "slow_down": 429,
    "broken": 500,
}


class RefusedError(Exception):
    """The cloud says no, with a code."""


@dataclass
class AcmeCloud:
    """Two zones; a server takes two looks to run and one to be gone. Faults are scripted."""

    servers: dict[str, Json] = field(default_factory=dict)
    by_key: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """For the next launches: a refusal's code; `lost` makes the server and drops the answer; with
    `late:` before it the order is taken, and refused at the next look."""
    launches: list[Json] = field(default_factory=list)
    type_looks: int = 0

    def start(self) -> Self:
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cloud.serve(self)

            do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length) or "{}")
        try:
            if request.headers["Authorization"] != f"Bearer {TOKEN}":
                raise RefusedError("not_signed_in")
            status, said = 200, self._answer(request, body)
        except RefusedError as error:
            code = str(error)
            if code == "lost":
                return  # the connection closes without an answer
            status, said = _STATUS.get(code, 409), {"code": code, "message": "no"}
        text = json.dumps(said).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def _answer(self, request: BaseHTTPRequestHandler, body: Json) -> Json:
        url = urlsplit(request.path)
        kind, _, name = url.path.removeprefix("/v1/").partition("/")
        if request.command == "POST":
            return self._launch(request.headers["Idempotency-Key"], body)
        if kind == "types":
            return self._type(name)
        if not name:
            return self._list(kind, parse_qs(url.query, keep_blank_values=True))
        if name not in self.servers or kind != "servers":
            raise RefusedError("not_found")
        if request.command == "DELETE":
            self.servers[name]["status"] = "deleting"
            return {}
        return self._look(name)

    def _type(self, name: str) -> Json:
        self.type_looks += 1
        if name != "gpu-1":
            raise RefusedError("no_such_type")
        price = {"region": "west", "usd_per_hour": "0.75", "disk_usd_per_hour": "0.01"}
        return {"zones": [{"zone": zone, **price} for zone in ("west-1", "west-2")]}

    def _launch(self, key: str, body: Json) -> Json:
        self.launches.append(body)
        if key in self.by_key:
            return dict(self.servers[self.by_key[key]])
        fault = self.faults.pop(0) if self.faults else ""
        if fault and fault != "lost" and not fault.startswith("late:"):
            raise RefusedError(fault)
        name = f"{len(self.by_key) + 1:04d}"
        made = {"id": name, "status": "queued", "address": "192.0.2.1", "image": "acme-gpu-12"}
        late = fault.removeprefix("late:") if fault.startswith("late:") else ""
        kept = {key: body[key] for key in ("type", "zone", "tags")}
        self.servers[name] = {**made, **kept, "late": late}
        self.by_key[key] = name
        if fault == "lost":
            raise RefusedError("lost")
        return dict(self.servers[name])

    def _look(self, name: str) -> Json:
        server = self.servers[name]
        if server["late"]:
            server.update(status="refused", refusal=server["late"], late="")
        else:
            server["status"] = _NEXT.get(server["status"], server["status"])
        if server["status"] == "deleted":
            del self.servers[name]
        return dict(server)

    def _list(self, kind: str, query: dict[str, list[str]]) -> Json:
        key, _, value = query["tag"][0].partition(":")
        after = query["after"][0]
        found = [
            server
            for name, server in sorted(self.servers.items())
            if kind == "servers" and server["tags"].get(key) == value and name > after
        ]
        page = found[:PAGE]
        return {"items": page, "next": page[-1]["id"] if len(found) > PAGE else None}
