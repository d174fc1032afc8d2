from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedEnvironment, ParsedFallback, ParsedSubtests
from tests.unit.result_parsers.pytest_logs import (
    GOLDEN,
    HEADER,
    artifact,
    bar,
    session,
    told,
    written,
)

PASSED, FAILED, ERROR = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.ERROR
SKIPPED, MISSING = TestOutcome.SKIPPED, TestOutcome.MISSING


def read(folder, text):
    return told(PytestText(), written(folder, text))


@pytest.mark.parametrize(
    ("name", "number", "seconds", "warnings"),
    [
        ("nvidia_backend.txt", 66, 7.27, 84),
        ("moe_tests.txt", 48, 6.76, 8),
        ("fp8_tests.txt", 71, 5.38, 8),
    ],
)
def test_the_real_logs(name, number, seconds, warnings):
    log = artifact(GOLDEN / name)
    assert PytestText().match(log) > 0.9
    said = told(PytestText(), log)
    assert set(said.tests.values()) == {PASSED}
    assert len(said.tests) == number
    assert not said.unnamed
    assert said.collected == [number]
    (footer,) = said.footers
    assert (footer.total, footer.counts) == (number, {"passed": number})
    assert (footer.duration_s, footer.warnings) == (seconds, warnings)
    assert (said.end.exit_code, said.end.duration_s, said.end.cause) == (0, seconds, "")
    facts = [one.facts for one in said.said if isinstance(one, ParsedEnvironment)]
    assert {"python": "3.10.12", "packages": {"pytest": "9.0.2", "pluggy": "1.6.0"}} in facts


def test_a_fallback_in_the_warnings_of_a_suite_does_not_degrade_it():
    said = told(PytestText(), artifact(GOLDEN / "nvidia_backend.txt"))
    assert not [one for one in said.said if isinstance(one, ParsedFallback)]
    assert any("fallback" in message for message in said.messages)


@pytest.mark.parametrize(
    "lines",
    [
        ".\n{0}\nt/test_a.py:5: KeyboardInterrupt\n(to show a full traceback use --full-trace)\n",
        "..\n{0}\n",
        ".. [100%]\n{0}\n",
        "{0}\n",
    ],
)
@pytest.mark.parametrize("why", ["KeyboardInterrupt", "_pytest.outcomes.Exit: the GPU is gone"])
def test_why_a_quiet_session_stopped_stands_between_its_letters_and_its_sum(tmp_path, lines, why):
    said = read(tmp_path, lines.format(bar(why, "!")) + "2 passed in 5.04s\n")
    assert said.end.exit_code == 2
    assert f"pytest stopped early: {why}" in said.messages


@pytest.mark.parametrize("between", ["..\n", bar("test session starts") + "\n", ".. [100%]\n"])
def test_a_banner_above_a_session_is_not_of_pytest(tmp_path, between):
    said = read(tmp_path, f"{bar('WARNING', '!')}\n{between}{bar('2 passed in 5.04s')}\n")
    assert said.end.exit_code == 0


@pytest.mark.parametrize("cut", range(0, 9_000, 997))
def test_a_torn_log_tells_what_it_has(tmp_path, cut):
    raw = (GOLDEN / "nvidia_backend.txt").read_bytes()[: 800 + cut]
    said = told(PytestText(), written(tmp_path, raw))
    whole = [outcome for outcome in said.tests.values() if outcome is PASSED]
    assert len(whole) == raw.count(b" PASSED")
    assert said.collected in ([66], [])
    assert said.end is None
    assert said.messages[-1:] == ["the log stops before pytest sums up"]


def test_the_test_that_ran_when_the_log_stops_is_missing(tmp_path):
    said = read(tmp_path, session("a.py::one PASSED [ 50%]", "a.py::two ", items=2))
    assert said.tests == {"a.py::one": PASSED, "a.py::two": MISSING}
    assert said.end is None
    assert not said.footers


