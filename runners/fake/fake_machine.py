"""A machine in memory: its shelves, attempts and workspace, and an agent that writes a script."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import UnreachableError
from runners.shell.stdin_feeder import OutputLimitError
from runners.workspace import Kind, WorkspaceError, pack

Plan = Mapping[str, object]
Event = Mapping[str, object]
Script = Callable[[Plan], Iterator[Event]]
EPOCH_S = 1_767_225_600.0
"""Start time of every script, in seconds since 1970; its events are one second apart."""


def passing(plan: Plan) -> Iterator[Event]:
    """Yield the usual script: each job collects one test, which passes or is skipped."""
    for job in _jobs(plan):
        name, skipped = str(job["id"]), job.get("skip", ())
        nodeid = f"{name}.py::test_{name}"
        yield _event("phase", name, {"name": "started", "kind": job.get("kind"), "pid": 1})
        yield _event("manifest", name, {"tests": [nodeid], "process": 1})
        if not isinstance(skipped, list | tuple) or nodeid not in skipped:
            yield _event("test", name, {"record": "start", "nodeid": nodeid})
            for when in ("setup", "call", "teardown"):
                yield _event("test", name, _report(nodeid, when))
        yield _event("phase", name, _finished())
    yield ended("completed")


def ended(outcome: str, reason: str | None = None) -> Event:
    """Return an agent's last event."""
    return _event("end", None, {"outcome": outcome, "reason": reason, "detail": ""})


@dataclass(slots=True)
class FakeAttempt:
    """The files of one attempt on the machine, and the remaining events of its agent."""

    plan: Plan
    script: Iterator[Event]
    secrets: Mapping[str, str] = field(default_factory=dict)
    events: bytearray = field(default_factory=bytearray)
    log: bytearray = field(default_factory=bytearray)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    alive: bool = True
    starts: int = 1
    seq: int = 0

    def advance(self, lines: int) -> None:
        """Make the agent write `lines` more events."""
        for _ in range(lines):
            event = next(self.script, None) if self.alive else None
            if event is None:
                self.alive = False
                return
            self.write(event)

    def write(self, event: Event) -> None:
        """Append one event, numbered and dated; an `end` ends the agent."""
        self.seq += 1
        line = {"v": 1, "seq": self.seq, "ts": EPOCH_S + self.seq, **event}
        self.events += json.dumps(line).encode() + b"\n"
        self.log += f"{event['kind']} {event['job']}\n".encode()
        if event["kind"] == "end":
            self.alive = False

    def kill(self) -> None:
        """End the agent and its jobs immediately."""
        self.alive = False


INTERPRETER: Mapping[str, object] = {
    "candidate": "python3",
    "path": "/usr/bin/python3",
    "version": "3.11.2",
    "implementation": "cpython",
    "prefix": "/usr",
    "site_paths": ["/usr/lib/python3/dist-packages"],
    "packages": {"pytest": "9.2.0", "torch": "2.13.0"},
    "records": "5e" * 32,
    "pip": "25.0",
    "has_venv": True,
    "error": None,
}
PROBE: Mapping[str, object] = {
    "v": 1,
    "os": "Fake OS 1",
    "kernel": "1.0",
    "machine": "x86_64",
    "libc": ["glibc", "2.36"],
    "hostname": "fake",
    "cpus": 2,
    "cpu_model": "Fake CPU",
    "memory_bytes": 8 * 1024**3,
    "disk_free_bytes": 64 * 1024**3,
    "interpreters": [INTERPRETER],
    "devices": [],
}
READY: tuple[Mapping[str, str], ...] = (
    {"check": "cloud_init", "state": "absent", "detail": "there is no cloud-init"},
    {"check": "apt", "state": "absent", "detail": "there is no dpkg"},
    {"check": "driver", "state": "absent", "detail": "there is no accelerator"},
)


@dataclass(slots=True)
class FakeComputer:
    """The emulated operating system, disk and agents of one machine."""

    script: Script = passing
    """The events of an agent that is started here."""
    lines_per_look: int = 2
    """Number of events that agents write before every call, failed ones included."""
    disk_is_full: bool = False
    probe: dict[str, object] = field(default_factory=lambda: dict(PROBE))
    ready: list[Mapping[str, str]] = field(default_factory=lambda: list(READY))
    """The results of its readiness checks, one per request."""
    shelves: dict[tuple[str, str], bytes] = field(default_factory=dict)
    attempts: dict[str, FakeAttempt] = field(default_factory=dict)
    looks: int = 0
    reachable: bool = True
    dead: bool = False

    def cut(self) -> None:
        """Make the machine unreachable while its processes continue."""
        self.reachable = False

    def heal(self) -> None:
        """Make it reachable again, unless it died."""
        self.reachable = not self.dead

    def kill(self) -> None:
        """Stop the machine with everything on it."""
        self.dead, self.reachable = True, False
        for attempt in self.attempts.values():
            attempt.kill()

    def look(self) -> None:
        """Advance the time on the machine."""
        self.looks += 1
        for attempt in self.attempts.values():
            attempt.advance(self.lines_per_look)


def _jobs(plan: Plan) -> list[dict[str, object]]:
    jobs = plan.get("jobs", ())
    if not isinstance(jobs, list | tuple):
        raise ValueError("the plan's jobs are no list")
    return [dict(job) for job in jobs]


