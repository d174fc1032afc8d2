from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.reportlog import OPEN_LIMIT, RECORD_LIMIT, Reportlog
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedEnvironment
from tests.unit.result_parsers.pytest_logs import told, written

PASSED, FAILED, ERROR = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.ERROR
MISSING, SKIPPED = TestOutcome.MISSING, TestOutcome.SKIPPED
START = {"$report_type": "SessionStart", "pytest_version": "9.2.0"}
FINISH = {"$report_type": "SessionFinish", "exitstatus": 0}
FREE = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def report(nodeid, when="call", outcome="passed", **more):
    known = {"nodeid": nodeid, "when": when, "outcome": outcome, "duration": 0.25, "longrepr": None}
    return {"$report_type": "TestReport", **known, **more}


def phases(nodeid, setup="passed", call="passed", teardown="passed", **more):
    yield report(nodeid, "setup", setup, **(more if setup != "passed" else {}))
    if setup == "passed":
        yield report(nodeid, "call", call, **(more if call != "passed" else {}))
    yield report(nodeid, "teardown", teardown, **(more if teardown != "passed" else {}))


def text_of(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def read(folder, *records, end=FINISH):
    return told(Reportlog(), written(folder, text_of(START, *records, *([end] if end else []))))


CRASH = {
    "reprcrash": {"path": "/x/a.py", "lineno": 3, "message": "KeyError: 'a'\nmore"},
    "reprtraceback": {
        "reprentries": [
            {
                "type": "ReprEntry",
                "data": {
                    "lines": [">   x()", "E   KeyError: 'a'"],
                    "reprfileloc": {"path": "a.py", "lineno": 3, "message": "KeyError"},
                },
            }
        ]
    },
    "chain": [],
}


@pytest.mark.parametrize(
    ("records", "outcome", "reason"),
    [
        (phases("a.py::t"), PASSED, ""),
        (phases("a.py::t", call="failed", longrepr=CRASH), FAILED, ""),
        (phases("a.py::t", setup="failed", longrepr=CRASH), ERROR, "setup"),
        (phases("a.py::t", teardown="failed", longrepr=CRASH), ERROR, "teardown"),
        (phases("a.py::t", setup="skipped", longrepr=["a.py", 3, "Skipped: GPU"]), SKIPPED, "GPU"),
        (phases("a.py::t", call="skipped", wasxfail="bug"), TestOutcome.XFAILED, "bug"),
        (phases("a.py::t", call="failed", longrepr="[XPASS(strict)] x"), FAILED, ""),
    ],
)
def test_one_outcome_of_all_phases(tmp_path, records, outcome, reason):
    said = read(tmp_path, *records)
    assert said.tests == {"a.py::t": outcome}
    assert said.first["a.py::t"].reason == reason
    assert said.end.exit_code == 0


@pytest.mark.parametrize("before", [[], [report("a.py::t", "call", "rerun")]])
def test_a_test_that_was_set_up_and_never_called_is_missing(tmp_path, before):
    """So ``pytest --setup-only`` reports it."""
    tried = [report("a.py::t", "setup"), *before, report("a.py::t", "teardown")] if before else []
    only = [report("a.py::t", "setup"), report("a.py::t", "teardown")]
    said = read(tmp_path, *phases("a.py::u"), *tried, *only)
    assert said.tests == {"a.py::u": PASSED, "a.py::t": MISSING}


def test_a_failed_teardown_is_no_missing_test(tmp_path):
    only = [report("a.py::t", "setup"), report("a.py::t", "teardown", "failed", longrepr=CRASH)]
    assert read(tmp_path, *only).tests == {"a.py::t": ERROR}


def test_an_unexpected_pass(tmp_path):
    said = read(tmp_path, *phases("a.py::t"), report("b.py::t", "setup"),
                report("b.py::t", wasxfail="bug"), report("b.py::t", "teardown"))  # fmt: skip
    assert said.tests == {"a.py::t": PASSED, "b.py::t": TestOutcome.XPASSED}


def test_what_is_told_of_a_failure(tmp_path):
    said = read(tmp_path, *phases("a.py::t", call="failed", longrepr=CRASH))
    test = said.first["a.py::t"]
    assert test.message == "KeyError: 'a'"
    assert test.text == ">   x()\nE   KeyError: 'a'\na.py:3: KeyError"
    assert test.duration_s == 0.75


def test_a_test_is_told_when_its_teardown_arrives(tmp_path):
    said = read(tmp_path, *phases("a.py::t"), *phases("b.py::t"), end=None)
    assert [type(one).__name__ for one in said.said] == [
        "ParsedEnvironment", "ParsedTest", "ParsedTest", "ParsedProblem",
    ]  # fmt: skip
    assert isinstance(said.said[0], ParsedEnvironment)
    assert said.said[0].facts == {"packages": {"pytest": "9.2.0"}}


def test_workers_of_xdist_report_in_turns(tmp_path):
    one, two = list(phases("a.py::t")), list(phases("b.py::t", call="failed", longrepr=CRASH))
    said = read(tmp_path, *(record for pair in zip(one, two, strict=True) for record in pair))
    assert said.tests == {"a.py::t": PASSED, "b.py::t": FAILED}


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ([report("a.py::t", "setup")], MISSING),
        ([report("a.py::t", "setup"), report("a.py::t")], MISSING),
        ([report("a.py::t", "setup"), report("a.py::t", outcome="failed", longrepr=CRASH)], FAILED),
    ],
)
def test_a_killed_run_leaves_its_test_without_an_end(tmp_path, records, outcome):
    said = read(tmp_path, *phases("a.py::done"), *records, end=None)
    assert said.tests == {"a.py::done": PASSED, "a.py::t": outcome}
    assert said.end is None
    assert said.messages == ["the log stops before the session was over"]


