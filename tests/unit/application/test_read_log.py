"""Lines of a log by their numbers, and words in it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestrator.application import read_log
from orchestrator.application.read_log import (
    KEPT_BYTES,
    LogIndex,
    LogIndexes,
    LogReader,
    Search,
    open_log,
    raw_pieces,
)
from orchestrator.store.attempt_evidence import AttemptLog
from tests.unit.application.test_read_log_together import following, preceding


@dataclass
class Logs:
    """One log, and how much of it was read."""

    data: bytes = b""
    asked: int = 0

    def of_cell(self, cell_id: str) -> list[AttemptLog]:
        return [self.log]

    def read(self, attempt_id: str, *, after: int, limit: int) -> bytes:
        self.asked += 1
        return self.data[after : after + limit]

    @property
    def log(self) -> AttemptLog:
        return AttemptLog("a-1", 1, len(self.data), is_over=False)


@pytest.fixture
def small(monkeypatch):
    """Marks close together, pieces that cut lines in two."""
    monkeypatch.setattr(read_log, "_STEP", 3)
    monkeypatch.setattr(read_log, "_BLOCK_BYTES", 7)
    for module in (read_log, read_log):
        monkeypatch.setattr(module, "PIECE_BYTES", 23)
    monkeypatch.setattr(read_log, "_WINDOW_BYTES", 11)


def opened(logs: Logs, index: LogIndex | None = None) -> LogReader:
    return open_log(logs, index or LogIndex(), logs.log)


def texts(reader: LogReader, first: int = 1, count: int = 500) -> list[bytes]:
    return [line.head for line in reader.lines(first, count)]


def test_an_empty_log_has_no_lines():
    reader = opened(Logs())
    assert (reader.total, reader.lines(1, 10), reader.has_open_line) == (0, [], False)
    assert reader.find(Search("x"), after=0).line is None
    assert reader.find_before(Search("x"), before=9).line is None


def test_lines_have_numbers_and_the_last_may_be_open():
    reader = opened(Logs(b"one\ntwo\nthr"))
    assert [(x.number, x.head, x.begins_at) for x in reader.lines(1, 9)] == [
        (1, b"one", 0),
        (2, b"two", 4),
        (3, b"thr", 8),
    ]
    assert reader.has_open_line
    assert not opened(Logs(b"one\n")).has_open_line


def test_only_what_is_there_is_given():
    reader = opened(Logs(b"".join(b"%d\n" % n for n in range(1, 1201))))
    assert texts(reader, 1199) == [b"1199", b"1200"]
    assert texts(reader, 0, 2) == [b"1", b"2"]
    assert texts(reader, 1201) == []
    assert len(texts(reader, 1, 9999)) == read_log.MOST_LINES


@pytest.mark.usefixtures("small")
def test_a_search_ends_in_time_and_goes_on_where_it_ended(monkeypatch):
    monkeypatch.setattr(read_log, "SEARCHED_BYTES", 40)
    logs = Logs(b"nothing here\n" * 50 + b"needle\n" + b"nothing here\n" * 50)
    reader = opened(logs)
    first = reader.find(Search("needle"), after=0)
    assert first.line is None
    assert 0 < first.reached < 50
    assert (following(reader, 0), preceding(reader, 102)) == (51, 51)


def test_what_was_written_over_is_not_found():
    reader = opened(Logs(b"\r 10%\r 20%\r100%\r\nnext\n"))
    assert reader.find(Search("20%"), after=0).line is None
    assert reader.find(Search("100%"), after=0).line == 1


def test_letters_count_where_they_are_to():
    reader = opened(Logs("Straße ÄRGER\n".encode()))
    assert reader.find(Search("ärger"), after=0).line == 1
    assert reader.find(Search("ärger", ignores_case=False), after=0).line is None
    assert reader.find(Search(""), after=0).line is None


def test_of_a_long_line_both_ends_are_read():
    line = b"a" * 500_000 + b"z" * 500_000
    reader = opened(Logs(b"one\n" + line + b"\nthree\n" + line))
    found = reader.lines(2, 3)
    assert [x.size_bytes for x in found] == [1_000_000, 5, 1_000_000]
    for long in (found[0], found[2]):
        assert (len(long.head), len(long.tail)) == (KEPT_BYTES, KEPT_BYTES)
        assert (long.head[:1], long.tail[-1:]) == (b"a", b"z")
    assert reader.find(Search("az"), after=0).line == 2
    assert reader.find(Search("az"), after=2).line == 4


def test_a_log_is_scanned_once_and_then_only_what_is_new():
    logs, index = Logs(b"line of a log\n" * 30_000), LogIndex()
    assert opened(logs, index).total == 30_000
    scanned = logs.asked
    logs.data += b"more\n"
    assert opened(logs, index).total == 30_001
    assert logs.asked == scanned + 1
    logs.asked = 0
    assert texts(opened(logs, index), 30_001) == [b"more"]
    assert logs.asked == 1


def test_a_log_that_shrank_is_another_one():
    logs, index = Logs(b"1\n2\n3\n"), LogIndex()
    opened(logs, index)
    logs.data = b"one\n"
    assert texts(opened(logs, index)) == [b"one"]


def test_marks_stay_few(monkeypatch):
    monkeypatch.setattr(read_log, "_MOST_MARKS", 8)
    monkeypatch.setattr(read_log, "_STEP", 2)
    reader = opened(Logs(b"".join(b"%d\n" % n for n in range(1, 2001))))
    assert len(reader.index._lines) <= 8
    assert texts(reader, 1998) == [b"1998", b"1999", b"2000"]
    assert texts(reader, 1, 2) == [b"1", b"2"]


def test_indexes_of_logs_that_nobody_looks_at_are_forgotten():
    indexes = LogIndexes(kept=2)
    first = indexes.of("a")
    assert indexes.of("a") is first
    indexes.of("b")
    indexes.of("a")
    indexes.of("c")
    assert indexes.of("a") is first
    assert len(indexes._known) == 2


def test_a_raw_log_comes_in_pieces(monkeypatch):
    monkeypatch.setattr(read_log, "PIECE_BYTES", 4)
    logs = Logs(b"0123456789")
    seen = logs.log
    logs.data += b"and what came since"
    assert list(raw_pieces(logs, seen)) == [b"0123", b"4567", b"89"]
