"""Several readers of one log that grows, each with the size that it knows of, and one index.

Whatever the others do meanwhile, each finds what a plain scan of its own bytes finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application import read_log
from orchestrator.application.read_log import (
    MOST_LINES,
    LogIndex,
    LogIndexes,
    LogLine,
    LogReader,
    Search,
    open_log,
)
from orchestrator.store.attempt_evidence import AttemptLog

NEEDLE = Search("needle")
WORDS = [b"", b"a", b"needle", b"nee", b"dle", b"\x1b[1mnee\x1b[0mdle", b"x" * 40, "é".encode()]
ENDS = [b"", b"\n", b"\n", b"\n\n"]


@dataclass
class Growing:
    """A log of which more may be there than a reader knows of."""

    data: bytes = b""
    read_bytes: int = 0
    meanwhile: Callable[[], object] = field(default=lambda: None)
    """Happens before each read."""

    def of_cell(self, cell_id: str) -> list[AttemptLog]:
        return [self.log(len(self.data))]

    def read(self, attempt_id: str, *, after: int, limit: int) -> bytes:
        self.meanwhile()
        piece = self.data[after : after + limit]
        self.read_bytes += len(piece)
        return piece

    def log(self, size: int) -> AttemptLog:
        return AttemptLog("a-1", 1, size, is_over=False)

    def reader(self, index: LogIndex, size: int | None = None) -> LogReader:
        return open_log(self, index, self.log(len(self.data) if size is None else size))


def shrink(patch: pytest.MonkeyPatch, piece: int = 23, searched: int = 40) -> None:
    """Few marks, close together; pieces that cut lines, and hits, in two."""
    patch.setattr(read_log, "_STEP", 3)
    patch.setattr(read_log, "_MOST_MARKS", 8)
    patch.setattr(read_log, "_BLOCK_BYTES", 7)
    for module in (read_log, read_log):
        patch.setattr(module, "PIECE_BYTES", piece)
    patch.setattr(read_log, "_WINDOW_BYTES", 11)
    patch.setattr(read_log, "KEPT_BYTES", 16)
    patch.setattr(read_log, "SEARCHED_BYTES", searched)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def as_read(number: int, line: bytes, begins_at: int) -> LogLine:
    kept = read_log.KEPT_BYTES
    head, tail = (line, b"") if len(line) <= 2 * kept else (line[:kept], line[-kept:])
    return LogLine(number, head, tail, len(line), begins_at)


def scanned(data: bytes) -> list[LogLine]:
    found, offset = [], 0
    for number, line in enumerate(lines_of(data), 1):
        found.append(as_read(number, line, offset))
        offset += len(line) + 1
    return found


def hits_in(data: bytes) -> list[int]:
    plain = data.replace(b"\x1b[1m", b"").replace(b"\x1b[0m", b"")
    return [number for number, line in enumerate(lines_of(plain), 1) if b"needle" in line]


def following(reader: LogReader, after: int) -> int | None:
    """Asks again, as long as there is something to search."""
    while True:
        found = reader.find(NEEDLE, after=after)
        if found.line is not None or found.is_over:
            return found.line
        assert found.reached > after
        after = found.reached


def preceding(reader: LogReader, before: int) -> int | None:
    while True:
        found = reader.find_before(NEEDLE, before=before)
        if found.line is not None or found.is_over:
            return found.line
        assert found.reached < before
        before = found.reached


def check(reader: LogReader, data: bytes, at: int) -> None:
    """As a plain scan of the reader's own bytes has it; `at` is where one looks."""
    lines, hits = scanned(data), hits_in(data)
    assert (reader.total, reader.size_bytes) == (len(lines), len(data))
    assert reader.has_open_line == (data != b"" and not data.endswith(b"\n"))
    at %= 2 * len(lines) + 2
    assert reader.lines(at, 7) == lines[max(at, 1) - 1 : max(at, 1) + 6]
    assert following(reader, at) == next((n for n in hits if n > at), None)
    assert preceding(reader, at) == next((n for n in reversed(hits) if n < at), None)


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(ENDS)), max_size=8),
        st.just(1.0) | st.floats(0, 1),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=10,
)


@given(steps=STEPS, piece=st.integers(16, 64), searched=st.integers(1, 100))
def test_each_reader_finds_what_is_in_its_own_bytes(steps, piece, searched):
    logs, index, readers = Growing(), LogIndex(), []
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, piece, searched)
        for added, share, at in steps:
            logs.data += b"".join(word + end for word, end in added)
            readers.append(logs.reader(index, round(share * len(logs.data))))
            for reader in readers:
                check(reader, logs.data[: reader.size_bytes], at)


NUMBERED = [b"line %d\n" % number for number in range(1, 100_001)]


def test_an_older_size_costs_the_others_nothing():
    lines = list(NUMBERED)
    lines[49_999] = b"needle\n"
    logs, index = Growing(b"".join(lines)), LogIndex()
    newer = logs.reader(index)
    older = logs.reader(index, len(b"".join(lines[:1_000])))
    assert (older.total, older.has_open_line) == (1_000, False)
    assert [line.head for line in older.lines(999, 9)] == [b"line 999", b"line 1000"]
    assert preceding(older, 1_001) is None
    assert preceding(newer, newer.total + 1) == 50_000
    logs.read_bytes = 0
    assert logs.reader(index).total == 100_000
    assert logs.read_bytes == 0


