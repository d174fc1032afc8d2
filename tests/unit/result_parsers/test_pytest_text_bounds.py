"""No text makes the dialect crash, hang or grow."""

from __future__ import annotations

import sys
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome
from tests.unit.result_parsers.pytest_logs import GOLDEN, HEADER, bar, told, written

FREE = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
REAL = (GOLDEN / "moe_tests.txt").read_bytes()
PIECES = [
    HEADER, bar("FAILURES"), bar("ERRORS"), bar("PASSES"), bar("warnings summary"),
    bar("short test summary info"), bar("1 failed, 2 passed in 0.10s"), bar("t", "_"),
    bar("ERROR at teardown of t", "_"), bar("ERROR collecting a.py", "_"), bar("stop", "!"),
    bar("Captured stdout call", "-"), "collected 3 items\n", "2 workers [3 items]\n",
    "a.py::t PASSED [ 10%]\n", "a.py::t FAILED\n", "a.py::t ERROR [ 1%]\n", "a.py::t ", "PASSED\n",
    "a.py::t RERUN [ 9%]\n", "a.py::t SUBFAILED(i=1) [ 9%]\n", "[gw0] [ 9%] PASSED a.py::t\n",
    "[gw1] [ 9%] FAILED b.py::t[x y] \n", "a.py ..FE [ 9%]\n", "..R\n", "E   boom\n", "\r", "\n",
    "FAILED a.py::t - boom\n", "ERROR b.py\n", "SUBFAILED(i=1) a.py::t - x\n", "ERROR: no\n",
    "SKIPPED [1] b.py:2: whole\n", "INTERNALERROR> x\n", "Fatal Python error: Aborted\n",
    "Segmentation fault\n", "+++ Timeout +++\n", "3 passed in 1s\n", "\x1b[31m", "âœ…\n", "x",
]  # fmt: skip
TOKENS = ["a.py::t", "[", "]", " ", "PASSED", "SKIPPED (", ")", "SUBFAILED", "[gw0]", "[ 1%]", "::",
          "=", "_", " - ", ".", "/", "FAILED ", "ERROR ", "collected 1 items", " in 1.0s",
          "1 passed",          "+", "E   ", "s", "\t", "\u2028", "ü", "🎉"]  # fmt: skip


def survives(folder, raw):
    """Anything but UnreadableError is a defect."""
    log = written(folder, raw)
    assert 0 <= PytestText().match(log) <= 1
    try:
        return told(PytestText(), log)
    except UnreadableError:
        return None


@FREE
@given(raw=st.binary(max_size=2_000))
def test_any_bytes(tmp_path, raw):
    survives(tmp_path, raw)
    survives(tmp_path, HEADER.encode() + raw)


@FREE
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_order_of_what_pytest_prints(tmp_path, pieces):
    said = survives(tmp_path, "".join(pieces))
    for footer in said.footers if said else ():
        assert footer.total == sum(footer.counts.values())
        assert all(number > 0 for number in footer.counts.values())
    assert all(number > 0 for number in said.unnamed.values()) if said else True


@FREE
@given(lines=st.lists(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join), max_size=25))
def test_any_lines_of_its_words(tmp_path, lines):
    survives(tmp_path, HEADER + "\n".join(lines) + "\n" + bar("FAILURES") + "\n".join(lines))


@FREE
@given(
    at=st.integers(0, len(REAL)),
    raw=st.binary(max_size=60),
    cut=st.integers(0, 400),
    end=st.booleans(),
)
def test_a_real_log_with_a_hole_or_a_patch(tmp_path, at, raw, cut, end):
    said = survives(tmp_path, REAL[:at] + raw + (b"" if end else REAL[at + cut :]))
    if said is not None:
        named = {outcome for nodeid, outcome in said.tests.items() if "test_moe.py::" in nodeid}
        assert named <= set(TestOutcome)