def test_a_torn_last_record(tmp_path):
    raw = text_of(START, *phases("a.py::t"), FINISH)
    said = told(Reportlog(), written(tmp_path, raw[:-20]))
    assert said.tests == {"a.py::t": PASSED}
    assert "the last record is torn" in said.messages
    assert said.end is None


def test_lines_that_are_no_records_are_told(tmp_path):
    raw = text_of(START) + "\npip says hello\n[1, 2]\n" + text_of(*phases("a.py::t"), FINISH)
    said = told(Reportlog(), written(tmp_path, raw))
    assert said.tests == {"a.py::t": PASSED}
    assert [(p.level, p.message) for p in said.problems] == [
        ("error", "lines that are no records: 2")
    ]


def test_reruns_are_earlier_tries(tmp_path):
    tries = [*phases("a.py::f", call="rerun"), *phases("a.py::f", call="rerun")]
    said = read(tmp_path, *tries, *phases("a.py::f"), *phases("a.py::g", setup="rerun"), end=None)
    assert said.tests == {"a.py::f": PASSED, "a.py::g": MISSING}
    assert said.first["a.py::f"].earlier == (FAILED, FAILED)
    assert said.first["a.py::g"].earlier == (ERROR,)
    assert sum(1 for one in said.said if getattr(one, "nodeid", "") == "a.py::f") == 1


@pytest.mark.parametrize("kind", ["SubTestReport", "SubtestReport", "TestReport"])
@pytest.mark.parametrize(
    ("outcome", "expected"), [("failed", FAILED), ("passed", PASSED), ("skipped", PASSED)]
)
def test_subtests(tmp_path, kind, outcome, expected):
    part = report("a.py::t", outcome=outcome, longrepr=CRASH if outcome == "failed" else None)
    part |= {"$report_type": kind, "_subtest.context": {"msg": None, "kwargs": {"i": "1"}}}
    setup, call, teardown = phases("a.py::t")
    said = read(tmp_path, setup, part, call, teardown)
    assert said.tests == {"a.py::t": expected}
    assert said.first["a.py::t"].duration_s == 0.75


