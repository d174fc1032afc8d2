from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers import pytest_text_lines as grammar
from orchestrator.adapters.result_parsers.pytest_text_tests import domain


@pytest.mark.parametrize(
    ("line", "nodeid", "word", "reason"),
    [
        ("a.py::t PASSED                      [  2%]", "a.py::t", "PASSED", ""),
        ("a.py::t PASSED", "a.py::t", "PASSED", ""),
        ("tests/a.py::C::D::t[a b] FAILED [100%]", "tests/a.py::C::D::t[a b]", "FAILED", ""),
        ("a.py::t[x[1]] ERROR [ 3/10]", "a.py::t[x[1]]", "ERROR", ""),
        ("a.py::t[[] PASSED [ 1%]", "a.py::t[[]", "PASSED", ""),
        ("a.py::t[]] PASSED [ 1%]", "a.py::t[]]", "PASSED", ""),
        ("a.py::t[] PASSED [ 1%]", "a.py::t[]", "PASSED", ""),
        (r"a.py::t[a\nb] PASSED [ 1%]", r"a.py::t[a\nb]", "PASSED", ""),
        ("a.py::t[ü 🎉] PASSED [ 1%]", "a.py::t[ü 🎉]", "PASSED", ""),
        ("a.py::t[c::d PASSED [ 10%]] PASSED [ 1%]", "a.py::t[c::d PASSED [ 10%]]", "PASSED", ""),
        ("a.py::t[x SKIPPED (y)] PASSED [ 1%]", "a.py::t[x SKIPPED (y)]", "PASSED", ""),
        ("a.py::t SKIPPED (no [GPU] (yet))  [ 1%]", "a.py::t", "SKIPPED", "no [GPU] (yet)"),
        ("a.py::t[a] XFAIL (XPASS (no))  [ 1%]", "a.py::t[a]", "XFAIL", "XPASS (no)"),
        ("a.py::t SKIPPED (line one", "a.py::t", "SKIPPED", "line one"),
        ("a.py::t SUBFAILED[m [x]] (i=1) [ 1%]", "a.py::t", "SUBFAILED", ""),
        ("a.py::t[p] SUBPASSED(i=1) [ 1%]", "a.py::t[p]", "SUBPASSED", ""),
        ("a.py::t [m] (i=1) SUBFAIL [ 1%]", "a.py::t", "SUBFAIL", ""),
        ("docs/x.rst::x.rst PASSED [ 1%]", "docs/x.rst::x.rst", "PASSED", ""),
        ("my tests/a.py::t PASSED [ 1%]", "my tests/a.py::t", "PASSED", ""),
        ("tests/sub dir/a.py::t PASSED", "tests/sub dir/a.py::t", "PASSED", ""),
        ("::TestX::t[a b] PASSED [ 1%]", "::TestX::t[a b]", "PASSED", ""),
        ("a.py::t ", "a.py::t", "", ""),
        ("a.py::t[a b] ", "a.py::t[a b]", "", ""),
        ("a.py::t hello world", "a.py::t", "", ""),
        ("a.py::t RERUN [ 50%]", "a.py::t", "RERUN", ""),
    ],
)
def test_lines_of_tests(line, nodeid, word, reason):
    node = grammar.node_line(line)
    assert (node.nodeid, node.word, node.reason) == (nodeid, word, reason)


@pytest.mark.parametrize(
    "line",
    [
        "", "::", ":: PASSED", "::: PASSED", "std::vector PASSED", "INFO at a.py::t PASSED",
        "  a.py::t (fixtures used: x)",
        "'a.py::t' PASSED", "collected 3 items", "PASSED a.py", "{'a.py::t': 1} PASSED",
    ],
)  # fmt: skip
def test_lines_of_no_test(line):
    assert grammar.node_line(line) is None


@pytest.mark.parametrize(
    ("line", "worker", "nodeid", "word"),
    [
        ("[gw0] [ 12%] PASSED a.py::t ", "gw0", "a.py::t", "PASSED"),
        ("[gw11] PASSED a.py::t[a b]", "gw11", "a.py::t[a b]", "PASSED"),
        ("[gw1] [ 3/9] FAILED ::TestX::t", "gw1", "::TestX::t", "FAILED"),
        ("[gw1] [ 3/9] FAILED a.py::t", "gw1", "a.py::t", "FAILED"),
        ("[gw1] [ 1%] SUBFAILED[m [x.y]] (i='a::b') t/a.py::t", "gw1", "t/a.py::t", "SUBFAILED"),
    ],
)
def test_lines_of_workers(line, worker, nodeid, word):
    node = grammar.worker_line(line)
    assert (node.worker, node.nodeid, node.word) == (worker, nodeid, word)