@pytest.mark.parametrize(
    ("line", "reason", "cause"),
    [
        ("a.py::two Fatal Python error: Segmentation fault", "crashed", "crashed"),
        ("a.py::two \nFatal Python error: Aborted", "crashed", "crashed"),
        ("a.py::two \nSegmentation fault (core dumped)", "crashed", "crashed"),
        ("a.py::two bash: line 1: \nbash: line 1:  4711 Killed     pytest", "crashed", "crashed"),
        (f"a.py::two {'+' * 35} Timeout {'+' * 36}", "hung", "hung"),
    ],
)
def test_the_test_that_ran_when_the_process_died(tmp_path, line, reason, cause):
    said = read(tmp_path, session("a.py::one PASSED [ 50%]", line, "  File x", items=3))
    assert said.tests == {"a.py::one": PASSED, "a.py::two": ERROR}
    assert said.first["a.py::two"].reason == reason
    assert said.end.cause == cause
    assert said.end.exit_code is None


def test_a_process_that_dies_after_its_sum_has_crashed_all_the_same(tmp_path):
    text = session("a.py::one PASSED [100%]", items=1, footer="1 passed in 0.10s")
    said = read(tmp_path, text + "Segmentation fault (core dumped)\n")
    assert said.tests == {"a.py::one": PASSED}
    assert (said.end.cause, said.end.exit_code) == ("crashed", None)


def test_a_crash_that_pytest_survived_is_none(tmp_path):
    lines = ["a.py::one Fatal Python error: Aborted", "PASSED      [100%]"]
    said = read(tmp_path, session(*lines, items=1, footer="1 passed in 0.10s"))
    assert said.tests == {"a.py::one": PASSED}
    assert (said.end.cause, said.end.exit_code) == ("", 0)


def test_an_error_at_teardown_is_the_test_s(tmp_path):
    lines = ["a.py::x PASSED [ 50%]", "a.py::x ERROR [ 50%]", "a.py::y FAILED [100%]"]
    lines += ["a.py::y ERROR [100%]", "a.py::z ERROR [100%]"]
    footer = "1 failed, 1 passed, 3 errors in 0.10s"
    said = read(tmp_path, session(*lines, items=3, footer=footer))
    assert said.tests == {"a.py::x": ERROR, "a.py::y": FAILED, "a.py::z": ERROR}
    assert said.first["a.py::x"].reason == "teardown"
    assert said.first["a.py::z"].reason == "setup"
    assert said.footers[0].counts == {"failed": 1, "error": 2}
    assert said.footers[0].total == 3


def test_reruns_are_earlier_tries(tmp_path):
    lines = ["a.py::f RERUN [ 50%]", "a.py::f RERUN [ 50%]", "a.py::f PASSED [ 50%]"]
    lines += ["a.py::g RERUN [100%]", "a.py::g FAILED [100%]"]
    said = read(tmp_path, session(*lines, items=2, footer="1 failed, 1 passed, 3 rerun in 0.10s"))
    assert said.tests == {"a.py::f": PASSED, "a.py::g": FAILED}
    assert said.first["a.py::f"].earlier == (FAILED, FAILED)
    assert said.first["a.py::g"].earlier == (FAILED,)
    assert said.footers[0].counts == {"passed": 1, "failed": 1}


def test_reruns_of_xdist_s_workers(tmp_path):
    lines = ["a.py::f ", "a.py::g ", "[gw1] [ 50%] RERUN a.py::f ", "a.py::f "]
    lines += ["[gw0] [ 50%] PASSED a.py::g ", "[gw1] [100%] PASSED a.py::f "]
    text = HEADER + "2 workers [2 items]\n\n" + "\n".join(lines) + "\n"
    said = read(tmp_path, text + bar("2 passed, 1 rerun in 0.10s"))
    assert said.tests == {"a.py::f": PASSED, "a.py::g": PASSED}
    assert said.first["a.py::f"].earlier == (FAILED,)
    assert said.collected == [2]


def test_what_another_worker_prints_behind_a_test_is_not_its_name(tmp_path):
    lines = "a.py::f \na.py::g[x y] /lib/x.py:306: Warning: x\n"
    lines += "[gw0] [ 50%] PASSED a.py::f /lib/x.py:306: Warning: x\n"
    lines += "[gw1] [100%] FAILED a.py::g[x y] \n"
    text = HEADER + "2 workers [2 items]\n\n" + lines + bar("1 failed, 1 passed in 0.10s")
    said = read(tmp_path, text)
    assert said.tests == {"a.py::f": PASSED, "a.py::g[x y]": FAILED}