@pytest.mark.parametrize(
    ("phase", "outcome"), [("setup", ERROR), ("call", FAILED), ("teardown", ERROR)]
)
def test_a_phase_that_passed_with_a_failures_text_failed(tmp_path, phase, outcome):
    records = [
        {**one, "longrepr": CRASH} if one["when"] == phase else one for one in phases("a.py::t")
    ]
    said = read(tmp_path, *records)
    assert said.tests == {"a.py::t": outcome}
    assert said.first["a.py::t"].message == "KeyError: 'a'"


def test_a_module_that_was_collected_with_a_failures_text_was_not(tmp_path):
    record = {"$report_type": "CollectReport", "nodeid": "x.py", "outcome": "passed"}
    said = read(tmp_path, {**record, "longrepr": "E   No module"}, *phases("a.py::t"))
    assert said.tests == {"x.py": ERROR, "a.py::t": PASSED}


def test_modules(tmp_path):
    kind = {"$report_type": "CollectReport"}
    broken = {**kind, "nodeid": "x.py", "outcome": "failed", "longrepr": "Import\nE   No module"}
    skipped = {
        **kind,
        "nodeid": "y.py",
        "outcome": "skipped",
        "longrepr": ["y.py", 2, "Skipped: z"],
    }
    fine = {**kind, "nodeid": "z.py", "outcome": "passed", "longrepr": None}
    said = read(tmp_path, broken, broken, skipped, fine)
    assert said.tests == {"x.py": ERROR, "y.py": SKIPPED}
    assert (said.first["x.py"].reason, said.first["x.py"].message) == ("collection", "No module")
    assert said.first["y.py"].reason == "z"
    assert len(said.said) == 4


def test_a_worker_that_died(tmp_path):
    words = "worker 'gw0' crashed while running 'a.py::t'"
    lost = report("a.py::t", "???", "failed", longrepr=words)
    said = read(tmp_path, report("a.py::t", "setup"), lost)
    assert said.tests == {"a.py::t": FAILED}
    assert (said.first["a.py::t"].reason, said.first["a.py::t"].message) == ("crashed", words)


def test_a_record_that_is_too_large_is_left_out(tmp_path):
    path = tmp_path / "records.jsonl"
    with path.open("w") as file:
        file.write(text_of(START))
        file.write('{"$report_type": "TestReport", "x": "' + "x" * RECORD_LIMIT + '"}\n')
        file.write(text_of(*phases("a.py::t"), FINISH))
    said = told(Reportlog(), written(tmp_path, path.read_bytes()))
    assert said.tests == {"a.py::t": PASSED}
    assert said.messages == [f"records larger than {RECORD_LIMIT} bytes left out: 1"]


def test_tests_that_never_end_are_not_kept_for_ever(tmp_path):
    begun = [report(f"a.py::t{n}", "setup") for n in range(OPEN_LIMIT + 10)]
    said = read(tmp_path, *begun, end=None)
    assert len(said.tests) == OPEN_LIMIT + 10
    assert set(said.tests.values()) == {MISSING}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (text_of(START), 0.95, 1.0),
        ('{"tests": [], "$report_type": "x"', 0.5, 0.95),
        ('{"tests": []}', 0.0, 0.0),
        ("a.py::t PASSED [ 1%]", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_how_sure_it_is(tmp_path, text, low, high):
    assert low <= Reportlog().match(written(tmp_path, text)) <= high


def test_what_has_no_record_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="no record"):
        told(Reportlog(), written(tmp_path, '{"a": 1}\n'))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
KEYS = [
    "nodeid", "when", "outcome", "duration", "longrepr", "start", "stop", "wasxfail", "exitstatus",
]  # fmt: skip
TYPES = ["TestReport", "CollectReport", "SessionStart", "SessionFinish", "WarningMessage", 7]
RECORDS = st.builds(
    lambda kind, rest: {"$report_type": kind, **rest},
    st.sampled_from(TYPES),
    st.dictionaries(
        st.sampled_from([*KEYS, "_subtest.context", "message", "pytest_version"]),
        st.sampled_from(["call", "setup", "teardown", "???", "failed", "skipped", "rerun"])
        | VALUES,
    ),
)


