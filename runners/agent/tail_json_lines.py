"""Follow JSON lines in a file or a pipe whose writer is not trusted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn, Optional, Tuple

_PIECE = 4 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024
"""Maximum pipe size for an ordinary user; a suite writes less between two reads."""
_SET_PIPE_SIZE = 1031
"""Linux's F_SETPIPE_SZ, which Python names since 3.10."""
_LONGEST_LINE = 64 * 1024 * 1024

Line = Tuple[int, Optional[Mapping[str, object]], str]
"""Line number, the object on it or None, and its problem."""


class JsonLinesTail:
    """Reads a growing file's complete lines from the end of the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._rest = bytearray()
        self._lines = 0
        self._skipping = False

    def poll(self) -> List[Line]:
        """Return the lines completed since the last call, at most four MiB."""
        return self._lines_of(self._read())

    def drain(self) -> List[Line]:
        """Return the remaining lines. Their writer has ended: an incomplete one is an error."""
        lines: List[Line] = []
        for piece in iter(self._read, b""):
            lines += self._lines_of(piece)
        if self._rest:
            self._lines += 1
            lines.append((self._lines, None, "the line is torn"))
            self._rest.clear()
        return lines

    def create(self) -> None:
        """Create an empty file and keep it open, so that a replacement is detected."""
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    @property
    def lost(self) -> str:
        """Why lines may be missing; empty if nothing indicates that."""
        if self._fd is None:
            return ""
        held = os.fstat(self._fd)
        try:
            there = self._path.lstat()
        except OSError:
            return "was deleted"
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            return "was replaced by another file"
        is_shorter = held.st_size < os.lseek(self._fd, 0, os.SEEK_CUR)
        return "was truncated" if is_shorter else ""

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bytes:
        if self._fd is None:
            self._fd = open_regular(self._path)
        return b"" if self._fd is None else os.read(self._fd, _PIECE)

    def _lines_of(self, piece: bytes) -> List[Line]:
        found = [self._line(bytes(raw)) for raw in self._split(piece)] if piece else []
        return [line for line in found if line is not None]

    def _split(self, piece: bytes) -> List[bytes]:
        first, *others = piece.split(b"\n")
        self._rest += first
        if not others:
            if len(self._rest) > _LONGEST_LINE:
                self._rest.clear()
                self._skipping = True
            return []
        whole = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return whole

    def _line(self, raw: bytes) -> Optional[Line]:
        self._lines += 1
        if self._skipping:
            self._skipping = False
            return self._lines, None, "the line is longer than 64 MiB"
        if not raw.strip():
            return None
        try:
            value = json.loads(
                raw.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_object
            )
        except (ValueError, RecursionError) as error:
            return self._lines, None, f"not JSON: {error}"
        if not isinstance(value, dict):
            return self._lines, None, "not an object"
        return self._lines, value, ""


def _object(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
    """Return the JSON object. Raises ValueError if a key occurs twice."""
    found: Dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r:.80} is there twice")
        found[name] = value
    return found


class PipeTail(JsonLinesTail):
    """Reads from a named pipe that it creates: its writer cannot change what was written."""

    def __init__(self, path: Path, *, mode: int) -> None:
        """Create the pipe and open its reading end.

        Args:
            path: Path in a folder that the writers cannot write to.
            mode: File mode, which determines the writers.
        """
        super().__init__(path)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        path.chmod(mode)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # not Linux, or not allowed: it only holds less
            fcntl.fcntl(self._fd, _SET_PIPE_SIZE, _PIPE_BYTES)

    def close(self) -> None:
        """Close the pipe and remove it."""
        super().close()
        self._path.unlink(missing_ok=True)

    def _read(self) -> bytes:
        if self._fd is None:
            return b""
        try:
            return os.read(self._fd, _PIECE)
        except BlockingIOError:
            return b""


def open_regular(path: Path) -> Optional[int]:
    """Open a regular file for reading; links are not followed, and a pipe is not waited for."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number here")
