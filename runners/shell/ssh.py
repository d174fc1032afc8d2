"""Commands on another machine, over SSH."""

from __future__ import annotations

import select
import shlex
import threading
import time
from collections.abc import Callable, Iterable

import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from orchestrator.domain.machine import (
    CommandResult,
    ConnectionLostError,
    NoSessionError,
    ShellError,
    SshEndpoint,
    UnreachableError,
)
from runners.shell.connection import UserKey, connect
from runners.shell.stdin_feeder import STREAM_ERRORS as FILE_ERRORS
from runners.shell.stdin_feeder import Deadline, Feeder, Output

CHUNK_BYTES = 256 * 1024
STREAM_ERRORS: tuple[type[Exception], ...] = (*FILE_ERRORS, SSHException)
PACKET_BYTES = 32 * 1024 - 64
"""Maximum bytes in one packet of OpenSSH; larger pieces would be copied for each packet."""
CHANNELS = 6
"""Commands at one time on one connection; OpenSSH's MaxSessions is 10 by default."""
BUSY_S = 0.05
PROBE_SHARE = 1 / 3
"""Share of the allowed silence in which the machine must answer a probe."""
GRACE_S = 2.0
COMPLAINT_BYTES = 4096


class _GoneError(Exception):
    """The connection was closed before a request was sent to the machine."""


class SshShell:
    """Runs commands over one connection, which is opened and reopened when needed.

    Any thread may use it: every command has a separate channel, at most `CHANNELS` at one time; a
    lock protects only the opening of the connection.
    """

    def __init__(
        self,
        endpoint: SshEndpoint,
        *,
        key: UserKey,
        bastion_key: UserKey | None = None,
        connect_timeout_s: float = 15.0,
        silence_s: float = 30.0,
    ) -> None:
        """Store the settings; no connection is opened yet.

        Args:
            endpoint: The machine and its pinned host key.
            key: The only private key that is offered to the machine.
            bastion_key: The only one that is offered to the endpoint's bastion.
            connect_timeout_s: For connecting, verifying and signing in together.
            silence_s: After this many seconds without data during a command, the machine is probed;
                without an answer the connection is closed.
        """
        self._reach = endpoint
        self._key = key
        self._bastion_key = bastion_key
        self._connect_timeout_s = connect_timeout_s
        self._silence_s = silence_s
        self._where = endpoint.label
        self._lock = threading.Lock()
        self._channels = threading.BoundedSemaphore(CHANNELS)
        self._transport: paramiko.Transport | None = None

    def run(
        self,
        command: str,
        *,
        stdin: Iterable[bytes] = (),
        timeout_s: float = 60.0,
        output_limit_bytes: int = 64 * 1024 * 1024,
    ) -> CommandResult:
        """Run a POSIX shell command; see the protocol `Shell`.

        A connection that turns out to be gone before the command was sent is made again once;
        afterwards nothing is repeated, as the command may have run.

        Raises:
            UnreachableError, HostKeyError, AuthenticationError: No connection; nothing ran.
            NoSessionError: No further session on the connection; nothing ran.
            ConnectionLostError: Cut, silent, or ended without an exit status.
            CommandTimeoutError: Not over within `timeout_s`, connecting included.
            OutputLimitError: It wrote more than `output_limit_bytes`.
        """
        deadline = Deadline(timeout_s)
        if not self._channels.acquire(timeout=timeout_s):
            raise deadline.error(self._where)
        try:
            channel = self._open(deadline)
            output = Output(limit_bytes=output_limit_bytes, where=self._where)
            call = _Call(channel, output, deadline, where=self._where, silence_s=self._silence_s)
            return call.run(command, stdin)
        finally:
            self._channels.release()

    def open(self, command: str, *, timeout_s: float = 60.0) -> SshConversation:
        """Start a POSIX shell command and leave its input and output open; see `Shell`.

        It occupies one of the connection's channels until it is closed. Raises as `run`.
        """
        deadline = Deadline(timeout_s)
        if not self._channels.acquire(timeout=timeout_s):
            raise deadline.error(self._where)
        try:
            channel = self._open(deadline)
            return SshConversation(
                channel,
                command,
                deadline,
                where=self._where,
                silence_s=self._silence_s,
                closed=self._channels.release,
            )
        except BaseException:
            self._channels.release()
            raise

    def close(self) -> None:
        """Drop the connection; a later `run` makes a new one."""
        with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _open(self, deadline: Deadline) -> paramiko.Channel:
        """Return a channel, on a new connection if the old one turns out to be gone."""
        try:
            return self._session(self._connected(deadline), deadline)
        except _GoneError:
            pass
        try:
            return self._session(self._connected(deadline), deadline)
        except _GoneError as error:
            raise UnreachableError(
                f"{self._where}: connected, but no session opens ({error})"
            ) from error

    def _session(self, transport: paramiko.Transport, deadline: Deadline) -> paramiko.Channel:
        patience = Deadline(self._patience_s(deadline))
        while True:
            try:
                return transport.open_session(timeout=max(0.1, patience.left_s()))
            except ChannelException as error:
                # The server counts a session until it has collected its process, a little longer
                # than the command lasts for us.
                if patience.passed():
                    raise NoSessionError(
                        f"{self._where}: the machine refuses another session ({error.text}); "
                        "raise MaxSessions in its sshd_config"
                    ) from error
                threading.Event().wait(BUSY_S)
            except STREAM_ERRORS as error:
                self._drop(transport)
                raise _GoneError(str(error)) from error

    def _connected(self, deadline: Deadline) -> paramiko.Transport:
        if not self._lock.acquire(timeout=deadline.left_s()):
            raise deadline.error(self._where)
        try:
            if self._transport is None or not self._transport.is_active():
                self._transport = None
                timeout_s = self._patience_s(deadline)
                self._transport = connect(
                    self._reach,
                    key=self._key,
                    bastion_key=self._bastion_key,
                    timeout_s=timeout_s,
                )
            return self._transport
        finally:
            self._lock.release()

    def _patience_s(self, deadline: Deadline) -> float:
        return max(0.1, min(self._connect_timeout_s, deadline.left_s()))

    def _drop(self, transport: paramiko.Transport) -> None:
        with self._lock:
            if self._transport is transport:
                self._transport = None
        transport.close()