def _event(kind: str, job: str | None, data: Mapping[str, object]) -> Event:
    return {"kind": kind, "job": job, "data": data}


def _report(nodeid: str, when: str) -> dict[str, object]:
    return {
        "record": "report",
        "nodeid": nodeid,
        "when": when,
        "outcome": "passed",
        "duration": 0.001,
        "start": EPOCH_S,
        "stop": EPOCH_S + 0.001,
        "longrepr": None,
        "sections": [],
        "user_properties": [],
        "strict_xpass": False,
    }


def _finished() -> dict[str, object]:
    return {
        "name": "finished",
        "exit_code": 0,
        "signal": None,
        "cause": None,
        "detail": "",
        "duration_s": 0.1,
        "restarts": 0,
    }


AGENT_DIGEST = hashlib.sha256(b"the agent of machines in memory").hexdigest()
NOW_S = 1_767_225_600.0


class FakeWorkspace:
    """Behaves like a real workspace, without a machine."""

    def __init__(self, computer: FakeComputer) -> None:
        self.computer = computer

    def agent_digest(self) -> str:
        """Return the digest that names the agent's folder."""
        return AGENT_DIGEST

    def base(self) -> str:
        """Return the absolute path of the work folder."""
        self._touch()
        return "/fake/.seatrial"

    def python(self) -> str:
        """Return the interpreter that runs the agent."""
        self._touch()
        return "/usr/bin/python3"

    def put_archive(
        self,
        kind: Kind,
        digest: str,
        chunks: Callable[[], Iterable[bytes]],
        *,
        timeout_s: float = 3600.0,
    ) -> bool:
        """Store an archive unless it exists already; return whether it was sent.

        Raises WorkspaceError.
        """
        self._touch()
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise WorkspaceError(f"{digest!r} is no sha256 in lower-case hexadecimal")
        if (kind, digest) in self.computer.shelves:
            return False
        data = b"".join(chunks())
        if self.computer.disk_is_full:
            raise WorkspaceError(f"the archive {digest} was not stored: no space left on device")
        if hashlib.sha256(data).hexdigest() != digest:
            raise WorkspaceError(f"the archive {digest} was not stored: other bytes arrived")
        self.computer.shelves[kind, digest] = data
        return True

    def put_agent(self) -> str:
        """Store the agent; return its digest."""
        self._touch()
        self.computer.shelves.setdefault(("agents", AGENT_DIGEST), b"")
        return AGENT_DIGEST

    def probe(self, candidates: Sequence[str] = ()) -> dict[str, object]:
        """Return the machine's probe; it has every requested interpreter."""
        self._touch()
        found = dict(self.computer.probe)
        if candidates:
            found["interpreters"] = [{**INTERPRETER, "candidate": name} for name in candidates]
        return found

    def ready(self) -> dict[str, object]:
        """Return the machine's readiness checks."""
        self._touch()
        return {"v": 1, "checks": [dict(check) for check in self.computer.ready]}

    def start(
        self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str] | None = None
    ) -> None:
        """Start the agent unless it was started already; the first plan stays."""
        self._touch()
        known = self.computer.attempts.get(attempt)
        if known is not None:
            known.starts += 1
            return
        script = self.computer.script(plan)
        self.computer.attempts[attempt] = FakeAttempt(plan, script, secrets=dict(secrets or {}))

    def pull(
        self, attempt: str, *, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch | None:
        """Return the evidence from the offsets on; None if the machine has no such attempt."""
        self.computer.look()
        self._touch()
        found = self.computer.attempts.get(attempt)
        if found is None:
            return None
        return EvidenceBatch(
            events=bytes(found.events[events_offset:][:limit_bytes]),
            log=bytes(found.log[log_offset:][:limit_bytes]),
            alive=found.alive,
            events_size_bytes=len(found.events),
            log_size_bytes=len(found.log),
            now_s=NOW_S + self.computer.looks,
        )

    def stop(self, attempt: str, reason: str, kill: bool = False) -> None:
        """Request the agent's end, or kill it."""
        self._touch()
        found = self.computer.attempts.get(attempt)
        if found is None or not found.alive:
            return
        if kill:
            found.kill()
        else:
            found.script = iter([ended("stopped", reason)])

    def bundle(self, attempt: str, *, limit_bytes: int = 256 * 1024 * 1024) -> bytes | None:
        """Return the attempt's artifacts as a tar; None if the machine has no such attempt.

        Raises OutputLimitError.
        """
        self._touch()
        found = self.computer.attempts.get(attempt)
        if found is None:
            return None
        data = pack(found.artifacts.items()).data
        if len(data) > limit_bytes:
            raise OutputLimitError(f"the artifacts are larger than {limit_bytes} bytes")
        return data

    def close(self, attempt: str) -> None:
        """End and remove the attempt; a missing attempt is no error."""
        self._touch()
        self.computer.attempts.pop(attempt, None)

    def disconnect(self) -> None:
        """Do nothing: the fake has no connection."""

    def _touch(self) -> None:
        if not self.computer.reachable:
            raise UnreachableError("the machine in memory cannot be reached")
