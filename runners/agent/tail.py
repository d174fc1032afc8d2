"""Following a file of JSON lines that somebody else writes, and that cannot be trusted."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import List, Mapping, NoReturn, Optional, Tuple

_PIECE = 4 * 1024 * 1024
_LONGEST_LINE = 64 * 1024 * 1024

Line = Tuple[int, Optional[Mapping[str, object]], str]
"""Line number, the object on it or None, and what is wrong with it."""


class Tail:
    """Reads whole lines from where it stopped; a line not yet complete waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._rest = bytearray()
        self._lines = 0
        self._skipping = False

    def poll(self) -> List[Line]:
        """Return the lines completed since the last look (four MiB of them at most)."""
        if self._fd is None:
            self._fd = open_regular(self._path)
        if self._fd is None:
            return []
        piece = os.read(self._fd, _PIECE)
        if not piece:
            return []
        found = [self._line(bytes(raw)) for raw in self._split(piece)]
        return [line for line in found if line is not None]

    def drain(self) -> List[Line]:
        """Return everything that is left; its writer is gone, so a torn last line is an error."""
        lines: List[Line] = []
        while True:
            before = self._position()
            lines += self.poll()
            if self._position() == before:
                break
        if self._rest:
            self._lines += 1
            lines.append((self._lines, None, "the line is torn"))
            self._rest.clear()
        return lines

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _position(self) -> int:
        return -1 if self._fd is None else os.lseek(self._fd, 0, os.SEEK_CUR)

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
            value = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return self._lines, None, f"not JSON: {error}"
        if not isinstance(value, dict):
            return self._lines, None, "not an object"
        return self._lines, value, ""


def open_regular(path: Path) -> Optional[int]:
    """Open a file for reading if it is a plain one; never follow a link, never wait on a pipe."""
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
