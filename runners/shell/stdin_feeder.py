"""Streams a command's standard input from a separate thread.

Input and output must be transferred at the same time: a command that writes output before it has
read its input fills the window of one direction, and both sides would wait forever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from orchestrator.domain.machine import CommandResult, CommandTimeoutError, ShellError


class OutputLimitError(ShellError):
    """The command wrote more than the caller allows; it was ended and its output dropped."""


class Deadline:
    """A moment on the monotonic clock after which a call must be over."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds that are left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> bool:
        """Return whether the deadline has passed."""
        return self.left_s() <= 0.0

    def error(self, where: str) -> CommandTimeoutError:
        """Return the error for a command that did not end in time."""
        return CommandTimeoutError(
            f"{where}: the command gave no answer within {self.timeout_s:g} s; "
            "whether it ended is unknown, so look at its effect before repeating it"
        )


class Output:
    """Collects both output streams of a command up to one common bound."""

    def __init__(self, *, limit_bytes: int, where: str) -> None:
        self._limit_bytes = limit_bytes
        self._where = where
        self._stdout: list[bytes] = []
        self._stderr: list[bytes] = []
        self.size_bytes = 0

    def add_stdout(self, data: bytes) -> None:
        """Add a piece of standard output. Raises OutputLimitError."""
        self._add(self._stdout, data)

    def add_stderr(self, data: bytes) -> None:
        """Add a piece of standard error. Raises OutputLimitError."""
        self._add(self._stderr, data)

    def _add(self, pieces: list[bytes], data: bytes) -> None:
        self.size_bytes += len(data)
        if self.size_bytes > self._limit_bytes:
            raise OutputLimitError(
                f"{self._where}: the command wrote more than {self._limit_bytes} bytes "
                "and was ended; ask for less, or raise the limit"
            )
        pieces.append(data)

    def completed(self, status: int) -> CommandResult:
        """Return the exit status with all of stdout and stderr."""
        return CommandResult(status, b"".join(self._stdout), b"".join(self._stderr))


JOIN_S = 1.0
STREAM_ERRORS: tuple[type[Exception], ...] = (OSError, EOFError)
"""Exceptions that a broken stream raises."""


class Feeder:
    """Writes an iterable of bytes to a command, until its end or until the reader is gone."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        write: Callable[[memoryview], int],
        finish: Callable[[], None],
        abandon: Callable[[], None],
        errors: tuple[type[Exception], ...] = STREAM_ERRORS,
    ) -> None:
        """Prepare to feed.

        Args:
            chunks: The input; iterated in the feeding thread.
            write: Writes a part of its argument and returns the number of bytes; 0 when the command
                reads no more. It may raise the errors of a broken stream.
            finish: Closes the command's input.
            abandon: Ends the command when `chunks` failed, as it must not accept incomplete input.
            errors: What `write`, `finish` and `abandon` raise for a broken stream.
        """
        self.sent_bytes = 0
        self.error: BaseException | None = None
        self._chunks = chunks
        self._write = write
        self._finish = finish
        self._abandon = abandon
        self._errors = errors
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to feed; without input, close the command's input immediately."""
        if self._chunks == ():
            self._end(self._finish)
            return
        self._thread = threading.Thread(target=self._feed, name="shell-stdin", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Stop feeding; return False if the thread is blocked in the caller's iterable."""
        self._stopped = True
        if self._thread is None:
            return True
        self._thread.join(timeout=JOIN_S)
        return not self._thread.is_alive()

    def raise_error(self) -> None:
        """Raise the error of the caller's own iterable, if it failed."""
        if self.error is not None:
            raise self.error

    def _feed(self) -> None:
        try:
            for chunk in self._chunks:
                if not self._put(memoryview(chunk)):
                    return
        except BaseException as error:  # noqa: BLE001 - the caller of run() gets it, whatever it is
            self.error = error
            self._end(self._abandon)
        else:
            self._end(self._finish)

    def _put(self, rest: memoryview) -> bool:
        while rest:
            try:
                written = 0 if self._stopped else self._write(rest)
            except self._errors:
                return False
            if written == 0:
                return False
            self.sent_bytes += written
            rest = rest[written:]
        return not self._stopped

    def _end(self, action: Callable[[], None]) -> None:
        try:
            action()
        except self._errors:
            return  # the command has ended already; its status has the reason
