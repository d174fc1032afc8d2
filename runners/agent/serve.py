r"""Answers verbs one after the other on one connection, so that each needs no new interpreter.

A request is ``WORDS STDIN_BYTES\n`` and the bytes of its standard input; WORDS is a JSON list, the
verb's command line. An answer is a sequence of frames, ``KIND NUMBER\n``:

- ``out N`` and ``err N``: N bytes of a stream follow.
- ``exit N``: the verb ended with exit code N; the answer is complete.
- ``wake 0``: there is more to pull, or the agent ended. Sent once after a pull with ``--wake``,
  between answers.

The agent of an attempt is another process, which outlives the server.
"""

from __future__ import annotations

import io
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import BinaryIO, Callable, List, NamedTuple, Optional, Tuple

from .layout import AttemptFolder, is_locked

GONE = 75
"""Exit code when the agent's own folder was removed."""
_IDLE_S = 900.0
"""Seconds without a request after which it ends; the controller starts another one."""
_LOOK_S = 0.05
_PAUSE_S = 0.5
"""Minimum seconds between a pull and a `wake` frame for more output."""
_LINE_BYTES = 64 * 1024
_PIECE_BYTES = 256 * 1024

Main = Callable[[List[str]], int]


class PulledPosition(NamedTuple):
    """Position up to which an attempt's evidence was pulled, and the time of the pull."""

    attempt: AttemptFolder
    events_bytes: int
    log_bytes: int
    at_s: float

    def is_behind(self) -> bool:
        """Return whether the agent ended, or wrote more than was pulled."""
        if not is_locked(self.attempt.lock):
            return True
        return time.monotonic() - self.at_s >= _PAUSE_S and (
            _size(self.attempt.events) > self.events_bytes
            or _size(self.attempt.log) > self.log_bytes
        )


def pull(
    attempt: AttemptFolder, out: BinaryIO, *, events_from: int, log_from: int, limit_bytes: int
) -> Optional[PulledPosition]:
    """Write one JSON line, then the new bytes of both files: at most `limit_bytes` of each.

    The line has `v`, `alive`, `events_bytes` and `log_bytes` (what follows), `events_size` and
    `log_size` (the files), and `now` (the machine's clock). Whether the agent is alive is checked
    before the files are read: once it is not, a reader that got all bytes has got all that will
    ever come. While it lives, or if the limit was reached, the events end with a complete line;
    only a line longer than `limit_bytes` is sent in pieces.

    Returns where the next pull begins, or None if the agent was not alive.
    """
    alive = is_locked(attempt.lock)
    events, events_size = _read(attempt.events, events_from, limit_bytes)
    if alive or len(events) == limit_bytes:
        events = _whole_lines(events)
    log, log_size = _read(attempt.log, log_from, limit_bytes)
    header = {
        "v": 1,
        "alive": alive,
        "events_bytes": len(events),
        "log_bytes": len(log),
        "events_size": events_size,
        "log_size": log_size,
        "now": time.time(),
    }
    out.write(json.dumps(header).encode("ascii") + b"\n")
    out.write(events)
    out.write(log)
    out.flush()
    if not alive:
        return None
    ends = events_from + len(events), log_from + len(log)
    return PulledPosition(attempt, *ends, time.monotonic())


def _read(path: Path, offset: int, limit_bytes: int) -> Tuple[bytes, int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b"", 0
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, max(min(limit_bytes, size - offset), 0), offset), size
    finally:
        os.close(fd)


def _whole_lines(data: bytes) -> bytes:
    """Return the complete lines; a line longer than the limit is returned in pieces."""
    end = data.rfind(b"\n")
    return data[: end + 1] if end >= 0 else data


class _Frames(io.RawIOBase):
    """A stream whose writes become frames."""

    def __init__(self, kind: str, target: int) -> None:
        self._kind = kind
        self._target = target

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write one frame."""
        piece = bytes(data)
        if piece:
            send(self._target, self._kind, piece)
        return len(piece)


def send(target: int, kind: str, data: bytes = b"", number: Optional[int] = None) -> None:
    """Write one frame; its number is the size of its data unless another is given."""
    rest = memoryview(f"{kind} {len(data) if number is None else number}\n".encode() + data)
    while rest:
        rest = rest[os.write(target, rest) :]


class Server:
    """Reads requests from one descriptor and writes answers to another."""

    def __init__(self, main: Main, source: int, target: int) -> None:
        self._main = main
        self._source = source
        self._target = target
        self._buffer = b""
        self._position: Optional[PulledPosition] = None

    def run(self) -> int:
        """Answer until the connection ends; returns the exit code."""
        while True:
            line = self._line()
            if line is None:
                return 0
            if not Path(__file__).exists():
                return GONE
            words, _, size = line.rpartition(b" ")
            self._answer(json.loads(words), self._bytes(int(size)))

    def _answer(self, words: List[str], given: bytes) -> None:
        streams = sys.stdin, sys.stdout, sys.stderr
        out, err = self._stream("out"), self._stream("err")
        sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(given)), out, err
        try:
            status = self._status(words)
            out.flush()
            err.flush()
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
        send(self._target, "exit", number=status)

    def _stream(self, kind: str) -> io.TextIOWrapper:
        buffer = io.BufferedWriter(_Frames(kind, self._target), _PIECE_BYTES)  # type: ignore[type-var]
        return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace")

    def _status(self, words: List[str]) -> int:
        try:
            return self._main(words)
        except SystemExit as ending:  # a usage error
            return ending.code if isinstance(ending.code, int) else 2
        except Exception:  # noqa: BLE001 - the next request must be answered
            import traceback  # noqa: PLC0415 - needed by a verb that fails only

            traceback.print_exc()
            return 1

    def wake_later(self, position: PulledPosition) -> None:
        """Send one `wake` frame once the attempt has more than was pulled, or its agent ended."""
        self._position = position

    def _line(self) -> Optional[bytes]:
        """Return the next request's line, or None at the end; send a due `wake` frame meanwhile."""
        end = time.monotonic() + _IDLE_S
        while b"\n" not in self._buffer:
            if self._position is not None and self._position.is_behind():
                self._position = None
                send(self._target, "wake")
            left_s = end - time.monotonic()
            wait_s = left_s if self._position is None else min(left_s, _LOOK_S)
            if left_s <= 0 or len(self._buffer) > _LINE_BYTES:
                return None
            if select.select([self._source], [], [], wait_s)[0] and not self._fill():
                return None
        self._position = None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _bytes(self, size: int) -> bytes:
        while len(self._buffer) < size and self._fill():
            pass
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _fill(self) -> bool:
        piece = os.read(self._source, _PIECE_BYTES)
        self._buffer += piece
        return bool(piece)


_server: Optional[Server] = None


def wake_later(position: PulledPosition) -> None:
    """Send one ``wake`` frame for this attempt later; do nothing in a process that is no server."""
    if _server is not None:
        _server.wake_later(position)


def serve(main: Main) -> int:
    """Answer requests from standard input until its end; returns the exit code."""
    global _server  # noqa: PLW0603 - one connection is one process
    # Nothing that a verb starts can write into an answer, or read a request.
    source, target = os.dup(0), os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(quiet, 1)
    os.close(quiet)
    _server = Server(main, source, target)
    try:
        return _server.run()
    except BrokenPipeError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