@pytest.mark.parametrize(
    "line", ["[gw0] linux -- Python 3.11.7 /bin/python", "[gw0] node down: x", "gw0 [3]", "[gw0] "]
)
def test_workers_say_other_things_too(line):
    assert grammar.worker_line(line) is None


@pytest.mark.parametrize(
    ("text", "counts", "seconds"),
    [
        ("66 passed, 84 warnings in 7.27s", {"passed": 66}, 7.27),
        ("1 failed, 2 errors in 61.00s (0:01:01)", {"failed": 1, "error": 2}, 61.0),
        ("3 passed in 0.12 seconds", {"passed": 3}, 0.12),
        ("1 xfailed, 2 xpassed, 3 skipped in 1s", {"xfailed": 1, "xpassed": 2, "skipped": 3}, 1.0),
        ("1 passed, 4 rerun, 7 subtests passed in 1.0s", {"passed": 1}, 1.0),
        ("no tests ran in 0.01s", {}, 0.01),
        ("2 deselected in 0.01s", {}, 0.01),
    ],
)
def test_sums(text, counts, seconds):
    footer = grammar.footer(text)
    assert (footer.counts, footer.duration_s) == (counts, seconds)


@pytest.mark.parametrize(
    "text", ["", "passed", "3 files in 2s", "3 passed", "x passed in 1s", "done in 1s", "in 1s"]
)
def test_what_is_no_sum(text):
    assert grammar.footer(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 tests collected in 0.00s", 2),
        ("41/42 tests collected (1 deselected) in 0.02s", 41),
        ("no tests collected in 0.02s", 0),
        ("1 test collected, 1 error in 0.02s", 1),
    ],
)
def test_sums_of_what_was_only_collected(text, number):
    assert grammar.footer(text).collected == number


@pytest.mark.parametrize(
    ("line", "items", "errors", "skipped"),
    [
        ("collected 71 items", 71, 0, 0),
        ("collecting ... collected 1 item", 1, 0, 0),
        ("collected 43 items / 1 deselected / 42 selected", 42, 0, 0),
        ("collected 2 items / 1 error / 3 skipped", 2, 1, 3),
        ("collected 10 items / 2 errors", 10, 2, 0),
        ("2 workers [42 items]", 42, 0, 0),
        ("1 worker [1 item]", 1, 0, 0),
        ("gw0 [42] / gw1 [42]", 42, 0, 0),
    ],
)
def test_announcements(line, items, errors, skipped):
    said = grammar.collected(line)
    assert (said.items, said.errors, said.skipped) == (items, errors, skipped)


@pytest.mark.parametrize("line", ["collected dust", "gw0 ok / gw1 C", "2 workers", "collected"])
def test_what_announces_nothing(line):
    assert grammar.collected(line) is None


@pytest.mark.parametrize(
    ("line", "nodeid", "word", "message"),
    [
        ("FAILED a.py::t - assert 0", "a.py::t", "FAILED", "assert 0"),
        ("FAILED a.py::t[a - b] - c - d", "a.py::t[a - b]", "FAILED", "c - d"),
        ("ERROR a.py", "a.py", "ERROR", ""),
        ("PASSED a.py::t[x y]", "a.py::t[x y]", "PASSED", ""),
        ("SUBFAILED[m [x]] (i=1) a.py::t - m", "a.py::t", "SUBFAILED", "m"),
        ("XFAIL a.py::t - bug", "a.py::t", "XFAIL", "bug"),
    ],
)
def test_lines_of_the_summary(line, nodeid, word, message):
    node, said = grammar.summary_line(line)
    assert (node.nodeid, node.word, said) == (nodeid, word, message)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("==== x ====", "x"), ("= x =", "x"), ("=== a = b ===", "a = b"), ("=====", None),
        ("==x==", None), ("=== x", None), ("", None), ("= = = = =", None),
    ],
)  # fmt: skip
def test_titles(line, title):
    assert grammar.banner(line, "=") == title


def test_a_row_that_parts_frames_is_no_title():
    assert grammar.banner("_ " * 40, "_") is None
    assert grammar.banner("__ __init__[a] __", "_") == "__init__[a]"


@pytest.mark.parametrize(
    ("line", "seconds"),
    [("a.py::t PASSED 326.2us", 326.2e-6), ("a.py::t PASSED  12.5ms", 0.0125)],
)
def test_times_in_the_place_of_progress(line, seconds):
    assert grammar.node_line(line).duration_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("nodeid", "title"),
    [("a.py::C::t[x::y]", "C.t[x::y]"), ("a.py", "a.py"), ("d/a.py::t", "t")],
)
def test_the_part_of_a_node_id_that_titles_have(nodeid, title):
    assert domain(nodeid) == title
