"""A job's masked output, written with size limits, and output that pytest captured.

`on_path` describes how output is captured that pytest has not shown when its process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import time
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Optional, Tuple

from .bounded_process import Account
from .events import EventWriter, write_all
from .evidence_text import Masker, last_lines
from .tail_json_lines import open_regular

_PIPE_BYTES = 1024 * 1024
_SET_PIPE_SIZE = 1031
_TAIL_BYTES = 64 * 1024
_ABOUT_TO_END_S = 0.02


class Sink:
    """An append-only file that stops, and reports it, when the disk is full."""

    def __init__(self, path: Path, events: EventWriter) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._events = events

    def write(self, data: bytes) -> None:
        """Append. Bytes that do not fit on the disk are dropped; an event reports that."""
        if self._events.disk_full:
            return  # the free space is reserved for events
        if write_all(self._fd, data) < len(data):
            self._events.full()

    def close(self) -> None:
        """Sync the file to the disk and close it."""
        with contextlib.suppress(OSError):  # a full disk was reported before
            os.fsync(self._fd)
        os.close(self._fd)


class Tail:
    """The last 64 KiB of a stream."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add a piece of output; keep the last 64 KiB of the stream, or up to twice that."""
        self._kept += data[-_TAIL_BYTES:]
        if len(self._kept) > 2 * _TAIL_BYTES:
            del self._kept[:-_TAIL_BYTES]

    @property
    def raw(self) -> bytes:
        """The last bytes of the stream, at most 64 KiB."""
        return bytes(self._kept[-_TAIL_BYTES:])


