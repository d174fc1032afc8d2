"""The work folder on a machine, with the archives and the agent in it.

Every verb may be repeated: each handles the files of an interrupted earlier call.
The folders and the agent's verbs are described in ``docs/explanation/architecture.md``.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import tarfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import CommandResult, MachineError, NoSessionError, Shell
from runners.shell.agent_session import (
    AGENT_GONE,
    AgentGoneError,
    AgentSession,
    AgentSessions,
    SessionEndedError,
)
from runners.shell.work_folder import GroundError, WorkFolderFacts, look

AGENT_FOLDER = Path(__file__).parent / "agent"
AGENT_PACKAGE = "seatrial_agent"
ON_PATH = "on_path"


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar file in memory."""

    digest: str
    """sha256 of `data`, in hexadecimal."""
    data: bytes


def pack(files: Iterable[tuple[str, bytes]]) -> Archive:
    """Return an uncompressed tar of (name, content): sorted, with fixed times, owner and mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return Archive(hashlib.sha256(data).hexdigest(), data)


@cache
def agent_archive() -> Archive:
    """Return the agent's archive: its package, and the modules on the jobs' path."""
    return pack(
        (_shipped_name(path), path.read_bytes())
        for path in AGENT_FOLDER.rglob("*.py")
        if "__pycache__" not in path.parts
    )


def _shipped_name(path: Path) -> str:
    inside = PurePosixPath(path.relative_to(AGENT_FOLDER).as_posix())
    return str(inside if inside.parts[0] == ON_PATH else PurePosixPath(AGENT_PACKAGE) / inside)


Kind = Literal["agents", "payloads", "wheels"]

RECEIVER = Path(__file__).with_name("remote_unpack.py")
DEFAULT_PYTHON = "python3"
HEADER_BYTES = 64 * 1024
NO_SUCH_ATTEMPT = 3
MOST_SESSIONS = 3
"""Maximum sessions for one verb: a kept one, one that finds no agent, and a new one."""
CHUNK_BYTES = 256 * 1024
READY_TIMEOUT_S = 120.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class WorkspaceError(MachineError):
    """The agent refused a request; the message gives the reason."""


class PullWakeups(Protocol):
    """Ends the wait before the next pull of an attempt early, when its machine has more."""

    def arm(self, attempt: str) -> None:
        """Expect a call of `wake` for the attempt, before or during the next wait."""
        ...

    def disarm(self, attempt: str) -> None:
        """Stop expecting a call of `wake` for the attempt."""
        ...

    def wake(self, attempt: str) -> None:
        """End the wait, because more can be pulled or the connection ended. Thread-safe."""
        ...


class ShellWorkspace:
    """Ships archives to one machine and calls the agent there. Any thread may use it."""

    def __init__(
        self,
        shell: Shell,
        *,
        base: str | None = None,
        candidates: Sequence[str] = (),
        agent: Archive | None = None,
        wakeups: PullWakeups | None = None,
    ) -> None:
        """Store the settings without contacting the machine.

        Args:
            shell: Runs commands on the machine.
            base: Absolute path of the work folder, which then belongs to the login user; by default
                the machine determines it: ``.seatrial`` in the home folder, or
                ``/var/lib/seatrial`` if the agent is root by its login or by sudo.
            candidates: Interpreters that may run the agent, in order of preference; the machine's
                ``python3`` is tried last.
            agent: The agent to run instead of the one of this program.
            wakeups: Ends the waits between pulls early; by default nothing does.
        """
        self._shell = shell
        self._base = base
        self._candidates = (*candidates, DEFAULT_PYTHON)
        self._agent_archive = agent or agent_archive()
        self._lock = threading.Lock()
        self._known: WorkFolderFacts | None = None
        self._wakeups = wakeups
        self._sessions = AgentSessions(self._new_session)

    def agent_digest(self) -> str:
        """Return the digest that names the agent's folder."""
        return self._agent_archive.digest

    def base(self) -> str:
        """Return the absolute path of the work folder on the machine."""
        return self._ground().base

    def python(self) -> str:
        """Return the agent's interpreter, the first candidate of Python 3.9 or newer."""
        return self._ground().python

    def put_archive(
        self,
        kind: Kind,
        digest: str,
        chunks: Callable[[], Iterable[bytes]],
        *,
        timeout_s: float = 3600.0,
    ) -> bool:
        """Unpack an archive (tar or tar.gz) into its folder, unless it exists already.

        Args:
            kind: The kind, which determines its parent folder.
            digest: sha256 of the archive's bytes; names its folder.
            chunks: Opens the archive and yields its bytes; called only if it must be sent.
            timeout_s: Seconds for the whole upload.

        Returns:
            Whether the archive was sent.

        Raises:
            WorkspaceError: It cannot be unpacked there, or its bytes are not those of `digest`.
                No file is left on the machine.
            ShellError: The machine could not be reached; calling again is safe.
        """
        folder = f"{self.base()}/{kind}/{_digest(digest)}"
        if self._agent("holds", "--folder", folder, may_miss=True).status == 0:
            return False
        self._send(kind, digest, chunks, timeout_s=timeout_s)
        return True

    def _send(
        self,
        kind: Kind,
        digest: str,
        chunks: Callable[[], Iterable[bytes]],
        *,
        timeout_s: float = 3600.0,
    ) -> None:
        """Unpack an archive into its folder unless it exists already. Raises as `put_archive`."""
        shelf = f"{self.base()}/{kind}"
        program = RECEIVER.read_text(encoding="utf-8")
        command = _words("exec", self.python(), "-E", "-s", "-S", "-c", program, shelf, digest)
        try:
            done = self._run(command, stdin=chunks(), timeout_s=timeout_s)
        except NoSessionError:  # sshd's MaxSessions may be 1
            self._sessions.close()
            done = self._run(command, stdin=chunks(), timeout_s=timeout_s)
        if done.status != 0:
            raise WorkspaceError(
                f"the archive {digest} was not stored under {shelf}: {_reason(done)}"
            )

    def put_agent(self) -> str:
        """Ship the agent unless it is there; return its digest. Raises as `put_archive`.

        Any verb ships a missing agent (`_ask`); the cheapest one is `holds`.
        """
        folder = f"{self.base()}/agents/{self.agent_digest()}"
        self._agent("holds", "--folder", folder)
        return self.agent_digest()

    def _put_agent(self) -> None:
        data = memoryview(self._agent_archive.data)

        def chunks() -> Iterable[bytes]:
            for start in range(0, len(data), CHUNK_BYTES):
                yield bytes(data[start : start + CHUNK_BYTES])

        self._send("agents", self.agent_digest(), chunks)

    def probe(self, candidates: Sequence[str] = ()) -> dict[str, object]:
        """Return the machine's interpreters, devices and memory. Raises WorkspaceError."""
        wanted = candidates or self._candidates
        words = [word for name in wanted for word in ("--candidate", name)]
        done = self._agent("probe", *words, timeout_s=120.0)
        found = _json_object(done.stdout, "probe")
        if found.get("v") != 1:
            raise WorkspaceError("the agent's probe is of an unknown version")
        return found

    def ready(self) -> dict[str, object]:
        """Return the machine's readiness: cloud-init, package locks, device drivers.

        Returns immediately ``{"v": 1, "checks": [{"check", "state", "detail"}]}``, where `check`
        is cloud_init, apt or driver and `state` is ok, waiting, failed or absent.

        Raises WorkspaceError.
        """
        found = _json_object(self._agent("ready", timeout_s=READY_TIMEOUT_S).stdout, "ready")
        if found.get("v") != 1 or not isinstance(found.get("checks"), list):
            raise WorkspaceError("the agent's ready is of an unknown version")
        return found

    def start(
        self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str] | None = None
    ) -> None:
        """Store the plan and start the agent, detached, unless it runs or has ended already.

        The first plan that an attempt was given stays. Secrets travel on the standard input
        only and are never stored.
        """
        handed = {"plan": plan, "secrets": dict(secrets or {})}
        text = json.dumps(handed, separators=(",", ":")).encode()
        self._agent("start", "--attempt", self._attempt(attempt), stdin=[text])

    def pull(
        self, attempt: str, *, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch | None:
        """Read the attempt's output from the given offsets on.

        Args:
            attempt: Id of the attempt.
            events_offset: First byte of the events to send.
            log_offset: First byte of the log to send.
            limit_bytes: Maximum bytes of each.

        Returns:
            None if the machine has no such attempt.
        """
        # Armed before the request: the machine may have more before the answer is read here.
        if self._wakeups is not None:
            self._wakeups.arm(attempt)
        is_wakeup_expected = False
        try:
            batch = self._pull(attempt, events_offset, log_offset, limit_bytes)
            is_wakeup_expected = batch is not None and batch.alive
        finally:
            if self._wakeups is not None and not is_wakeup_expected:
                self._wakeups.disarm(attempt)
        return batch

    def _pull(
        self, attempt: str, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch | None:
        done = self._agent(
            "pull",
            *("--attempt", self._attempt(attempt), "--events", str(events_offset)),
            *("--log", str(log_offset), "--limit", str(limit_bytes), "--wake"),
            output_limit_bytes=2 * limit_bytes + HEADER_BYTES,
            may_miss=True,
        )
        return None if done.status == NO_SUCH_ATTEMPT else _pulled(done.stdout, limit_bytes)

    def stop(self, attempt: str, reason: str, kill: bool = False) -> None:
        """Request the end of the attempt's agent; with `kill`, kill it and all its processes."""
        words = ("--attempt", self._attempt(attempt), "--reason", reason)
        self._agent("stop", *words, *(("--kill",) if kill else ()), may_miss=True)

    def bundle(self, attempt: str, *, limit_bytes: int = 256 * 1024 * 1024) -> bytes | None:
        """Return the attempt's artifacts as a tar; None if the machine has no such attempt.

        Raises:
            OutputLimitError: They are larger than `limit_bytes`.
        """
        words = ("--attempt", self._attempt(attempt))
        done = self._agent(
            "bundle", *words, output_limit_bytes=limit_bytes, timeout_s=600.0, may_miss=True
        )
        return None if done.status == NO_SUCH_ATTEMPT else done.stdout

    def close(self, attempt: str) -> None:
        """End the attempt's processes and remove its folder; a missing folder is no error."""
        self._agent("close", "--attempt", self._attempt(attempt), timeout_s=120.0, may_miss=True)

    def disconnect(self) -> None:
        """Close the connection; detached processes keep running. The next call reconnects."""
        self._sessions.close()
        self._shell.close()
        with self._lock:  # the machine may have been replaced before the next connection
            self._known = None

    def _attempt(self, attempt: str) -> str:
        if not _ATTEMPT.fullmatch(attempt):
            raise WorkspaceError(f"{attempt!r} cannot name an attempt's folder")
        return f"{self.base()}/attempts/{attempt}"

    def _agent(
        self,
        verb: str,
        *words: str,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 16 * 1024 * 1024,
        may_miss: bool = False,
    ) -> CommandResult:
        """Run one verb of the agent. Exit code 3 is returned as a result if `may_miss` is true."""
        done = self._ask(verb, words, b"".join(stdin), timeout_s, output_limit_bytes)
        if done.status == 0 or (may_miss and done.status == NO_SUCH_ATTEMPT):
            return done
        raise WorkspaceError(
            f"the agent's {verb} ended with exit code {done.status}: {_reason(done)}"
        )

    def _ask(
        self,
        verb: str,
        words: Sequence[str],
        stdin: bytes,
        timeout_s: float,
        output_limit_bytes: int,
    ) -> CommandResult:
        """Run a verb on the attempt's session; ship a missing agent, replace an ended session."""
        attempt = words[1] if words[:1] == ("--attempt",) else ""
        for _ in range(MOST_SESSIONS):
            session = self._sessions.take(attempt)
            is_used = session.has_asked
            try:
                done = session.ask(
                    [verb, *words],
                    stdin,
                    timeout_s=timeout_s,
                    output_limit_bytes=output_limit_bytes,
                )
            except AgentGoneError:  # it was removed
                session.close()
                self._put_agent()
            except SessionEndedError:
                session.close()
                if not is_used:
                    raise
            except BaseException:
                session.close()
                raise
            else:
                self._sessions.give_back(
                    "" if verb == "close" else attempt,
                    session,
                    on_readable=self._wake_call(attempt) if verb == "pull" else None,
                )
                return done
        raise WorkspaceError(f"the agent's folder is removed as soon as it is sent ({verb})")

    def _wake_call(self, folder: str) -> Callable[[], None] | None:
        wakeups = self._wakeups
        return None if wakeups is None else partial(wakeups.wake, folder.rpartition("/")[2])

    def _new_session(self) -> AgentSession:
        folder = shlex.quote(f"{self.base()}/agents/{self.agent_digest()}")
        serve = _words("exec", self.python(), "-E", "-s", "-S", "-m", AGENT_PACKAGE, "serve")
        script = f"cd {folder} 2>/dev/null || exit {AGENT_GONE}; {serve}"
        return AgentSession(self._shell.open(self._ground().command(script)))

    def _run(
        self,
        script: str,
        *,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 16 * 1024 * 1024,
    ) -> CommandResult:
        """Run a command as the agent's user: the login user, or root by sudo."""
        return self._shell.run(
            self._ground().command(script),
            stdin=stdin,
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
        )

    def _ground(self) -> WorkFolderFacts:
        with self._lock:
            if self._known is None:
                try:
                    self._known = look(self._shell, base=self._base, candidates=self._candidates)
                except GroundError as error:
                    raise WorkspaceError(str(error)) from error
            return self._known


def _words(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _digest(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise WorkspaceError(f"{digest!r} is no sha256 in lower-case hexadecimal")
    return digest


def _reason(done: CommandResult) -> str:
    text = done.stderr.decode(errors="replace").strip()
    return text[-2000:] or f"exit code {done.status} and no output"


def _json_object(data: bytes, what: str) -> dict[str, object]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise WorkspaceError(f"the agent's {what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WorkspaceError(f"the agent's {what} is no JSON object")
    return found


def _pulled(data: bytes, limit_bytes: int) -> EvidenceBatch:
    """Read a pull's header and check that exactly the promised bytes follow it."""
    line, _, rest = data.partition(b"\n")
    header = _json_object(line, "pull")
    events_bytes = _size(header, "events_bytes")
    log_bytes = _size(header, "log_bytes")
    if len(rest) != events_bytes + log_bytes or max(events_bytes, log_bytes) > limit_bytes:
        raise WorkspaceError(
            f"the agent's pull promised {events_bytes} + {log_bytes} bytes of at most "
            f"{limit_bytes} each and sent {len(rest)}"
        )
    now = header.get("now")
    return EvidenceBatch(
        events=rest[:events_bytes],
        log=rest[events_bytes:],
        alive=header.get("alive") is True,
        events_size_bytes=_size(header, "events_size"),
        log_size_bytes=_size(header, "log_size"),
        now_s=float(now) if isinstance(now, int | float) else 0.0,
    )


def _size(header: Mapping[str, object], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WorkspaceError(f"the agent's pull has no usable {name}")
    return value
