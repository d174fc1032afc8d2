"""The bounds of a command: how long it may take, and how much it may say."""

from __future__ import annotations

import time

from orchestrator.domain.machine import CommandResult, CommandTimeoutError, ShellError


class OutputLimitError(ShellError):
    """The command wrote more than the caller allows; it was ended and its output dropped."""


class Deadline:
    """A moment on the monotonic clock after which a call must be over."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> bool:
        """Whether the call has to end now."""
        return self.left_s() <= 0.0

    def error(self, where: str) -> CommandTimeoutError:
        """The error for a command that did not end in time."""
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
        """Keep a piece of standard output. Raises OutputLimitError."""
        self._add(self._stdout, data)

    def add_stderr(self, data: bytes) -> None:
        """Keep a piece of standard error. Raises OutputLimitError."""
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
        """The command's answer."""
        return CommandResult(status, b"".join(self._stdout), b"".join(self._stderr))