def test_tests_that_xdist_s_workers_never_finished_are_missing(tmp_path):
    lines = "a.py::f \na.py::g[x y] \n[gw1] [ 50%] PASSED a.py::f \na.py::h \n"
    said = read(tmp_path, HEADER + "gw0 [3] / gw1 [3]\n\n" + lines)
    assert said.tests == {"a.py::f": PASSED, "a.py::g[x y]": MISSING, "a.py::h": MISSING}


def test_a_failed_subtest_fails_its_test_and_a_skipped_one_does_not_skip_it(tmp_path):
    lines = [
        "a.py::s SUBPASSED(i=0) [ 50%]",
        "a.py::s SUBFAILED[msg [x]] (i=1) [ 50%]",
        "a.py::s PASSED [ 50%]",
        "a.py::k SUBSKIPPED(i=0) [100%]",
        "a.py::k PASSED [100%]",
    ]
    footer = "1 failed, 2 passed, 1 skipped, 1 subtests passed in 0.10s"
    said = read(tmp_path, session(*lines, items=2, footer=footer))
    assert said.tests == {"a.py::s": FAILED, "a.py::k": PASSED}
    assert said.footers[0].counts == {"failed": 1, "passed": 1}


def test_skipped_subtests_of_unittest_have_no_outcome_on_their_line(tmp_path):
    """pytest 9 writes none while it captures output, and counts them in its sum."""
    lines = ["a.py::U::s ", "a.py::U::s PASSED [ 50%]", "a.py::k SKIPPED (x) [100%]"]
    footer = "1 passed, 3 skipped, 1 subtests passed in 0.10s"
    said = read(tmp_path, session(*lines, items=2, footer=footer))
    assert said.tests == {"a.py::U::s": PASSED, "a.py::k": SKIPPED}
    assert said.footers[0].counts == {"passed": 1, "skipped": 1}
    assert [one.count for one in said.said if isinstance(one, ParsedSubtests)] == [3]


def test_the_older_plug_in_s_subtests(tmp_path):
    lines = ["a.py::T::s [custom] (i=1) SUBFAIL [ 99%]", "a.py::T::s PASSED [100%]"]
    said = read(tmp_path, session(*lines, items=1, footer="1 failed, 1 passed in 0.10s"))
    assert said.tests == {"a.py::T::s": FAILED}
    assert said.footers[0].total == 1


def test_what_a_test_prints_may_come_before_its_outcome(tmp_path):
    lines = [
        "a.py::one hello", "PASSED", "a.py::two ", "", "-" * 32 + " live log call " + "-" * 33,
        "WARNING  x:a.py:59 logged", "b.py::liar PASSED [ 10%]", "no break SKIPPED", "FAILED",
        "a.py::three no break at allPASSED", "a.py::four ", "PASSEDat teardown", "a.py::five ",
        "says: all PASSED", "SKIPPED (no [GPU] (really))",
    ]  # fmt: skip
    said = read(tmp_path, session(*lines, items=5, footer="3 passed, 1 failed, 1 skipped in 1.00s"))
    assert said.tests == {
        "a.py::one": PASSED,
        "a.py::two": FAILED,
        "a.py::three": PASSED,
        "a.py::four": PASSED,
        "a.py::five": SKIPPED,
    }
    assert said.first["a.py::five"].reason == "no [GPU] (really)"


def test_two_sessions_in_one_file(tmp_path):
    one = session("a.py::x PASSED [100%]", items=1, footer="1 passed in 1.00s")
    two = session("b.py::x FAILED [100%]", items=1, footer="1 failed in 2.00s")
    said = read(tmp_path, f"make test\n{one}next\n{two}")
    assert said.tests == {"a.py::x": PASSED, "b.py::x": FAILED}
    assert said.collected == [1, 1]
    assert [footer.total for footer in said.footers] == [1, 1]
    assert (said.end.exit_code, said.end.duration_s) == (1, 3.0)


