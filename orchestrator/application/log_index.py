"""Where the lines of a log begin, by their numbers, so that any of a million is found at once.

A log is scanned once, and from then on only what was added to it. The indexes are kept within the
process, those that were asked for last.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable

PIECE_BYTES = 1024 * 1024
_STEP = 1_000
"""Lines between two marks."""
_MOST_MARKS = 50_000
_BLOCK_BYTES = 16 * 1024
_KEPT = 64
"""So many logs are remembered."""

Read = Callable[[int, int], bytes]
"""Bytes of a log, from an offset, at most so many."""


class LogIndex:
    """Marks in one log: every so many lines, the offset at which one begins.

    Lines are counted from 0 here. A mark is also set after every piece of long lines, so that
    little is read between two marks.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._lines = array("Q", [0])
        self._offsets = array("Q", [0])
        self._step = _STEP
        self._scanned = 0
        self._ended = 0
        self._open_from = 0

    def extend(self, size_bytes: int, read: Read) -> tuple[int, int]:
        """Take in what the log has grown by.

        Others may know of more by now: what is told is of so many bytes, and what they scanned
        stays.

        Returns:
            How many lines have ended within them, and the offset after the last of these.
        """
        with self._guard:
            if size_bytes < self._scanned and not read(self._scanned - 1, 1):
                self._forget()  # another log of the same name, as after a restored backup
            while self._scanned < size_bytes:
                piece = read(self._scanned, min(PIECE_BYTES, size_bytes - self._scanned))
                if not piece:
                    break
                self._scan(piece)
            if size_bytes >= self._open_from:
                return self._ended, self._open_from
            at = bisect_right(self._offsets, size_bytes) - 1
            line, offset = self._lines[at], self._offsets[at]
        return _count(line, offset, size_bytes, read)

    def place(self, line: int) -> tuple[int, int]:
        """The mark before a line: which line it is, and its offset."""
        with self._guard:
            at = bisect_right(self._lines, line) - 1
            return self._lines[at], self._offsets[at]

    def block(self, line: int, size_bytes: int) -> tuple[int, int, int]:
        """A stretch of the log that a line is in and that is worth reading at once.

        Returns:
            The mark that it begins at, its offset, and the offset of the mark that it ends at, or
            the size where that is less.
        """
        with self._guard:
            at = bisect_right(self._lines, line)
            end = size_bytes if at == len(self._lines) else min(size_bytes, self._offsets[at])
            first = bisect_left(self._offsets, max(0, end - PIECE_BYTES), 0, at - 1)
            return self._lines[first], self._offsets[first], end

    def _scan(self, piece: bytes) -> None:
        begin = self._scanned
        for low in range(0, len(piece), _BLOCK_BYTES):
            high = min(low + _BLOCK_BYTES, len(piece))
            ends = piece.count(b"\n", low, high)
            due = self._lines[-1] + self._step
            if self._ended + ends >= due:
                self._mark(begin, piece, low, high, due)
            self._ended += ends
        self._scanned += len(piece)
        last = piece.rfind(b"\n")
        if last >= 0:
            self._open_from = begin + last + 1
            if self._open_from - self._offsets[-1] >= PIECE_BYTES:
                self._add(self._ended, self._open_from)

    def _mark(self, begin: int, piece: bytes, low: int, high: int, due: int) -> None:
        """Find the line that is to be marked within a block."""
        ended, at = self._ended, low
        while (at := piece.find(b"\n", at, high) + 1) > 0:
            ended += 1
            if ended == due:
                self._add(ended, begin + at)
                due += self._step

    def _add(self, line: int, offset: int) -> None:
        self._lines.append(line)
        self._offsets.append(offset)
        if len(self._lines) > _MOST_MARKS:
            self._lines, self._offsets = self._lines[::2], self._offsets[::2]
            self._step *= 2


def _count(line: int, offset: int, end: int, read: Read) -> tuple[int, int]:
    """How many lines have ended before an offset, and where the last did, told from a mark on."""
    begins_at = offset
    while offset < end and (piece := read(offset, min(PIECE_BYTES, end - offset))):
        line += piece.count(b"\n")
        if (last := piece.rfind(b"\n")) >= 0:
            begins_at = offset + last + 1
        offset += len(piece)
    return line, begins_at


class LogIndexes:
    """The indexes of the logs that were looked at last."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._guard = threading.Lock()
        self._kept = kept
        self._known: OrderedDict[str, LogIndex] = OrderedDict()

    def of(self, attempt_id: str) -> LogIndex:
        """The index of a log; an empty one where it was not looked at."""
        with self._guard:
            index = self._known.setdefault(attempt_id, LogIndex())
            self._known.move_to_end(attempt_id)
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
            return index