class _Session:
    """A channel in which one command runs."""

    def __init__(self, channel: paramiko.Channel, *, where: str, silence_s: float) -> None:
        self._channel = channel
        self._transport = channel.get_transport()
        self._where = where
        self._silence_s = silence_s

    def _watchdog(self, deadline: Deadline) -> threading.Timer:
        """Close the connection after the deadline, unless it is cancelled before.

        The library waits without a bound for some replies and for room in the socket; closing the
        connection is the one thing that ends every such wait.
        """
        watchdog = threading.Timer(deadline.left_s() + GRACE_S, self._transport.close)
        watchdog.daemon = True
        watchdog.start()
        return watchdog

    def _start(self, command: str) -> None:
        # The account's own shell may be none of POSIX's.
        self._channel.exec_command(f"exec /bin/sh -c {shlex.quote(command)}")

    def _over(self) -> bool:
        heard = self._channel.eof_received and self._channel.status_event.is_set()
        return heard or self._channel.closed

    def _await(self, poller: select.poll, wait_s: float) -> None:
        """Wait for output, or after its end for the exit status."""
        if self._channel.eof_received:
            self._channel.status_event.wait(wait_s)
        else:
            poller.poll(1000 * wait_s)

    def _demand_answer(self, deadline: Deadline) -> None:
        """Request any answer from the machine. Raises ConnectionLostError without one."""
        answered = threading.Event()
        patience_s = max(1.0, self._silence_s * PROBE_SHARE)

        def ask() -> None:
            try:
                self._transport.open_session(timeout=patience_s).close()
            except ChannelException:
                pass  # a refusal is an answer too
            except STREAM_ERRORS:
                return
            answered.set()

        # In a thread, as asking blocks without a bound when the socket takes no more.
        threading.Thread(target=ask, name="ssh-alive", daemon=True).start()
        if answered.wait(min(patience_s, deadline.left_s() + GRACE_S)):
            return
        self._transport.close()
        if deadline.passed():
            raise deadline.error(self._where)
        raise ConnectionLostError(
            f"{self._where}: the machine fell silent during a command; whether that ended is "
            "unknown, so attach again"
        )

    def _close(self) -> None:
        if not self._transport.is_active():
            return
        try:
            self._channel.close()
        except STREAM_ERRORS:
            return  # the connection went first

    def _broken(self, error: Exception, deadline: Deadline) -> ShellError:
        if deadline.passed():
            return deadline.error(self._where)
        return ConnectionLostError(
            f"{self._where}: the connection broke in the middle of a command "
            f"({error or type(error).__name__}); whether it ended is unknown, so attach again"
        )


