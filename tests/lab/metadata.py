"""The metadata address of one machine, as EC2 (IMDSv2 only) or as Google Compute Engine has it."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.lab.machines import MachineSpec

PORT = 80
_TTL_HEADER, _TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
_LONGEST_TOKEN_S = 21600
_MARK = ("Metadata-Flavor", "Google")
_COMPUTE = "/computeMetadata/v1/instance/"
_GUEST = f"{_COMPUTE}guest-attributes/"
_LONGEST_WAIT_S = 300.0


@dataclass(slots=True)
class Facts:
    """What a machine is told about itself; changes while it runs."""

    spec: MachineSpec
    preempted_at: datetime | None = None
    announced_at: datetime | None = None
    guest_attributes: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)  # until when, monotonic
    requests: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def announce(self, at: datetime, now: datetime) -> None:
        with self.changed:
            self.preempted_at, self.announced_at = at, now
            self.changed.notify_all()


class MetadataService:
    """Serves one machine's facts on a socket inside its network, until `close`."""

    def __init__(self, listener: socket.socket, facts: Facts) -> None:
        self.facts = facts
        self._server = _Server(listener, facts)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="lab-metadata", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, facts: Facts) -> None:
        handler = _Ec2 if facts.spec.cloud == "aws" else _Compute
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.facts = facts

    def handle_error(self, request: object, client_address: object) -> None:
        """A machine that goes away in the middle of a question is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def facts(self) -> Facts:
        return self.server.facts

    def answer(self, code: int, text: str = "", *headers: tuple[str, str]) -> None:
        body = text.encode()
        self.facts.requests.append(f"{self.command} {self.path} {code}")
        self.send_response(code)
        for name, value in (*headers, ("Content-Type", "text/plain")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> str:
        return self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()

    def log_message(self, *_: object) -> None:
        """The requests are kept in the facts instead."""


class _Ec2(_Handler):
    server_version = "EC2ws"

    def do_PUT(self) -> None:
        self.body()
        if urlsplit(self.path).path != "/latest/api/token":
            return self.answer(404)
        ttl = self.headers.get(_TTL_HEADER, "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= _LONGEST_TOKEN_S:
            return self.answer(400)
        token = secrets.token_urlsafe(40)
        self.facts.tokens[token] = time.monotonic() + int(ttl)
        return self.answer(200, token, (_TTL_HEADER, ttl))

    def do_GET(self) -> None:
        token = self.headers.get(_TOKEN_HEADER, "")
        if self.facts.tokens.get(token, 0.0) < time.monotonic():
            return self.answer(401)
        text = self._tell(urlsplit(self.path).path)
        return self.answer(404) if text is None else self.answer(200, text)

    def _tell(self, path: str) -> str | None:
        spec = self.facts.spec
        data = "/latest/meta-data/"
        return {
            "/latest/user-data": spec.user_data or None,
            f"{data}instance-id": spec.id,
            f"{data}hostname": spec.hostname,
            f"{data}local-hostname": spec.hostname,
            f"{data}local-ipv4": spec.addresses[0],
            f"{data}public-ipv4": spec.addresses[1] if len(spec.addresses) > 1 else None,
            f"{data}spot/instance-action": self._notice(),
            f"{data}spot/termination-time": _at(self.facts.preempted_at),
            f"{data}events/recommendations/rebalance": self._rebalance(),
        }.get(path)

    def _notice(self) -> str | None:
        at = _at(self.facts.preempted_at)
        return json.dumps({"action": "terminate", "time": at}) if at else None

    def _rebalance(self) -> str | None:
        at = _at(self.facts.announced_at)
        return json.dumps({"noticeTime": at}) if at else None


class _Compute(_Handler):
    server_version = "Metadata Server for VM"

    def do_GET(self) -> None:
        if not self._asked_rightly():
            return
        parts = urlsplit(self.path)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if options.get("wait_for_change") == "true":
            self._wait(float(options.get("timeout_sec", _LONGEST_WAIT_S)))
        text = self._tell(parts.path)
        self.answer(404 if text is None else 200, text or "", _MARK)

    def do_PUT(self) -> None:
        text = self.body()
        if not self._asked_rightly():
            return None
        name = urlsplit(self.path).path.removeprefix(_GUEST)
        if not self.path.startswith(_GUEST) or not _true(self.facts.spec, _ENABLE):
            return self.answer(403, "", _MARK)
        self.facts.guest_attributes[name] = text
        return self.answer(200, "", _MARK)

    def _asked_rightly(self) -> bool:
        if self.headers.get(_MARK[0], "").lower() == _MARK[1].lower():
            return True
        self.answer(403, f"Missing {_MARK[0]}:{_MARK[1]} header.\n", _MARK)
        return False

    def _wait(self, limit_s: float) -> None:
        with self.facts.changed:
            self.facts.changed.wait(min(limit_s, _LONGEST_WAIT_S))

    def _tell(self, path: str) -> str | None:
        spec = self.facts.spec
        name = path.removeprefix(_COMPUTE)
        if name.startswith("attributes/"):
            return self._attribute(name.removeprefix("attributes/"))
        if name.startswith("guest-attributes/"):
            return self.facts.guest_attributes.get(name.removeprefix("guest-attributes/"))
        return {
            "id": spec.id,
            "name": spec.hostname.partition(".")[0],
            "hostname": spec.hostname,
            "zone": "projects/1/zones/" + spec.attributes.get("lab-zone", "lab-a"),
            "preempted": "FALSE" if self.facts.preempted_at is None else "TRUE",
            "maintenance-event": "NONE",
            "network-interfaces/0/ip": spec.addresses[0],
        }.get(name)

    def _attribute(self, name: str) -> str | None:
        known = self.facts.spec.attributes
        return known.get(name) if name else "".join(f"{key}\n" for key in sorted(known))


_ENABLE = "enable-guest-attributes"


def _true(spec: MachineSpec, name: str) -> bool:
    return spec.attributes.get(name, "").lower() in ("true", "1", "y", "yes")


def _at(time_: datetime | None) -> str | None:
    return None if time_ is None else time_.strftime("%Y-%m-%dT%H:%M:%SZ")