NASTY = {
    "brackets": "[" * 65_000, "closing": "]" * 65_000, "open": "a.py::t" + "[" * 60_000 + "] ",
    "words": "a.py::t[" + " SKIPPED (" * 6_500, "reasons": "a.py::t SKIPPED (" * 3_800,
    "under": "_" * 65_000, "frames": "_ " * 32_000, "rows": "=" * 65_000, "gaps": "= " * 32_000,
    "blank": " " * 65_000, "colons": ":" * 65_000, "letters": "." * 65_000, "plus": "+" * 65_000,
    "limits": "+ Timeout +" * 5_900, "limit": "+" * 64_000 + " Timeout +", "title": "_ a" * 21_000,
    "colour": "\x1b[" + "0;" * 32_000, "links": "\x1b]" * 32_000,
    "parts": "1 a, " * 13_000 + "in 1s",
    "digits": "1" * 65_000, "worker": "[gw0] " + " " * 60_000 + "PASSED a", "dashes": "-" * 65_000,
    "summary": "FAILED a.py::t[" + " - " * 20_000, "mojibake": "âœ…" * 1_300,
    "a tilde": "Ã" * 4_000,
    "path": "/" * 60_000 + "::x PASSED [ 1%]", "described": "[gw0] SUBPASSED[" + "a." * 30_000,
    "announced": "collected 1 items" + " / 1 a" * 9_000, "stamps": "v1.2" * 16_000,
    "skips": "SKIPPED [1] " + "a:1" * 20_000, "errors": "E " * 32_000,
    "fallback": "falling " * 8_000,
    "node ids": "a.py::" * 10_000, "marks": "[ 1%]" * 13_000, "sub": "a.py::t SUBPASSED" * 3_800,
}  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_no_line_takes_more_than_its_length(tmp_path, name):
    """A line of 64 KiB that took the square of its length would take minutes."""
    line = NASTY[name] + "\n"
    text = (
        HEADER + line * 3 + bar("FAILURES") + line * 3 + bar("short test summary info") + line * 3
    )
    began = time.process_time()
    survives(tmp_path, text + bar("warnings summary") + line * 3)
    assert time.process_time() - began < 5


def calls(folder, text):
    """How many functions are called while the text is read."""
    log = written(folder, text)
    count = 0

    def see(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        for _ in PytestText().read(log):
            pass
    finally:
        sys.setprofile(before)
    return count


def long_log(number):
    """A log of so many lines, a tenth of them not pytest's."""
    nasty = [
        "=" * 80, "_" * 80, "[" * 200, "a.py::t[" + " SKIPPED (" * 9, "E   x", "... F", "x" * 900,
    ]  # fmt: skip
    lines = [
        f"tests/test_{n % 90}.py::T::test_{n}[a-{n}] PASSED [{n % 100:3}%]"
        if n % 10
        else nasty[n // 10 % len(nasty)]
        for n in range(number)
    ]
    return (
        HEADER + f"collected {number} items\n" + "\n".join(lines) + "\n" + bar("1 passed in 9.0s")
    )


def test_twice_the_lines_are_twice_the_work(tmp_path):
    small, large = calls(tmp_path, long_log(1_000)), calls(tmp_path, long_log(5_000))
    assert large < 5.25 * small


@pytest.mark.parametrize(
    ("text", "least", "most_mib"),
    [
        (long_log(10_000), 9_000, 1),
        (
            HEADER + "".join(f"a.py::t{n} FAILED [ 1%]\n" for n in range(6_000)) + bar("FAILURES")
            + "".join(bar(f"t{n}", "_") + "E   boom\n" + "text\n" * 3 for n in range(300)),
            6_300, 3.2,
        ),
    ],
    ids=["lines", "failures"],
)  # fmt: skip
def test_no_number_of_lines_takes_memory(tmp_path, text, least, most_mib):
    log = written(tmp_path, text)
    tracemalloc.start()
    try:
        number = sum(1 for _ in PytestText().read(log))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert number > least
    assert peak < most_mib * 1024 * 1024