def test_an_older_size_is_counted_from_the_mark_before_it():
    logs, index = Growing(b"".join(NUMBERED)), LogIndex()
    logs.reader(index)
    logs.read_bytes = 0
    older = logs.reader(index, len(b"".join(NUMBERED[:70_500])) + 3)
    assert (older.total, older.ended, older.has_open_line) == (70_501, 70_500, True)
    assert [line.head for line in older.lines(70_500, 9)] == [b"line 70500", b"lin"]
    assert logs.read_bytes < 50_000


def test_within_a_line_that_has_not_ended_nothing_is_counted():
    logs, index = Growing(b"one\n" + b"." * 3_000_000), LogIndex()
    logs.reader(index)
    logs.read_bytes = 0
    assert logs.reader(index, 2_000_000).total == 2
    assert logs.read_bytes <= 1


@pytest.mark.usefixtures("small")
def test_the_search_backwards_begins_at_the_end_that_its_reader_knows():
    logs, index = Growing(b"needle one\n" * 3), LogIndex()
    older = logs.reader(index)
    logs.data += b"needle two\n" * 30
    logs.reader(index)
    logs.read_bytes = 0
    assert older.find_before(NEEDLE, before=older.total + 1).line == 3
    assert logs.read_bytes <= older.size_bytes


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("replaced", [b"one\n", b"", b"needle\nneed", b"a\n" * 50], ids=len)
def test_who_still_reads_a_log_that_was_replaced_comes_to_an_end(replaced):
    logs, index = Growing(b"needle\n" * 30), LogIndex()
    before = logs.reader(index)
    logs.data = replaced
    for at in range(100):
        check(logs.reader(index), replaced, at)
    assert len(before.lines(1, MOST_LINES)) <= 30
    following(before, 2)
    preceding(before, 29)


@pytest.mark.usefixtures("small")
def test_a_log_that_grows_while_it_is_searched_is_searched_as_far_as_it_was_known():
    logs, index = Growing(b"nothing\n" * 20 + b"nee"), LogIndex()
    reader, known = logs.reader(index), logs.data

    def grow() -> None:
        logs.meanwhile = lambda: None
        logs.data += b"dle\nneedle\n"
        check(logs.reader(index), logs.data, 5)
        logs.meanwhile = grow

    logs.meanwhile = grow
    assert following(reader, 0) is None
    assert preceding(reader, 22) is None
    assert [line.head for line in reader.lines(20, 9)] == [b"nothing", b"nee"]
    assert len(logs.data) > len(known)
    logs.meanwhile = lambda: None
    check(reader, known, 0)


@pytest.mark.usefixtures("small")
def test_two_that_take_in_the_same_growth_at_once_scan_it_once():
    logs, index = Growing(b"one\ntwo\n" * 10), LogIndex()
    size, began, second = len(logs.data), Event(), []
    other = Thread(target=lambda: (began.set(), second.append(logs.reader(index))))

    def meanwhile() -> None:
        """The other asks while the first is in the midst of its scan."""
        logs.meanwhile = lambda: None
        logs.data += b"three\n"
        other.start()
        assert began.wait(60)

    logs.meanwhile = meanwhile
    first = logs.reader(index, size)
    other.join(60)
    assert (first.total, second[0].total) == (20, 21)
    assert logs.read_bytes == len(logs.data)
    check(first, logs.data[:size], 3)
    check(second[0], logs.data, 3)


@pytest.mark.usefixtures("small")
def test_many_threads_with_sizes_of_their_own_agree_with_a_plain_scan():
    data = b"".join(b"%d needle\n" % n if n % 9 == 0 else b"%d\n" % n for n in range(200))
    logs, index = Growing(data), LogIndex()

    def look(turn: int) -> None:
        size = turn * 7919 % (len(data) + 1)
        check(logs.reader(index, size), data[:size], turn)

    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(look, range(200)))) == 200


@pytest.mark.usefixtures("small")
def test_an_index_that_is_evicted_still_serves_who_has_it():
    logs, indexes = Growing(b"one\nneedle\n" * 20), LogIndexes(kept=1)
    reader = logs.reader(indexes.of("a-1"))
    indexes.of("a-2")
    known = logs.data
    logs.data += b"needle\n" * 5
    again = indexes.of("a-1")
    assert again is not reader.index
    check(logs.reader(again), logs.data, 7)
    check(reader, known, 7)


def hidden() -> Iterator[tuple[bytes, int]]:
    """Logs of 24 lines that end with and without an end of line, each with one hit."""
    for at in range(24):
        lines = [b"nothing\n"] * 24
        lines[at] = b"needle.\n"
        whole = b"".join(lines)
        yield whole, at + 1
        yield whole[:-1], at + 1


@pytest.mark.parametrize("piece", [16, 23, 24, 32])
def test_a_search_that_goes_on_at_the_end_of_a_block_misses_nothing(monkeypatch, piece):
    for searched, (data, line) in product([1, 7, 8, 9, 16, 23, 24, 25, 64, 191, 192], hidden()):
        shrink(monkeypatch, piece, searched)
        reader = Growing(data).reader(LogIndex())
        assert (following(reader, 0), preceding(reader, 25)) == (line, line)
        assert (following(reader, line), preceding(reader, line)) == (None, None)


@pytest.mark.parametrize("end", [b"", b"\n", b"\nlast\n"])
def test_a_hit_that_two_blocks_share_is_found(monkeypatch, end):
    shrink(monkeypatch, piece=23, searched=23)
    for before in range(60):
        data = b"first\n" + b"." * before + b"needle" + b"." * 30 + end
        reader = Growing(data).reader(LogIndex())
        assert (following(reader, 0), preceding(reader, 9)) == (2, 2)
        assert (following(reader, 2), preceding(reader, 2)) == (None, None)