def test_a_sum_that_a_script_shows_again_counts_once(tmp_path):
    text = session("a.py::x PASSED [100%]", items=1, footer="1 passed in 1.00s")
    said = read(tmp_path, text + bar("1 passed in 1.00s"))
    assert [footer.total for footer in said.footers] == [1]
    assert not said.unnamed


def test_a_session_that_a_test_printed_is_not_the_log_s(tmp_path):
    inner = session("x.py::inner FAILED [100%]", items=1) + bar("FAILURES")
    inner += bar("inner", "_") + "E  inner\n" + bar("short test summary info")
    inner += "FAILED x.py::inner - inner\n" + bar("1 failed in 0.01s")
    text = session("a.py::one FAILED [100%]", items=1) + bar("FAILURES") + bar("one", "_")
    text += "E   assert 0\n" + bar("Captured stdout call", "-") + inner
    text += bar("short test summary info") + "FAILED a.py::one - assert 0\n"
    said = read(tmp_path, text + bar("1 failed in 0.50s"))
    assert said.tests == {"a.py::one": FAILED}
    assert [(footer.total, footer.duration_s) for footer in said.footers] == [(1, 0.5)]
    assert said.collected == [1]
    assert [(d.name, d.message) for d in said.details] == [("a.py::one", "assert 0")]
    assert "inner" in said.details[0].text


def test_details_find_their_tests_by_the_order_of_failures(tmp_path):
    lines = ["a.py::same FAILED [ 50%]", "b.py::same FAILED [100%]", "b.py::T::up ERROR [100%]"]
    text = session(*lines, items=3) + bar("ERRORS") + bar("ERROR at setup of T.up", "_")
    text += "E   up\n" + bar("FAILURES") + bar("same", "_") + ">  x\nE   KeyError: 'a'\nE   more\n"
    text += (
        bar("same", "_") + "b.py:1: in same\nE   ValueError: b\n" + bar("short test summary info")
    )
    said = read(tmp_path, text + bar("2 failed, 1 error in 0.50s"))
    assert [(d.name, d.message, d.phase) for d in said.details] == [
        ("b.py::T::up", "up", "setup"),
        ("a.py::same", "KeyError: 'a'", ""),
        ("b.py::same", "ValueError: b", ""),
    ]


def test_a_huge_traceback_is_bounded(tmp_path):
    text = session("a.py::t FAILED [100%]", items=1) + bar("FAILURES") + bar("t", "_")
    text += "E   first\n" + "x" * 70 + "\n" + "line of it\n" * 15_000 + "the last line\n"
    said = read(tmp_path, text + bar("1 failed in 0.50s"))
    (detail,) = said.details
    assert len(detail.text) < 100_000
    assert detail.message == "first"
    assert detail.text.endswith("the last line")


def test_a_module_that_cannot_be_collected_is_one_error(tmp_path):
    text = HEADER + "collecting ... collected 10 items / 1 error / 2 deselected / 8 selected\n\n"
    text += bar("ERRORS") + bar("ERROR collecting tests/test_x.py", "_")
    text += "ImportError while importing\nE   ModuleNotFoundError: No module named 'x'\n"
    text += bar("short test summary info") + "ERROR tests/test_x.py\n"
    text += bar("Interrupted: 1 error during collection", "!") + bar(
        "2 deselected, 1 error in 0.1s"
    )
    said = read(tmp_path, text)
    assert said.tests == {"tests/test_x.py": ERROR}
    broken = said.first["tests/test_x.py"]
    assert (broken.reason, broken.message) == (
        "collection",
        "ModuleNotFoundError: No module named 'x'",
    )
    assert said.collected == [9]
    assert said.footers[0].counts == {"error": 1}
    assert said.end.exit_code == 2
    assert "pytest stopped early: Interrupted: 1 error during collection" in said.messages