class JobOutput:
    """One job's output, from all of its processes."""

    def __init__(
        self,
        job: str,
        *,
        log: Optional[Sink],
        own: Sink,
        limit_bytes: int,
        masker: Masker,
        on_cut: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._job = job
        self._log = log
        self._own = own
        self._limit = limit_bytes
        self._on_cut = on_cut
        self._stream = masker.stream()
        self._shown = 0
        self._unshown = 0
        self._tail = Tail()
        self._process_tail = Tail()
        self._pipe: Optional[int] = None
        self._at_line_start = True

    def open_pipe(self) -> int:
        """Create a pipe for the output of the next process, and return its writing end."""
        self._process_tail = Tail()
        self._pipe, write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        with contextlib.suppress(OSError):  # a smaller pipe only means more looks
            fcntl.fcntl(self._pipe, _SET_PIPE_SIZE, _PIPE_BYTES)
        return write_end

    def pump(self, timeout_s: float) -> bool:
        """Wait for output and forward it; return whether there was any."""
        if self._pipe is None:
            # Its writers are gone, so the process is about to be, if it is not a daemon.
            time.sleep(min(timeout_s, _ABOUT_TO_END_S))
            return False
        if not select.select([self._pipe], [], [], timeout_s)[0]:
            return False
        data = os.read(self._pipe, _PIPE_BYTES)
        if not data:
            self.close_pipe()
            return False
        self.show(self._stream.feed(data))
        return True

    @property
    def open(self) -> bool:
        """Whether the pipe is open, so that a process may still write to it."""
        return self._pipe is not None

    def drain(self, timeout_s: float) -> None:
        """Read the rest of the pipe until its end, for at most `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self.open and time.monotonic() < deadline:
            self.pump(0.05)
        self.close_pipe()
        self.show(self._stream.finish())

    def close_pipe(self) -> None:
        """Close the pipe."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def show(self, data: bytes) -> None:
        """Write as much as the job's limit allows; keep the end of the rest."""
        self._tail.add(data)
        self._process_tail.add(data)
        room = max(self._limit - self._shown, 0)
        now, later = data[:room], data[room:]
        if now:
            self._shown += len(now)
            self._write(now)
        if later:
            self._cut()
            self._unshown += len(later)

    def add(self, pieces: Iterable[bytes]) -> bytes:
        """Append output from a file of a process; return the masked end of that output."""
        tail = Tail()
        for piece in pieces:
            shown = self._stream.feed(piece)
            tail.add(shown)
            self.show(shown)
        rest = self._stream.finish()
        tail.add(rest)
        self.show(rest)
        return tail.raw

    def title(self, text: str) -> None:
        """Write a line of the agent into the log of all jobs only."""
        if self._log is not None:
            self._log.write(_line(text))

    def banner(self, text: str) -> None:
        """Write a line of the agent, regardless of the job's limit."""
        fresh = b"" if self._at_line_start else b"\n"
        self._write(fresh + _line(text))

    def last(self, limit_bytes: int = 4_096) -> str:
        """Return the end of the output of the job's newest process."""
        return last_lines(self._process_tail.raw, limit_bytes)

    def finish(self) -> None:
        """Show the last part of the output that was left out."""
        if not self._unshown:
            return
        shown = self._tail.raw[-min(self._unshown, _TAIL_BYTES) :]
        self.banner(f"{self._unshown - len(shown)} bytes of {self._job} left out, the end follows")
        self._write(shown if shown.endswith(b"\n") else shown + b"\n")

    def _cut(self) -> None:
        if self._unshown:
            return
        text = f"output of {self._job} passed {self._limit} bytes: of the rest only the end is kept"
        self.banner(text)
        self._on_cut(text)

    def _write(self, data: bytes) -> None:
        self._at_line_start = data.endswith(b"\n")
        if self._log is not None:
            self._log.write(data)
        self._own.write(data)


def _line(text: str) -> bytes:
    return f"===== seatrial: {text} =====\n".encode()


Section = Tuple[str, str]
"""Heading and text, as in a report of pytest."""

_PIECE = 1024 * 1024
_MAIN = "main"
_FILES = 64
"""Maximum number of files that are read: one stdout and stderr of each pytest-xdist worker."""


class CapturedOutput:
    """The folder of a suite's captured output."""

    def __init__(self, folder: Path, account: Account) -> None:
        """Prepare.

        Args:
            folder: In a folder that jobs cannot change.
            account: The jobs' user, who owns the folder and its files; None for the agent's own.
        """
        self._folder = folder
        self._account = account

    def begin_process(self) -> None:
        """Empty the folder: a new process of pytest is about to start."""
        self.clear()
        self._folder.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(self._folder, *self._account[:2])

    def clear(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def drain(self, output: JobOutput, limit_bytes: int) -> List[Section]:
        """Append the output files of an ended process to the job's output, masked.

        Args:
            output: Receives the output, up to its own limit.
            limit_bytes: Maximum size of the end of each stream that is returned.

        Returns:
            A section for each stream that is not empty.
        """
        found: List[Section] = []
        for path in sorted(self._folder.glob("*"), key=_order)[:_FILES]:
            fd = open_regular(path)
            if fd is None:
                continue
            with os.fdopen(fd, "rb") as source:
                status = os.fstat(fd)
                # A hard link could lead to a file that only the agent may read.
                if status.st_size and status.st_uid == self._owner():
                    pieces = iter(lambda: source.read(_PIECE), b"")
                    heading = _heading(path.name)
                    found.append((heading, self._move(heading, pieces, output, limit_bytes)))
        self.clear()
        return found

    def _owner(self) -> int:
        return self._account[0] if self._account is not None else os.geteuid()

    @staticmethod
    def _move(heading: str, pieces: Iterator[bytes], output: JobOutput, limit_bytes: int) -> str:
        output.banner(f"{heading}, which pytest had not shown when its process ended")
        return last_lines(output.add(pieces), limit_bytes)


def _order(path: Path) -> Tuple[str, bool]:
    """Return a sort key: by process, stdout before stderr."""
    return path.stem, path.suffix != ".stdout"


def _heading(name: str) -> str:
    """Return pytest's heading for a file, whose name consists of a process and a stream."""
    process, _, stream = name.rpartition(".")
    return f"Captured {stream}" + ("" if process == _MAIN else f" of {process}")