def survives(folder, raw):
    """Anything but UnreadableError is a defect."""
    log = written(folder, raw)
    assert 0 <= Reportlog().match(log) <= 1
    try:
        return told(Reportlog(), log)
    except UnreadableError:
        return None


@FREE
@given(records=st.lists(RECORDS, max_size=12))
def test_records_of_any_content_are_read_or_refused(tmp_path, records):
    said = survives(tmp_path, text_of(*records))
    for test in said.first.values() if said else ():
        assert isinstance(test.message + test.text + test.reason, str)
        assert test.duration_s is None or test.duration_s == test.duration_s


@FREE
@given(raw=st.binary(max_size=400), at=st.integers(0, 1_500))
def test_bytes_in_the_middle_of_a_log_are_read_or_refused(tmp_path, raw, at):
    whole = text_of(START, *phases("a.py::t", call="failed", longrepr=CRASH), FINISH).encode()
    survives(tmp_path, whole[:at] + raw + whole[at:])


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"$report_type":' * 50_000, b"1" * 10_000])
def test_nesting_without_end(tmp_path, raw):
    assert survives(tmp_path, raw) is None


@pytest.mark.parametrize("word", ["Failed", "error", "timeout", None, ["passed"]])
@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_an_unknown_outcome_is_no_pass_and_makes_the_log_inconsistent(tmp_path, when, word):
    steps = ("setup", "call", "teardown")
    mine = [report("a.py::t", step, word if step == when else "passed") for step in steps]
    said = read(tmp_path, *phases("a.py::b"), *mine)
    assert said.tests == {"a.py::b": PASSED, "a.py::t": MISSING}
    assert f"{word!r} is no outcome that is known" in errors(said)


def test_a_failure_beside_an_unknown_outcome_stays_a_failure(tmp_path):
    said = read(tmp_path, *phases("a.py::t", call="failed", teardown="weird"))
    assert said.tests == {"a.py::t": FAILED}


@pytest.mark.parametrize("is_set_up_again", [False, True])
def test_a_test_that_pytest_retry_tried_again_has_its_earlier_outcome(tmp_path, is_set_up_again):
    again = [report("a.py::t", "teardown"), report("a.py::t", "setup")] if is_set_up_again else []
    said = read(
        tmp_path,
        report("a.py::t", "setup"),
        report("a.py::t", "call", "retried"),
        *again,
        report("a.py::t", "call"),
        report("a.py::t", "teardown"),
    )
    assert not errors(said)
    assert said.tests == {"a.py::t": PASSED}
    assert said.first["a.py::t"].earlier == (FAILED,)


def test_a_retry_without_another_call_is_no_pass(tmp_path):
    said = read(
        tmp_path,
        report("a.py::t", "setup"),
        report("a.py::t", "call", "retried"),
        report("a.py::t", "teardown"),
    )
    assert said.tests == {"a.py::t": MISSING}


def test_the_exit_code_for_no_tests_contradicts_tests(tmp_path):
    end = {**FINISH, "exitstatus": 5}
    said = read(tmp_path, *phases("a.py::t"), end=end)
    assert errors(said)
    assert said.end.exit_code == 1
    assert not errors(read(tmp_path, end=end))


def test_a_torn_record_behind_the_end_makes_the_log_inconsistent(tmp_path):
    whole = text_of(START, *phases("a.py::t"))
    for text, level in ((whole, "warning"), (whole + text_of(FINISH), "error")):
        said = told(Reportlog(), written(tmp_path, text + '{"nodeid": "a.py::u", "outc'))
        assert ("the last record is torn", level) in [(p.message, p.level) for p in said.problems]


def errors(said):
    return [problem.message for problem in said.problems if problem.level == "error"]