@pytest.mark.parametrize("summary", ["ERROR b.py\n", "ERROR b.py - ImportError: x - y\n"])
def test_a_broken_module_is_named_by_the_summary_alone(tmp_path, summary):
    text = session("a.py::x PASSED [100%]", items="1 items / 1 error\ncollected 1")
    text = text.replace(
        "collected 1 items / 1 error\ncollected 1 items", "collected 1 item / 1 error"
    )
    text += bar("short test summary info") + summary + bar("1 passed, 1 error in 0.10s")
    said = read(tmp_path, text)
    assert said.tests == {"a.py::x": PASSED, "b.py": ERROR}
    assert said.collected == [2]


def test_modules_skipped_as_a_whole_are_counted_and_named_where_they_are(tmp_path):
    head = (
        HEADER + "collected 2 items / 2 skipped\n\na.py::x PASSED [ 50%]\na.py::y SKIPPED [100%]\n"
    )
    summary = "SKIPPED [1] b.py:2: whole module\nSKIPPED [1] a.py:9: GPU\n"
    text = head + bar("short test summary info") + summary + bar("1 passed, 3 skipped in 0.10s")
    said = read(tmp_path, text)
    assert said.tests == {"a.py::x": PASSED, "a.py::y": SKIPPED, "b.py": SKIPPED}
    assert said.first["b.py"].reason == "whole module"
    assert said.unnamed == {"skipped": 1}
    assert said.collected == [4]
    assert said.footers[0].total == 4


def test_no_more_modules_are_skipped_as_a_whole_than_were_announced(tmp_path):
    lines = "collected 2 items / 1 skipped\n\na.py::x PASSED [ 50%]\na.py::y SKIPPED [100%]\n"
    summary = "SKIPPED [1] b.py:2: whole module\nSKIPPED [1] conftest.py:9: GPU\n"
    text = HEADER + lines + bar("short test summary info") + summary
    said = read(tmp_path, text + bar("1 passed, 2 skipped in 0.10s"))
    assert said.tests == {"a.py::x": PASSED, "a.py::y": SKIPPED, "b.py": SKIPPED}
    assert not said.unnamed


def test_failed_subtests_that_only_the_summary_names_are_one_failed_test(tmp_path):
    text = session("a.py::s PASSED [100%]", items=1) + bar("short test summary info")
    text += "SUBFAILED(i=0) a.py::s - first\nSUBFAILED(i=1) a.py::s - second\n"
    said = read(tmp_path, text + bar("2 failed, 1 passed in 0.10s"))
    assert said.tests == {"a.py::s": FAILED}
    assert said.footers[0].counts == {"failed": 1}
    assert not said.unnamed


@pytest.mark.parametrize(
    ("text", "counts", "code"),
    [
        (session(items=0, footer="no tests ran in 0.01s"), {}, 5),
        (session(items="2 items / 2 deselected", footer="2 deselected in 0.01s"), {}, 5),
        ("...\n" * 0 + "..F [100%]\n1 failed, 2 passed in 0.1s\n", {"failed": 1, "passed": 2}, 1),
        (bar("3 passed in 0.10s"), {"passed": 3}, 0),
    ],
)
def test_sums_without_names(tmp_path, text, counts, code):
    said = read(tmp_path, text.replace("deselected items", "deselected / 0 selected"))
    assert dict(said.counts) == counts
    assert [footer.counts for footer in said.footers] == [counts]
    assert said.end.exit_code == code


def test_letters_count_where_there_is_no_sum(tmp_path):
    said = read(tmp_path, session("tests/test_a.py ..FsxX [ 50%]", "tests/test_b.py .E", items=9))
    assert said.unnamed == {
        "passed": 3, "failed": 1, "skipped": 1, "xfailed": 1, "xpassed": 1, "error": 1,
    }  # fmt: skip
    assert said.collected == [9]
    assert said.end is None


def test_letters_of_xdist(tmp_path):
    text = HEADER + "2 workers [5 items]\n\n..F.s    [100%]\n" + bar("short test summary info")
    text += "FAILED a.py::t[a - b] - assert 1 - 2\n" + bar("1 failed, 3 passed, 1 skipped in 1.0s")
    said = read(tmp_path, text)
    assert said.tests == {"a.py::t[a - b]": FAILED}
    assert said.first["a.py::t[a - b]"].message == "assert 1 - 2"
    assert said.unnamed == {"passed": 3, "skipped": 1}


