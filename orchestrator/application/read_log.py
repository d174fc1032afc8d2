"""Reads logs by line number, searches them, and finds marks, without loading them as a whole."""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from orchestrator.domain.manifest import IDENTIFIER, JOB_KINDS
from orchestrator.domain.terminal_text import plain
from orchestrator.store.attempt_evidence import AttemptLog, LogStore

_JOB = re.compile(
    rf"===== seatrial: ({IDENTIFIER.pattern}) \((?:{'|'.join(JOB_KINDS)})\) =====".encode()
)
_FAILURE = re.compile(
    rb"=+ (?:FAILURES|ERRORS) =+|Traceback \(most recent call last\):|\[FAIL\] .*"
)
_STARTS = (b"=====", b"Traceback (", b"[FAIL] ")
_LONGEST_BYTES = 400
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class LogSection:
    """The lines of a job, beginning with the job's heading."""

    job: str
    first: int
    """Line number, from 1."""
    last: int


class LogMarks:
    """Collects the marks of a log, read piece by piece. At most `_MOST` of each kind are kept."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, str]] = []
        """Line numbers of headings, with their jobs."""
        self.failures: list[int] = []
        """Numbers of lines that a failure begins with."""
        self._ended = 0
        self._open = b""

    def scan(self, piece: bytes) -> None:
        """Read the next piece of the log; it may end within a line."""
        text = self._open + piece
        complete = text.rfind(b"\n") + 1
        for start in _STARTS:
            self._find(text, start, complete)
        self.jobs.sort()
        self.failures.sort()
        self._ended += text.count(b"\n", 0, complete)
        # A longer line gets no mark; its beginning is enough to know that it is too long.
        self._open = text[complete : complete + _LONGEST_BYTES + 1]

    def sections(self, total: int) -> list[LogSection]:
        """Return every job's range of lines, in a log of `total` lines."""
        known = [one for one in self.jobs if one[0] <= total]
        ends = [*(line - 1 for line, _ in known[1:]), total]
        return [LogSection(job, line, ends[at]) for at, (line, job) in enumerate(known)]

    def first_failure(self, total: int, failed: Collection[str]) -> int | None:
        """Return the line that the first failure begins with, or else its job's last one.

        Args:
            total: Number of lines.
            failed: Jobs that did not pass.
        """
        for section in self.sections(total):
            if section.job in failed:
                return _first_within(self.failures, section) or section.last
        return None

    def _find(self, text: bytes, start: bytes, end: int) -> None:
        counted, lines = 0, self._ended
        at = 0 if text.startswith(start) else text.find(b"\n" + start) + 1
        while (at or text.startswith(start)) and at < end:
            lines += text.count(b"\n", counted, at)
            counted = at
            stop = text.find(b"\n", at)
            self._note(text[at:stop].rstrip(b"\r"), lines + 1)
            following = text.find(b"\n" + start, stop)
            if following < 0:
                return
            at = following + 1

    def _note(self, line: bytes, number: int) -> None:
        if len(line) > _LONGEST_BYTES:
            return
        if (job := _JOB.fullmatch(line)) and len(self.jobs) < _MOST:
            self.jobs.append((number, job[1].decode("ascii")))
        elif _FAILURE.fullmatch(line) and len(self.failures) < _MOST:
            self.failures.append(number)


def _first_within(lines: Sequence[int], section: LogSection) -> int | None:
    return next((one for one in lines if section.first <= one <= section.last), None)


PIECE_BYTES = 1024 * 1024
_STEP = 1_000
"""Lines between two marks."""
_MOST_MARKS = 50_000
_BLOCK_BYTES = 16 * 1024
_KEPT = 64
"""Maximum logs with an index in memory."""

Read = Callable[[int, int], bytes]
"""Reads bytes of a log from an offset, up to a limit."""


