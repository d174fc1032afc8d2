"""Connections to the agent's ``serve``, which answers one verb after the other.

One thread waits for bytes on all connections.
"""

from __future__ import annotations

import json
import selectors
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from orchestrator.domain.machine import CommandResult, ConnectionLostError, Conversation
from runners.shell.stdin_feeder import Deadline, Output


class ReadinessCallbacks:
    """Calls back when a descriptor becomes readable; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call `call` once, from another thread, when the descriptor is readable."""
        with self._lock:
            self._drop(descriptor)
            self._calls[descriptor] = call
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._wait, name="readiness-callbacks", daemon=True
                )
                self._thread.start()

    def remove(self, descriptor: int) -> Callable[[], None] | None:
        """Stop watching the descriptor, which may be closed then; return its pending call."""
        with self._lock:
            return self._drop(descriptor)

    def _drop(self, descriptor: int) -> Callable[[], None] | None:
        call = self._calls.pop(descriptor, None)
        if call is not None:
            self._selector.unregister(descriptor)
        return call

    def _wait(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with self._lock:
                    call = self._drop(key.fd)
                if call is not None:
                    call()


AGENT_GONE = 75
"""Exit code if the agent's folder does not exist."""
_HEADER_BYTES = 64
READINESS = ReadinessCallbacks()
"""Readiness callbacks for the sessions of all machines, from one thread."""


class AgentGoneError(Exception):
    """The agent's folder is not on the machine."""


class SessionEndedError(ConnectionLostError):
    """The session had ended before a request was sent."""


class AgentSession:
    """Sends verbs to the agent over one conversation. One thread uses it at a time."""

    def __init__(self, conversation: Conversation) -> None:
        """Take over a conversation with a command that becomes ``serve``."""
        self._conversation = conversation
        self._received = bytearray()
        self.has_asked = False

    def ask(
        self, words: Sequence[str], stdin: bytes, *, timeout_s: float, output_limit_bytes: int
    ) -> CommandResult:
        """Run one verb and return its answer; after any error the session is unusable.

        Raises:
            AgentGoneError: The agent's folder is not there; nothing ran.
            SessionEndedError: The session ended before it answered anything.
            ConnectionLostError, CommandTimeoutError: As the conversation.
            OutputLimitError: The answer is larger than `output_limit_bytes`.
        """
        deadline = Deadline(timeout_s)
        request = f"{json.dumps(list(words))} {len(stdin)}\n".encode() + stdin
        output = Output(limit_bytes=output_limit_bytes, where="the agent's answer")
        self.has_asked = True
        with suppress(ConnectionLostError):  # its end, which is received, says why
            self._conversation.send(request, timeout_s=timeout_s)
        while True:
            kind, number = self._header(deadline, begun=output.size_bytes > 0)
            if kind == "exit":
                return output.completed(number)
            if kind == "out":
                self._copy(number, output.add_stdout, deadline)
            elif kind == "err":
                self._copy(number, output.add_stderr, deadline)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a `wake` frame or the session's end."""
        return self._conversation.fileno()

    def close(self) -> None:
        """End the session; the attempts' agents keep running."""
        self._conversation.close()

    def _header(self, deadline: Deadline, *, begun: bool) -> tuple[str, int]:
        while b"\n" not in self._received:
            if len(self._received) > _HEADER_BYTES:
                raise ConnectionLostError("the agent's session sent something that is no answer")
            self._fill(deadline, begun=begun)
        end = self._received.index(b"\n")
        kind, _, number = self._received[:end].decode("ascii", "replace").partition(" ")
        del self._received[: end + 1]
        if kind not in ("out", "err", "exit", "wake") or not number.isdecimal():
            raise ConnectionLostError("the agent's session sent something that is no answer")
        return kind, int(number)

    def _copy(self, size: int, add: Callable[[bytes], None], deadline: Deadline) -> None:
        left = size
        while left:
            if not self._received:
                self._fill(deadline, begun=True)
            piece = bytes(self._received[:left])
            del self._received[:left]
            left -= len(piece)
            add(piece)

    def _fill(self, deadline: Deadline, *, begun: bool) -> None:
        piece = self._conversation.receive(timeout_s=deadline.left_s())
        if piece:
            self._received += piece
            return
        status, said = self._conversation.status(), self._conversation.complaint()
        if status == AGENT_GONE and not begun:
            raise AgentGoneError
        why = said[-2000:] or ("without an exit code" if status is None else f"exit code {status}")
        error = ConnectionLostError if begun else SessionEndedError
        raise error(f"the agent's session ended before it answered ({why}); attach again")


class AgentSessions:
    """The sessions of one machine: one for each attempt in use, and a spare one.

    A verb takes a session for exclusive use and gives it back; two verbs at one time use two.
    """

    def __init__(self, start: Callable[[], AgentSession]) -> None:
        """Store `start`, which opens a new session."""
        self._start = start
        self._lock = threading.Lock()
        self._kept: dict[str, AgentSession] = {}

    def take(self, attempt: str) -> AgentSession:
        """Return the attempt's session, else the spare one, else a new one."""
        with self._lock:
            session = self._kept.pop(attempt, None) or self._kept.pop("", None)
        if session is None:
            return self._start()
        READINESS.remove(session.fileno())
        return session

    def give_back(
        self, attempt: str, session: AgentSession, *, on_readable: Callable[[], None] | None = None
    ) -> None:
        """Keep the session for the attempt's next verb.

        Args:
            attempt: Whose it is; "" for a spare one.
            session: One without an open question.
            on_readable: Called once when bytes arrive on the session, or it ends.
        """
        with self._lock:
            if self._kept.setdefault(attempt, session) is session:
                if on_readable is not None:
                    READINESS.add(session.fileno(), on_readable)
                return
        session.close()

    def close(self) -> None:
        """End all sessions that no verb uses now; call the callbacks of those that had one."""
        with self._lock:
            sessions = list(self._kept.values())
            self._kept.clear()
        for session in sessions:
            on_readable = READINESS.remove(session.fileno())
            session.close()
            if on_readable is not None:
                on_readable()