class _Call(_Session):
    """One command on one channel."""

    def __init__(
        self,
        channel: paramiko.Channel,
        output: Output,
        deadline: Deadline,
        *,
        where: str,
        silence_s: float,
    ) -> None:
        super().__init__(channel, where=where, silence_s=silence_s)
        self._output = output
        self._deadline = deadline

    def run(self, command: str, stdin: Iterable[bytes]) -> CommandResult:
        """Run it to its end, within the deadline even if the peer sends nothing."""
        watchdog = self._watchdog(self._deadline)
        feeder = self._feeder(stdin)
        try:
            self._start(command)
            feeder.start()
            self._drain(feeder)
        except STREAM_ERRORS as error:
            raise self._broken(error, self._deadline) from error
        finally:
            self._close()
            feeder.stop()
            watchdog.cancel()
        feeder.raise_error()
        return self._completed()

    def _feeder(self, stdin: Iterable[bytes]) -> Feeder:
        def write(data: memoryview) -> int:
            return self._channel.send(bytes(data[:PACKET_BYTES]))

        return Feeder(
            stdin,
            write=write,
            finish=self._channel.shutdown_write,
            abandon=self._channel.close,
            errors=STREAM_ERRORS,
        )

    def _drain(self, feeder: Feeder) -> None:
        """Read the output until its end and until the exit status, which may follow later."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        alive_at = time.monotonic()
        seen = -1
        while True:
            over = self._over()
            if not self._take() and over:
                return
            if self._deadline.passed():
                raise self._deadline.error(self._where)
            moved = self._output.size_bytes + feeder.sent_bytes
            if moved != seen:
                seen, alive_at = moved, time.monotonic()
            elif time.monotonic() - alive_at >= self._silence_s:
                self._demand_answer(self._deadline)
                alive_at = time.monotonic()
            if not over:
                self._await(poller, min(self._deadline.left_s(), self._silence_s))

    def _take(self) -> bool:
        taken = self._output.size_bytes
        while self._channel.recv_ready():
            self._output.add_stdout(self._channel.recv(CHUNK_BYTES))
        while self._channel.recv_stderr_ready():
            self._output.add_stderr(self._channel.recv_stderr(CHUNK_BYTES))
        return self._output.size_bytes > taken

    def _completed(self) -> CommandResult:
        # The library's -1 means "never heard of it", never a status. Without the end of its
        # output a status could stand beside half an answer.
        status = self._channel.exit_status
        if status >= 0 and self._channel.eof_received:
            return self._output.completed(status)
        if self._transport.is_active():
            raise ConnectionLostError(
                f"{self._where}: the command left no exit status, so a signal ended it or its "
                "server; attach again to see which"
            )
        raise self._broken(SSHException("the machine closed it"), self._deadline)


class SshConversation(_Session):
    """A running command with open input and output; see the protocol `Conversation`."""

    def __init__(
        self,
        channel: paramiko.Channel,
        command: str,
        deadline: Deadline,
        *,
        where: str,
        silence_s: float,
        closed: Callable[[], None],
    ) -> None:
        """Start the command; `closed` is called once, when the conversation is closed."""
        super().__init__(channel, where=where, silence_s=silence_s)
        self._closed = closed
        self._complaint = b""
        self._is_closed = False
        watchdog = self._watchdog(deadline)
        try:
            self._start(command)
        except STREAM_ERRORS as error:
            raise self._broken(error, deadline) from error
        finally:
            watchdog.cancel()

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write to the command's input; see `Conversation`."""
        deadline = Deadline(timeout_s)
        watchdog = self._watchdog(deadline)
        try:
            for at in range(0, len(data), PACKET_BYTES):
                self._channel.sendall(data[at : at + PACKET_BYTES])
        except STREAM_ERRORS as error:
            raise self._broken(error, deadline) from error
        finally:
            watchdog.cancel()

    def receive(self, *, timeout_s: float) -> bytes:
        """Return the next piece of the command's output; see `Conversation`."""
        deadline = Deadline(timeout_s)
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        alive_at = time.monotonic()
        try:
            while True:
                over = self._over()
                while self._channel.recv_stderr_ready():
                    self._complain(self._channel.recv_stderr(CHUNK_BYTES))
                if self._channel.recv_ready():
                    return self._channel.recv(CHUNK_BYTES)
                if over:
                    return b""
                if deadline.passed():
                    raise deadline.error(self._where)
                if time.monotonic() - alive_at >= self._silence_s:
                    self._demand_answer(deadline)
                    alive_at = time.monotonic()
                self._await(poller, min(deadline.left_s(), self._silence_s))
        except STREAM_ERRORS as error:
            raise self._broken(error, deadline) from error

    def _complain(self, data: bytes) -> None:
        self._complaint = (self._complaint + data)[-COMPLAINT_BYTES:]

    def status(self) -> int | None:
        """Return the command's exit code; see `Conversation`."""
        status = self._channel.exit_status if self._over() else -1
        return status if status >= 0 else None

    def complaint(self) -> str:
        """Return the end of the command's standard error; see `Conversation`."""
        return self._complaint.decode(errors="replace").strip()

    def fileno(self) -> int:
        """Return a descriptor that is readable once output is available; see `Conversation`."""
        return self._channel.fileno()

    def close(self) -> None:
        """Close the channel, which ends the command. Closing it twice is no error."""
        if not self._is_closed:
            self._is_closed = True
            self._close()
            self._closed()