class LogIndex:
    """Line index of a log: the offset of every n-th line.

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
        self.marks = LogMarks()

    def extend(self, size_bytes: int, read: Read) -> tuple[int, int]:
        """Extend the index to the log's new end.

        Another thread may have indexed more bytes already; these are kept, but do not count in the
        result.

        Returns:
            Number of complete lines within `size_bytes`, and the offset after the last of them.
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
        """Return the mark before a line: its line number and offset."""
        with self._guard:
            at = bisect_right(self._lines, line) - 1
            return self._lines[at], self._offsets[at]

    def block(self, line: int, size_bytes: int) -> tuple[int, int, int]:
        """Return the range of the log to read for a line.

        Returns:
            The number of its first line, the byte offset of that line, and the byte offset of the
            end, at most `size_bytes`.
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
        self.marks.scan(piece)
        self._scanned += len(piece)
        last = piece.rfind(b"\n")
        if last >= 0:
            self._open_from = begin + last + 1
            if self._open_from - self._offsets[-1] >= PIECE_BYTES:
                self._add(self._ended, self._open_from)

    def _mark(self, begin: int, piece: bytes, low: int, high: int, due: int) -> None:
        """Add marks for the lines of a block that are due."""
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
    """Return the number of complete lines before an offset, and the end of the last one."""
    begins_at = offset
    while offset < end and (piece := read(offset, min(PIECE_BYTES, end - offset))):
        line += piece.count(b"\n")
        if (last := piece.rfind(b"\n")) >= 0:
            begins_at = offset + last + 1
        offset += len(piece)
    return line, begins_at


class LogIndexes:
    """Line indexes of recently read logs."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._guard = threading.Lock()
        self._kept = kept
        self._known: OrderedDict[str, LogIndex] = OrderedDict()

    def of(self, attempt_id: str) -> LogIndex:
        """Return the index of a log, empty for a new one."""
        with self._guard:
            index = self._known.setdefault(attempt_id, LogIndex())
            self._known.move_to_end(attempt_id)
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
            return index


KEPT_BYTES = 8 * 1024
"""Maximum bytes read at each end of a long line."""
MOST_LINES = 500
"""Maximum lines per read."""
SEARCHED_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one search call, which keeps it short; callers search on."""
_WINDOW_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, or both ends of a long one."""

    number: int
    """Line number, from 1."""
    head: bytes
    """The line, or the first bytes of a long one, without the line break."""
    tail: bytes
    """Last bytes of a longer line; empty for a complete one."""
    size_bytes: int
    begins_at: int
    """Byte offset of the line in the log."""


@dataclass(frozen=True, slots=True)
class LogSearchResult:
    """Result of a search."""

    line: int | None
    """Number of the found line; None if none was found."""
    reached: int
    """Number of the last line that was searched."""
    is_over: bool
    """Whether the end of the log in this direction was reached."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for literal text within one line."""

    text: str
    ignores_case: bool = True

    def fold(self, text: str) -> str:
        """Fold text for comparison."""
        return text.lower() if self.ignores_case else text


@dataclass(frozen=True, slots=True)
class LogReader:
    """A log with the lines that existed when it was opened."""

    index: LogIndex
    read: Read
    size_bytes: int
    ended: int
    """Number of complete lines."""
    open_from: int
    """Offset after the last complete line."""

    @property
    def has_open_line(self) -> bool:
        """Whether the last line may still grow."""
        return self.open_from < self.size_bytes

    @property
    def total(self) -> int:
        """Number of lines, with an incomplete last one."""
        return self.ended + self.has_open_line

    @property
    def sections(self) -> list[LogSection]:
        """The lines of each job, in their order."""
        return self.index.marks.sections(self.total)

    def lines(self, first: int, count: int) -> list[LogLine]:
        """Return lines from a number on, up to the end of the log."""
        first = max(first, 1)
        last = min(first + min(count, MOST_LINES) - 1, self.total)
        if first > last:
            return []
        wanted = min(last, self.ended)
        found = list(self._ended_lines(first, wanted)) if first <= wanted else []
        if last > self.ended:
            found.append(self._open_line())
        return found

    def find(self, search: Search, *, after: int) -> LogSearchResult:
        """Return the first line after a number that contains the text. Searches a bounded range."""
        if not search.text:
            return LogSearchResult(None, self.total, is_over=True)
        line, begin = self.index.place(max(after, 0))
        for hit, reached, offset in self._hits(search, line, begin, self.size_bytes):
            if hit is not None and hit > after:
                return LogSearchResult(hit, hit, is_over=False)
            if offset - begin >= SEARCHED_BYTES and after < reached < self.total:
                return LogSearchResult(None, reached, is_over=False)
        return LogSearchResult(None, self.total, is_over=True)

    def find_before(self, search: Search, *, before: int) -> LogSearchResult:
        """Return the last line before a number that contains the text."""
        reached, searched = min(before, self.total + 1), 0
        while search.text and reached > 1 and searched < SEARCHED_BYTES:
            line, begin, end = self.index.block(reached - 2, self.size_bytes)
            hits = [one for one, _, _ in self._hits(search, line, begin, end) if one]
            fitting = [hit for hit in hits if hit < reached]
            if fitting:
                return LogSearchResult(fitting[-1], fitting[-1], is_over=False)
            reached, searched = line + 1, searched + end - begin
        return LogSearchResult(None, reached, is_over=reached <= 1 or not search.text)

    def _ended_lines(self, first: int, last: int) -> Iterator[LogLine]:
        line, offset = self.index.place(first - 1)
        pieces = self._pieces(offset, self.open_from, _WINDOW_BYTES)
        return islice(_cut(pieces, line + 1, offset), first - 1 - line, last - line)

    def _open_line(self) -> LogLine:
        """Read the incomplete line's ends, since it may be arbitrarily long."""
        size = self.size_bytes - self.open_from
        if size <= 2 * KEPT_BYTES:
            return _line(self.ended + 1, self.read(self.open_from, size), b"", size, self.open_from)
        head = self.read(self.open_from, KEPT_BYTES)
        tail = self.read(self.size_bytes - KEPT_BYTES, KEPT_BYTES)
        return LogLine(self.ended + 1, head, tail, size, self.open_from)

    def _pieces(self, offset: int, end: int, size: int) -> Iterator[bytes]:
        while offset < end:
            piece = self.read(offset, min(size, end - offset))
            if not piece:
                return
            yield piece
            offset += len(piece)

    def _hits(
        self, search: Search, line: int, offset: int, end: int
    ) -> Iterator[tuple[int | None, int, int]]:
        """Yield a matching line or None, the last searched line, and the offset."""
        number, carried = line + 1, b""
        for piece in self._pieces(offset, end, PIECE_BYTES):
            offset += len(piece)
            ready = carried + piece
            cut = ready.rfind(b"\n") + 1
            # Keep only the end of a line that is longer than a piece: a match may begin there.
            rest = ready[cut:] if cut else ready[-KEPT_BYTES:]
            ready, carried = (ready[:cut] or ready, rest) if offset < end else (ready, b"")
            after = number + ready.count(b"\n")
            for hit in _lines_with(search, ready, number):
                yield hit, hit, offset
            number = after
            yield None, number - 1, offset


