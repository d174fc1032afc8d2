from __future__ import annotations

import codecs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.text_lines import (
    CUT_MARK,
    LINE_LIMIT,
    Notes,
    head_lines,
    is_noise,
    tail_lines,
    text_lines,
)
from tests.unit.result_parsers.pytest_logs import written


def lines(folder, raw, **kwargs):
    return list(text_lines(written(folder, raw), **kwargs))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\n\n", ["", ""]),
        (b"10%\r50%\r100%\ndone\n", ["100%", "done"]),
        (b"10%\r50%\r", ["50%"]),
        (b"a\x0bb\x0cc\x85d\n", ["abc\ufffdd"]),
        ("a\u2028b\u2029c\n".encode(), ["a\u2028b\u2029c"]),
        (b"\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n", ["red link"]),
        (b"torn \x1b[3", ["torn "]),
        (b"nul\x00led\x07\n", ["nulled"]),
    ],
)
def test_lines_are_what_a_terminal_shows(tmp_path, raw, expected):
    assert lines(tmp_path, raw) == expected


def test_every_state_of_a_line_where_they_are_wanted(tmp_path):
    raw = b"collecting ...\rcollected 2 items\r\nnext\r\n\r\nlast\rmost"
    assert lines(tmp_path, raw, states=True) == [
        "collecting ...", "collected 2 items", "next", "", "last", "most",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        codecs.BOM_UTF8 + "grün\n".encode(),
        codecs.BOM_UTF16_LE + "grün\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "grün\n".encode("utf-16-be"),
        "grün\n".encode(),
    ],
)
def test_byte_order_marks_tell_the_encoding(tmp_path, raw):
    log = written(tmp_path, raw)
    assert list(text_lines(log)) == head_lines(log) == ["grün"]


def test_bytes_that_are_no_text_are_replaced_and_told(tmp_path):
    notes = Notes()
    assert lines(tmp_path, b"caf\xe9 PASSED\n", notes=notes) == ["caf\ufffd PASSED"]
    assert [p.message for p in notes.statements()] == ["bytes that are no text replaced in 1 line"]


def test_mojibake_is_mended_and_told(tmp_path):
    notes = Notes()
    raw = "\n".join(["plain", "âœ… Metric: 3.5Ã—", "â€” none"]).encode()
    assert lines(tmp_path, raw, notes=notes) == ["plain", "✅ Metric: 3.5×", "— none"]
    assert [(p.level, p.message) for p in notes.statements()] == [
        ("warning", "mojibake repaired in 2 lines")
    ]


@pytest.mark.parametrize("text", ["✅ fine\nâœ… quoted\n", "naïve café\n", "─── ±0.1 ×\n"])
def test_what_was_decoded_rightly_is_left_alone(tmp_path, text):
    notes = Notes()
    assert lines(tmp_path, text, notes=notes) == text.splitlines()
    assert notes.statements() == ()


def test_a_long_line_is_cut_and_told(tmp_path):
    notes = Notes()
    raw = b"x" * (3 * LINE_LIMIT) + b"\nshort\n" + b"y" * LINE_LIMIT
    cut, short, whole = lines(tmp_path, raw, notes=notes)
    assert cut == "x" * LINE_LIMIT + CUT_MARK
    assert (short, whole) == ("short", "y" * LINE_LIMIT)
    assert [p.message for p in notes.statements()] == [
        f"cut after {LINE_LIMIT} characters in 1 line"
    ]


def test_progress_of_any_length_on_one_line_is_its_last_state(tmp_path):
    raw = b"".join(b"%d%%\r" % n for n in range(20_000)) + b"done\n"
    assert lines(tmp_path, raw) == ["done"]


@pytest.mark.parametrize(
    "line",
    [
        "SSH key found in project metadata; not updating instance.",
        "Using ssh batch size of 1. Attempting to connect to 1 nodes with a total of 1 workers.",
        "SSH: Attempting to connect to worker 0...",
        "Warning: Permanently added 'compute.123' (ED25519) to the list of known hosts.",
        "Updating project ssh metadata...done.",
        "Updated [https://www.googleapis.com/compute/v1/projects/x].",
        "External IP address was not found; defaulting to using IAP tunneling.",
        "No zone specified. Using zone [us-west1-a] for instance: [x].",
        "Connection to 10.0.0.1 closed.",
    ],
)
def test_words_of_those_who_fetched_the_log_are_dropped(tmp_path, line):
    assert is_noise(line)
    assert lines(tmp_path, f"{line}\na.py::t PASSED [ 1%]\n{line}") == ["a.py::t PASSED [ 1%]"]


@pytest.mark.parametrize("line", ["Using CPU", "SSH is fine", "Updating weights", "Writing 3 rows"])
def test_words_of_the_log_are_kept(line):
    assert not is_noise(line)


def test_the_times_that_a_ci_system_writes_before_each_line_are_dropped(tmp_path):
    stamps = [f"2026-01-19T10:00:0{n}.1234567Z " for n in range(4)]
    raw = "".join(f"{stamp}line {n}\n" for n, stamp in enumerate(stamps))
    log = written(tmp_path, raw)
    expected = ["line 0", "line 1", "line 2", "line 3"]
    assert list(text_lines(log)) == head_lines(log) == tail_lines(log) == expected


def test_a_time_that_the_log_itself_prints_is_kept(tmp_path):
    raw = "2026-01-19T10:00:00.5Z began\nsecond\nthird\n"
    assert lines(tmp_path, raw) == raw.splitlines()


def test_the_tail_has_the_last_lines(tmp_path):
    log = written(tmp_path, b"x\n" * 100_000 + b"the end\n")
    assert tail_lines(log)[-1] == "the end"


FREE = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FREE
@given(raw=st.binary(max_size=3_000), states=st.booleans())
def test_no_bytes_are_refused_and_no_line_is_too_long(tmp_path, raw, states):
    for line in lines(tmp_path, raw, states=states):
        assert len(line) <= LINE_LIMIT + len(CUT_MARK)
        assert "\n" not in line
        assert "\x1b" not in line
        line.encode("utf-8")
