"""What pytest-json-report writes."""

from __future__ import annotations

import json

import pytest

from orchestrator.adapters.result_parsers.json_report import PytestJsonReport
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import ParsedEnd, ParsedEnvironment, ParsedTally, ParsedTest
from tests.unit.result_parsers.foreign import (
    FOREIGN,
    errors,
    foreign,
    made,
    of_kind,
    outcomes,
    warnings,
)

DIALECT = PytestJsonReport()
REAL = (FOREIGN / "pytest-json-report.json").read_bytes()


def read(folder, value):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    return list(DIALECT.read(made(folder, text, "report.json")))


def test_a_real_report():
    document = foreign("pytest-json-report.json")
    said = list(DIALECT.read(document))
    tests = {each.nodeid: each for each in of_kind(said, ParsedTest)}
    here = "tests/test_all.py::"
    assert DIALECT.match(document) == 0.95
    assert len(tests) == 44
    assert tests[here + "test_xpass"].outcome is Outcome.XPASSED
    assert tests[here + "test_both"].outcome is Outcome.FAILED
    assert tests[here + "test_both"].message == "assert 0"
    assert tests[here + "test_teardown"].outcome is Outcome.ERROR
    assert tests[here + "test_teardown"].reason == "teardown"
    assert tests[here + "test_subs_ok"].outcome is Outcome.PASSED
    assert tests[here + "test_subs_skip"].outcome is Outcome.PASSED
    assert tests[here + "MyCase::test_usub"].outcome is Outcome.FAILED
    assert tests[here + "test_skip"].reason == "because"
    assert tests["tests/test_broken.py"].reason == "collection"
    assert tests["tests/test_modskip.py"].reason == "whole module"
    announced, summed = of_kind(said, ParsedTally)
    assert (announced.where, announced.total, summed.total) == ("collected", 44, 44)
    assert sum(summed.counts.values()) == 44
    assert of_kind(said, ParsedEnd)[0].exit_code == 1
    assert errors(said) == warnings(said) == []


@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
@pytest.mark.parametrize("key", ["longrepr", "crash"])
def test_a_phase_that_passed_with_a_failures_text_failed(tmp_path, phase, key):
    document = json.loads(REAL)
    test = next(one for one in document["tests"] if one["outcome"] == "passed")
    test[phase][key] = {"message": "KeyError: 1"} if key == "crash" else "E   KeyError: 1"
    said = read(tmp_path, document)
    wanted = Outcome.FAILED if phase == "call" else Outcome.ERROR
    (told,) = [one for one in of_kind(said, ParsedTest) if one.nodeid == test["nodeid"]]
    assert (told.outcome, told.message) == (wanted, "KeyError: 1")


def test_the_worker_of_a_phase_is_no_failures_text(tmp_path):
    document = json.loads(REAL)
    test = next(one for one in document["tests"] if one["outcome"] == "passed")
    test["call"]["longrepr"] = "[gw0] linux -- Python 3.11.7 /opt/python/bin/python\n"
    (told,) = [
        one for one in of_kind(read(tmp_path, document), ParsedTest) if one.nodeid == test["nodeid"]
    ]
    assert told.outcome == Outcome.PASSED


def test_what_pytest_metadata_adds(tmp_path):
    document = json.loads(REAL)
    document["environment"] = {
        "Python": "3.11.7",
        "Platform": "Linux-6.1-x86_64",
        "Packages": {"pytest": "9.2.0", "broken": None},
        "Plugins": {"xdist": "3.8.0"},
    }
    (environment,) = of_kind(read(tmp_path, document), ParsedEnvironment)
    assert environment.facts == {
        "python": "3.11.7",
        "packages": {"pytest": "9.2.0", "xdist": "3.8.0"},
        "machine": {"os": "Linux-6.1-x86_64"},
    }


def test_deselected_tests_are_not_announced(tmp_path):
    document = json.loads(REAL)
    document["summary"] |= {"collected": 50, "deselected": 8}
    assert of_kind(read(tmp_path, document), ParsedTally)[0].total == 44


def test_a_test_that_was_tried_again_went_as_its_last_try(tmp_path):
    fine, skipped = {"outcome": "passed"}, {"outcome": "skipped", "longrepr": "('a', 1, 'why')"}
    last = {"passes": [fine, fine], "skips": [fine, skipped], "skips_early": [skipped], "none": []}
    tests = [
        {"nodeid": name, "outcome": "rerun"} | dict(zip(("setup", "call"), phases, strict=False))
        for name, phases in last.items()
    ]
    summary = {"rerun": 4, "total": 4, "collected": 4}
    whole = {"created": 1.5, "duration": 1.5, "exitcode": 0, "summary": summary, "tests": tests}
    said = read(tmp_path, whole)
    passed, skipped, missing = Outcome.PASSED, Outcome.SKIPPED, Outcome.MISSING
    assert list(outcomes(said).values()) == [passed, skipped, skipped, missing]
    assert {each.earlier for each in of_kind(said, ParsedTest)} == {(Outcome.FAILED,)}
    (_, tally) = of_kind(said, ParsedTally)
    assert (tally.total, tally.counts) == (4, {"passed": 1, "skipped": 2, "missing": 1})
    assert warnings(said) == ["none: rerun is no outcome"]


def test_a_test_that_was_taken_out_is_seen(tmp_path):
    document = json.loads(REAL)
    del document["tests"][5]
    said = read(tmp_path, document)
    assert errors(said) == ["its summary says 11 failed, but it contains 10"]


def test_a_torn_report_keeps_what_came(tmp_path):
    cut = REAL.index(b'"nodeid": "tests/test_all.py::test_norun", "lineno": 12, "outcome"')
    said = read(tmp_path, REAL[:cut])
    assert outcomes(said)["tests/test_all.py::test_xpass"] is Outcome.XPASSED
    assert errors(said)[-1] == (
        "torn: the document ends in its middle; what came before it is kept"
    )
    assert of_kind(said, ParsedEnd) == []


def test_an_unknown_outcome_is_none(tmp_path):
    document = {"created": 1.0, "tests": [{"nodeid": "a", "outcome": "wonderful"}]}
    said = read(tmp_path, document)
    assert outcomes(said) == {"a": Outcome.MISSING}
    assert "a: wonderful is no outcome" in warnings(said)


@pytest.mark.parametrize("odd", [{"a": 1}, ["passed"], 7, True, None, "wonderful"], ids=repr)
@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_an_outcome_of_a_phase_may_be_anything(tmp_path, phase, odd):
    test = {"nodeid": "a", "outcome": "passed", phase: {"outcome": odd, "longrepr": odd}}
    said = read(tmp_path, {"created": 1.0, "tests": [test]})
    assert outcomes(said) == {"a": Outcome.PASSED}


@pytest.mark.parametrize("other", ["pytest-ctrf.json", "pytest-benchmark.json", "go.xml"])
def test_other_documents_are_not_its_own(other):
    assert DIALECT.match(foreign(other)) == 0.0
