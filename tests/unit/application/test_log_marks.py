"""Where jobs and failures begin in a log, however the log is cut into pieces."""

from __future__ import annotations

import pytest

from orchestrator.application.read_log import LogMarks, LogSection

LOG = b"""\
$ python -m venv
===== seatrial: unit (suite) =====
collected 2 items
=================================== FAILURES ===================================
AssertionError
===== seatrial: a fresh process runs what is left =====
===== seatrial: demo (demo) =====\r
Traceback (most recent call last):
  said: ===== seatrial: no (demo) =====
===== seatrial: last (benchmark) =====
no heading of pytest
"""


def marks_of(log: bytes, piece: int) -> LogMarks:
    marks = LogMarks()
    for begin in range(0, len(log), piece):
        marks.scan(log[begin : begin + piece])
    return marks


@pytest.mark.parametrize("piece", [1, 2, 7, 40, 100, 10_000])
def test_sections_and_failures_do_not_depend_on_pieces(piece: int) -> None:
    marks = marks_of(LOG, piece)
    assert marks.sections(11) == [
        LogSection("unit", 2, 6), LogSection("demo", 7, 9), LogSection("last", 10, 11),
    ]  # fmt: skip
    assert marks.failures == [4, 8]


def test_the_first_failure_is_of_a_job_that_failed() -> None:
    marks = marks_of(LOG, 10_000)
    assert marks.first_failure(11, {"unit", "demo"}) == 4
    assert marks.first_failure(11, {"demo"}) == 8
    assert marks.first_failure(11, {"last"}) == 11, "its end says why, where nothing else does"
    assert marks.first_failure(11, {}) is None


def test_a_heading_that_is_not_complete_or_too_long_is_none() -> None:
    assert marks_of(b"===== seatrial: unit (suite) =====", 9).sections(1) == []
    assert marks_of(b"=====" + b"x" * 5_000 + b"\n===== seatrial: a (suite) =====\n", 50).jobs == [
        (2, "a")
    ]