@dataclass(slots=True)
class _PartialLine:
    """A line under construction."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    size: int = 0

    def add(self, part: bytes) -> None:
        room = 2 * KEPT_BYTES - len(self.head)
        self.head += part[:room]
        if len(part) > room:
            self.tail = (self.tail + part[max(room, 0) :][-KEPT_BYTES:])[-KEPT_BYTES:]
        self.size += len(part)


def open_log(logs: LogStore, index: LogIndex, log: AttemptLog) -> LogReader:
    """Extend a log's index, and open the log for reading."""

    def read(after: int, limit: int) -> bytes:
        return logs.read(log.attempt_id, after=after, limit=limit)

    ended, open_from = index.extend(log.size_bytes, read)
    return LogReader(index, read, log.size_bytes, ended, open_from)


def raw_pieces(logs: LogStore, log: AttemptLog) -> Iterator[bytes]:
    """Yield the bytes of a log so far."""
    read = partial(logs.read, log.attempt_id)
    for offset in range(0, log.size_bytes, PIECE_BYTES):
        yield read(after=offset, limit=min(PIECE_BYTES, log.size_bytes - offset))


def _cut(pieces: Iterator[bytes], number: int, offset: int) -> Iterator[LogLine]:
    held = _PartialLine()
    for piece in pieces:
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            held.add(piece[begin:end])
            yield _line(number, bytes(held.head), held.tail, held.size, offset)
            number, offset, held = number + 1, offset + held.size + 1, _PartialLine()
            begin = end + 1
        held.add(piece[begin:])


def _line(number: int, head: bytes, tail: bytes, size: int, offset: int) -> LogLine:
    """Return a line; complete where both ends cover it."""
    if size > len(head):
        tail = (head[KEPT_BYTES:] + tail)[-KEPT_BYTES:]
        head = head[:KEPT_BYTES]
    return LogLine(number, head, tail, size, offset)


def _lines_with(search: Search, data: bytes, number: int) -> Iterator[int]:
    """Return the numbers of matching lines in some bytes, the first line being `number`."""
    needle, text = search.fold(search.text), search.fold(_read(data))
    counted, at = 0, text.find(needle)
    while at >= 0:
        number += text.count("\n", counted, at)
        yield number
        counted = text.find("\n", at)
        if counted < 0:
            return
        at = text.find(needle, counted)


def _read(data: bytes) -> str:
    """Return text without colours, and with overwritten parts resolved."""
    text = plain(data.decode("utf-8", "replace"))
    if "\r" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
