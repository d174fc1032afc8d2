"""CTRF of pytest and of others."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedTally,
    ParsedTest,
    ParsedVersion,
)
from tests.unit.result_parsers.foreign import (
    FOREIGN,
    artifact,
    errors,
    foreign,
    made,
    of_kind,
    outcomes,
    warnings,
)

DIALECT = Ctrf()
REAL = (FOREIGN / "pytest-ctrf.json").read_bytes()


def read(folder, value):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    return list(DIALECT.read(made(folder, text, "ctrf.json")))


def test_a_report_of_pytest():
    said = list(DIALECT.read(foreign("pytest-ctrf.json")))
    tests = {each.nodeid: each for each in of_kind(said, ParsedTest)}
    here = "tests/test_all.py::"
    assert len(tests) == 42
    assert tests[here + "test_err"].outcome is Outcome.ERROR
    assert tests[here + "test_err"].reason == "setup"
    assert tests[here + "test_xfail"].outcome is Outcome.XFAILED
    assert tests[here + "test_xfail"].reason == "known"
    assert tests[here + "test_skip"].reason == "because"
    assert tests[here + "test_bad"].message == "AssertionError: no"
    assert tests[here + "test_bad"].duration_s == 0.003
    assert "docs/guide.rst::guide.rst" in tests
    (tally,) = of_kind(said, ParsedTally)
    assert tally.total == 42
    assert tally.counts == {"passed": 21, "failed": 12, "skipped": 4, "xfailed": 3, "error": 2}
    assert ParsedEnvironment({"packages": {"pytest": "9.2.0"}}) in said
    assert errors(said) == warnings(said) == []


def test_tries_flakiness_and_states_of_others():
    said = list(DIALECT.read(foreign("ctrf-retries.json")))
    tests = {each.nodeid: each for each in of_kind(said, ParsedTest)}
    signs_in = tests["e2e/login.spec.ts::account > login::signs in"]
    assert signs_in.earlier == (Outcome.FAILED, Outcome.FAILED)
    assert tests["e2e/login.spec.ts::account::login::signs out"].earlier == (Outcome.FAILED,)
    assert tests["playwright::pays"].earlier == (Outcome.FAILED,)
    assert tests["playwright::refunds"].outcome is Outcome.SKIPPED
    assert tests["playwright::ships"].outcome is Outcome.MISSING
    assert warnings(said) == ["playwright::ships: other is no outcome"]
    assert ParsedVersion("shop", "2.4.1") in said
    assert of_kind(said, ParsedEnd) == [ParsedEnd(duration_s=3.5)]


@pytest.mark.parametrize(
    ("head", "confidence"),
    [
        ('{"reportFormat": "CTRF", "specVersion": "1.0.0", "results": {}}', 1.0),
        ('{"results": {"tool": {"name": "x"}, "summary": {}}}', 0.8),
        ('{"results": [1]}', 0.0),
        ("text", 0.0),
        ("", 0.0),
    ],
)
def test_how_sure_it_is(tmp_path, head, confidence):
    assert DIALECT.match(made(tmp_path, head, "ctrf.json")) == confidence


def test_a_sum_that_is_wrong_is_said(tmp_path):
    document = json.loads(REAL)
    document["results"]["tests"].pop()
    assert errors(read(tmp_path, document)) == ["its summary says 21 passed, but it contains 20"]


def test_a_torn_report_keeps_what_came(tmp_path):
    cut = REAL.index(b"test_teardown")
    said = read(tmp_path, REAL[:cut])
    assert outcomes(said)["tests/test_all.py::test_err"] is Outcome.ERROR
    assert errors(said) == ["torn: the document ends in its middle; what came before it is kept"]
    assert of_kind(said, ParsedTally) == of_kind(said, ParsedEnd) == []


def test_a_test_that_is_torn_is_missing(tmp_path):
    said = read(tmp_path, b'{"reportFormat":"CTRF","results":{"tests":[{"name":"a","sta')
    assert outcomes(said) == {"a": Outcome.MISSING}


def test_another_major_version_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match=r"CTRF 2\.0\.0"):
        read(tmp_path, {"reportFormat": "CTRF", "specVersion": "2.0.0", "results": {}})


@pytest.mark.parametrize("text", ["[]", "", "x", '"text"', '{"'])
def test_what_is_no_object_is_refused(tmp_path, text):
    with pytest.raises(UnreadableError):
        read(tmp_path, text)


def test_numbers_that_are_none_keys_that_stand_twice_and_depth(tmp_path):
    head = '{"reportFormat":"CTRF","results":{"tests":['
    durations = {"a": "NaN", "b": "-Infinity", "c": "1e999", "d": "9" * 5000, "e": "0"}
    odd = head + ",".join(
        f'{{"name":"{name}","status":"passed","duration":{duration}}}'
        for name, duration in durations.items()
    )
    said = read(tmp_path, odd + '],"summary":{"tests":5,"passed":5}}}')
    assert [t.duration_s for t in of_kind(said, ParsedTest)] == [None] * 5
    assert errors(said) == []
    twice = head + '{"name":"a","status":"failed","status":"passed"}]}}'
    assert "a key occurs twice" in " ".join(errors(read(tmp_path, twice)))
    deep = head + '{"name":"a","status":"passed","x":' + "[" * 500
    assert "nested deeper than 64" in errors(read(tmp_path, deep))[0]


def test_long_texts_are_cut_at_any_place(tmp_path):
    for length in (65_500, 1_048_570, 3_000_000):
        trace = "\\u00e9\\\\" * (length // 8)
        text = (
            '{"reportFormat":"CTRF","results":{"tests":[{"name":"a","status":"failed",'
            f'"trace":"{trace}"}},{{"name":"b","status":"passed"}}],"summary":{{"tests":2}}}}}}'
        )
        said = read(tmp_path, text)
        assert outcomes(said) == {"a": Outcome.FAILED, "b": Outcome.PASSED}
        assert len(of_kind(said, ParsedTest)[0].text) <= 66_000


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_and_bytes_that_are_no_text(tmp_path, codec):
    text = '{"reportFormat":"CTRF","results":{"tests":[{"name":"é","status":"passed"}]}}'
    document = made(tmp_path, text.encode(codec), "ctrf.json")
    assert DIALECT.match(document) == 1.0
    assert list(outcomes(DIALECT.read(document))) == ["é"]
    broken = text.encode().replace("é".encode(), b"\xff")
    assert list(outcomes(read(tmp_path, broken))) == ["\ufffd"]


def test_a_large_report_is_read_in_bounded_memory(tmp_path):
    trace = "E   assert 1 == 2\\n" * 5_000
    test = f'{{"name":"a","status":"failed","trace":"{trace}"}},'
    path = tmp_path / "artifact"
    with path.open("w") as file:
        file.write('{"reportFormat":"CTRF","results":{"tests":[')
        file.writelines(test for _ in range(100))
        file.write('{"name":"b","status":"passed"}]}}')
    document = artifact(path, "ctrf.json")
    assert document.size_bytes > 8_500_000
    tracemalloc.start()
    count = sum(isinstance(each, ParsedTest) for each in DIALECT.read(document))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 101
    assert peak < 8_000_000


TRIED = [{"attempt": 1, "status": "failed"}]


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"steps": [{"name": "open", "status": "passed"}]}, Outcome.PASSED),
        ({"steps": [{"name": "open", "status": "skipped"}, {"name": "x"}]}, Outcome.PASSED),
        ({"steps": [{"name": "open", "status": "failed"}]}, Outcome.FAILED),
        ({"steps": [{"name": "open", "status": "Broken"}]}, Outcome.FAILED),
        ({"steps": [{"name": "a", "steps": [{"name": "b", "status": "failed"}]}]}, Outcome.FAILED),
        ({"trace": "  at pay.spec.ts:3"}, Outcome.FAILED),
        ({"message": "AssertionError: no"}, Outcome.FAILED),
        ({"message": "assert 1 == 2"}, Outcome.FAILED),
        ({"message": "Error: expected 200"}, Outcome.FAILED),
        ({"message": "all well", "trace": ""}, Outcome.PASSED),
        ({"message": "Error: expected 200", "flaky": True}, Outcome.PASSED),
        ({"trace": "at pay.spec.ts:3", "retryAttempts": TRIED}, Outcome.PASSED),
    ],
)
def test_a_failure_within_a_test_that_passed_contradicts_it(tmp_path, more, outcome):
    test = {"name": "y", "status": "passed", "duration": 1, **more}
    said = read(tmp_path, {"results": {"tool": {"name": "x"}, "tests": [test]}})
    (told,) = of_kind(said, ParsedTest)
    assert (told.outcome, bool(told.message) or told.outcome is Outcome.PASSED) == (outcome, True)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"environment": {"healthy": True}}, ""),
        ({"environment": {"healthy": False}}, "it says that its environment was not healthy"),
        ({"environment": {"healthy": "false"}}, "it says that its environment was not healthy"),
        ({"summary": {"tests": 1, "passed": 1, "failed": 0}}, ""),
        ({"summary": {"failed": "one"}}, "its summary has no number of failed tests"),
    ],
)
def test_a_report_that_contradicts_itself_ends_its_job_badly(tmp_path, more, detail):
    test = {"name": "y", "status": "passed", "duration": 1}
    said = read(tmp_path, {"results": {"tool": {"name": "x"}, "tests": [test], **more}})
    (end,) = of_kind(said, ParsedEnd)
    assert (end.exit_code, end.detail) == (1 if detail else None, detail)
    assert errors(said) == ([detail] if detail else [])


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        ("failed", Outcome.FAILED),
        ("timedOut", Outcome.FAILED),
        ("broken", Outcome.ERROR),
        ("passed", Outcome.PASSED),
        ("xpassed", Outcome.XPASSED),
        ("", Outcome.PASSED),
    ],
)
def test_a_failure_beside_the_state_passed_is_one(tmp_path, raw, outcome):
    test = {"name": "y", "status": "passed", "rawStatus": raw, "duration": 1}
    said = read(tmp_path, {"results": {"tool": {"name": "x"}, "tests": [test]}})
    assert [one.outcome for one in of_kind(said, ParsedTest)] == [outcome]
