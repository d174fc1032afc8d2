"""The verbs of a workspace on a machine in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import UnreachableError
from runners.fake.fake_machine import INTERPRETER, FakeAttempt, FakeComputer, ended
from runners.shell.stdin_feeder import OutputLimitError
from runners.workspace import Kind, WorkspaceError, pack

AGENT_DIGEST = hashlib.sha256(b"the agent of machines in memory").hexdigest()
NOW_S = 1_767_225_600.0


class FakeWorkspace:
    """Answers as a real workspace does, without a machine."""

    def __init__(self, computer: FakeComputer) -> None:
        self.computer = computer

    def agent_digest(self) -> str:
        """The digest that names the agent's folder."""
        return AGENT_DIGEST

    def base(self) -> str:
        """Absolute path of the work folder."""
        self._touch()
        return "/fake/.seatrial"

    def python(self) -> str:
        """The interpreter that runs the agent."""
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
        """Store an archive unless it is there; answers whether it was sent.

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
        """Store the agent; answers with its digest."""
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
        """Read on from the offsets; None if the machine has no such attempt."""
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
        """The attempt's artifacts as a tar; None if the machine has no such attempt.

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
        """End and remove the attempt; gone already is no error."""
        self._touch()
        self.computer.attempts.pop(attempt, None)

    def disconnect(self) -> None:
        """Do nothing: the fake has no connection."""

    def _touch(self) -> None:
        if not self.computer.reachable:
            raise UnreachableError("the machine in memory cannot be reached")
