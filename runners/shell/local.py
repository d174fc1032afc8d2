"""Commands on the computer that the controller runs on."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO

from orchestrator.domain.machine import CommandResult, ConnectionLostError, UnreachableError
from runners.shell.local_account import LocalAccount, kill_below_sudo, started_as
from runners.shell.stdin_feeder import Deadline, Feeder, Output

CHUNK_BYTES = 256 * 1024
POLL_S = 0.5
COMPLAINT_BYTES = 4096


class LocalShell:
    """Runs commands with ``/bin/sh`` here. Has no state, so that any thread may use it."""

    def __init__(self, account: LocalAccount | None = None, *, umask: int = -1) -> None:
        """Create a shell.

        Args:
            account: The account of commands; by default this process's user.
            umask: Their umask; -1 for the umask of this process.
        """
        self._where = socket.gethostname()
        self._account = account
        self._umask = umask

    def run(
        self,
        command: str,
        *,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 64 * 1024 * 1024,
    ) -> CommandResult:
        """Run a POSIX shell command; see the protocol `Shell`.

        Raises:
            CommandTimeoutError: It did not end in time; its process group was killed.
            ConnectionLostError: It was ended by a signal, so it has no exit status.
            OutputLimitError: It wrote more than `output_limit_bytes`; its group was killed.
            UnreachableError: The process could not be started at all.
        """
        deadline = Deadline(timeout_s)
        process = self._start(command)
        feeder = _feeder(process, stdin, abandon=lambda: self._kill(process))
        output = Output(limit_bytes=output_limit_bytes, where=self._where)
        try:
            feeder.start()
            self._drain(process, output, deadline)
            status = self._wait(process, deadline)
        finally:
            self._kill(process)
            _close_streams(process, fed=feeder.stop())
        feeder.raise_error()
        if status < 0:
            raise ConnectionLostError(
                f"{self._where}: the command was ended by signal {-status} and left no exit status"
            )
        return output.completed(status)

    def open(self, command: str, *, timeout_s: float = 60.0) -> LocalConversation:
        """Start a POSIX shell command and leave its input and output open; see `Shell`.

        Raises UnreachableError if the process could not be started.
        """
        del timeout_s  # nothing here waits
        return LocalConversation(self._start(command), where=self._where, kill=self._kill)

    def close(self) -> None:
        """Do nothing: no connection is kept between commands."""

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        words, options = started_as(self._account, command)
        options.setdefault("env", _outside_environment())
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                umask=self._umask,
                **options,
            )
        except OSError as error:
            raise UnreachableError(f"{self._where}: cannot start a process: {error}") from error

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        kill_below_sudo(process.pid, self._account)
        with suppress(PermissionError, ProcessLookupError):  # sudo's, which ends with its command
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _drain(self, process: subprocess.Popen[bytes], output: Output, deadline: Deadline) -> None:
        with selectors.DefaultSelector() as streams:
            streams.register(_stream(process.stdout), selectors.EVENT_READ, output.add_stdout)
            streams.register(_stream(process.stderr), selectors.EVENT_READ, output.add_stderr)
            while streams.get_map():
                for key, _ in streams.select(deadline.left_s()):
                    data = os.read(key.fd, CHUNK_BYTES)
                    key.data(data)
                    if not data:
                        streams.unregister(key.fileobj)
                if deadline.passed():
                    raise deadline.error(self._where)

    def _wait(self, process: subprocess.Popen[bytes], deadline: Deadline) -> int:
        try:
            return process.wait(timeout=deadline.left_s())
        except subprocess.TimeoutExpired:
            raise deadline.error(self._where) from None


class LocalConversation:
    """A running command with open input and output; see `Conversation`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        where: str,
        kill: Callable[[subprocess.Popen[bytes]], None],
    ) -> None:
        """Use a started process; `kill` ends it and its process group."""
        self._process = process
        self._where = where
        self._kill = kill
        self._complaint = b""
        for stream in (process.stdin, process.stderr):
            os.set_blocking(_stream(stream).fileno(), False)

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write to the command's input; see `Conversation`. Raises ConnectionLostError."""
        deadline = Deadline(timeout_s)
        descriptor = _stream(self._process.stdin).fileno()
        rest = memoryview(data)
        while rest:
            if not select.select([], [descriptor], [], deadline.left_s())[1]:
                raise deadline.error(self._where)
            try:
                rest = rest[os.write(descriptor, rest[:CHUNK_BYTES]) :]
            except BrokenPipeError:
                raise ConnectionLostError(
                    f"{self._where}: the command ended before it had read its input"
                ) from None

    def receive(self, *, timeout_s: float) -> bytes:
        """Return the next piece of the command's output; see `Conversation`."""
        deadline = Deadline(timeout_s)
        output = self.fileno()
        self.complaint()  # read, so that the command cannot wait for room
        if not select.select([output], [], [], deadline.left_s())[0]:
            raise deadline.error(self._where)
        return os.read(output, CHUNK_BYTES)

    def status(self) -> int | None:
        """Return the command's exit code; see `Conversation`."""
        try:
            status = self._process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else None

    def complaint(self) -> str:
        """Return the end of the command's standard error; see `Conversation`."""
        stream = _stream(self._process.stderr)
        while piece := stream.read(CHUNK_BYTES):
            self._complaint = (self._complaint + piece)[-COMPLAINT_BYTES:]
        return self._complaint.decode(errors="replace").strip()

    def fileno(self) -> int:
        """Return the descriptor of the command's output; see `Conversation`."""
        return _stream(self._process.stdout).fileno()

    def close(self) -> None:
        """End the command; see `Conversation`."""
        process = self._process
        for stream in (process.stdin, process.stdout, process.stderr):
            _stream(stream).close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=POLL_S)  # most end with their input
        self._kill(process)


def _outside_environment() -> dict[str, str]:
    """Return this process's environment variables, without its virtual environment.

    Jobs must not find Seatrial's interpreter, programs and packages by PATH.
    """
    kept = dict(os.environ)  # noqa: TID251 - what is handed on is no setting of ours
    if sys.prefix == sys.base_prefix:
        return kept
    programs = os.path.realpath(f"{sys.prefix}/bin")
    folders = kept.get("PATH", os.defpath).split(os.pathsep)
    kept["PATH"] = os.pathsep.join(one for one in folders if os.path.realpath(one) != programs)
    if kept.get("VIRTUAL_ENV") == sys.prefix:
        del kept["VIRTUAL_ENV"]
    return kept


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process was started without its three streams")
    return stream


def _feeder(
    process: subprocess.Popen[bytes], chunks: Iterable[bytes], *, abandon: Callable[[], None]
) -> Feeder:
    stream = _stream(process.stdin)
    descriptor = stream.fileno()
    os.set_blocking(descriptor, False)

    def write(data: memoryview) -> int:
        # A blocking write could outlive the command when a process that it left behind holds the
        # other end, so that only writes that cannot block are made.
        while process.poll() is None:
            if select.select([], [descriptor], [], POLL_S)[1]:
                return os.write(descriptor, data[:CHUNK_BYTES])
        return 0

    return Feeder(chunks, write=write, finish=stream.close, abandon=abandon)


def _close_streams(process: subprocess.Popen[bytes], *, fed: bool) -> None:
    _stream(process.stdout).close()
    _stream(process.stderr).close()
    if fed:  # else the feeding thread still knows the descriptor's number, which would be reused
        _stream(process.stdin).close()