@pytest.mark.parametrize("row", ["..s.     [100%]/x/y.py:54: Warning", "noise ..s.     [100%]"])
def test_letters_lost_in_noise_are_no_modules_that_were_skipped(tmp_path, row):
    text = HEADER + f"2 workers [4 items]\n\n{row}\n" + bar("3 passed, 1 skipped in 1.0s")
    said = read(tmp_path, text)
    assert said.collected == [4]
    assert said.unnamed == {"passed": 3, "skipped": 1}


def test_a_module_was_skipped_though_the_run_stopped_early(tmp_path):
    text = HEADER + "2 workers [9 items]\n\n.F     [ 22%]\n" + bar("stopping after 1 failures", "!")
    said = read(tmp_path, text + bar("1 failed, 1 passed, 1 skipped in 1.0s"))
    assert said.collected == [10]


def test_pytest_s_own_failure(tmp_path):
    text = session("a.py::x PASSED [ 50%]", items=2)
    text += "INTERNALERROR> Traceback (most recent call last):\nINTERNALERROR> KeyError: 'x'\n\n"
    said = read(tmp_path, text + bar("1 passed in 0.10s"))
    assert ("error", "pytest failed inside itself: KeyError: 'x'") in [
        (problem.level, problem.message) for problem in said.problems
    ]
    assert said.end.exit_code == 3


def test_a_log_without_its_beginning(tmp_path):
    text = "a.py::x PASSED        [ 98%]\na.py::y FAILED        [100%]\n\n" + bar("FAILURES")
    text += bar("y", "_") + "E   boom\n" + bar("1 failed, 60 passed in 0.10s")
    said = read(tmp_path, text)
    assert said.tests == {"a.py::x": PASSED, "a.py::y": FAILED}
    assert said.footers[0].total == 61
    assert said.details[0].name == "a.py::y"


def test_a_log_from_a_cloud_with_colours_and_carriage_returns(tmp_path):
    text = "Using ssh batch size of 1. Attempting to connect to 1 nodes\r\n"
    text += "SSH: Attempting to connect to worker 0...\r\n" + HEADER.replace("\n", "\r\n")
    text += "collecting ... \rcollecting 1 item\rcollected 2 items  \r\n\r\n"
    text += "a.py::x \x1b[32mPASSED\x1b[0m\x1b[32m    [ 50%]\x1b[0m\r\n"
    text += "a.py::y \x1b[32mPASSED\x1b[0m\x1b[32m    [100%]\x1b[0m\r\n"
    said = read(tmp_path, text + "\x1b[32m" + bar("\x1b[1m2 passed\x1b[0m\x1b[32m in 0.10s"))
    assert said.tests == {"a.py::x": PASSED, "a.py::y": PASSED}
    assert said.collected == [2]
    assert said.footers[0].total == 2


@pytest.mark.parametrize(
    ("text", "name", "low", "high"),
    [
        (HEADER, "x.txt", 0.9, 1.0),
        (bar("3 passed in 0.10s"), "x.txt", 0.85, 0.95),
        ("a.py::x PASSED [ 1%]\n", "x.txt", 0.7, 0.85),
        ("a.py ... [100%]\n3 passed in 0.10s\n", "x.txt", 0.6, 0.75),
        ("# Report\n\n" + HEADER, "report.md", 0.1, 0.4),
        ('{"$report_type": "SessionStart"}\n' + HEADER, "x.jsonl", 0.0, 0.0),
        ("<testsuites>\n" + HEADER, "x.xml", 0.0, 0.0),
        ("[PASS] one\nAll demos completed!\n", "demo.txt", 0.0, 0.0),
        ("", "x.txt", 0.0, 0.0),
    ],
)
def test_how_sure_it_is(tmp_path, text, name, low, high):
    assert low <= PytestText().match(written(tmp_path, text, name)) <= high


def test_what_has_no_session_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="no session"):
        read(tmp_path, "nothing of pytest\n")
