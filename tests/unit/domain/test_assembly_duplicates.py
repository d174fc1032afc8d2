"""A log, beside it its reportlog and its JUnit XML: one suite, in which each test counts once."""

from __future__ import annotations

from collections import Counter

from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.outcome import TestOutcome as Result
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
    Provenance,
)
from tests.unit.domain.assembly_cases import cell_of, result_facts, text

PASSED, FAILED, ERROR, SKIPPED = Result.PASSED, Result.FAILED, Result.ERROR, Result.SKIPPED
XPASSED = Result.XPASSED
STRUCTURED = Provenance.STRUCTURED


def whole(name, outcomes, *, module="tests/test_a.py", took_s=2.0):
    """A document that names every test."""
    said = [*result_facts(module, outcomes), ParsedEnd(exit_code=0, duration_s=took_s)]
    return text(name, *said, provenance=STRUCTURED)


def quiet(name, outcomes, *named, took_s=2.5, provenance=Provenance.PARSED_TEXT):
    """A log without ``-v``: all are counted, some are named."""
    counts = Counter(outcome.word for outcome in outcomes)
    rest = counts - Counter(test.outcome.word for test in named)
    tally = ParsedTally("footer", len(outcomes), counts, took_s)
    return text(name, *named, ParsedUnnamedTests(rest), tally, provenance=provenance)


def total(cell):
    counted = Counts()
    for job in cell.jobs:
        counted += cell.counts(job)
    return counted


def told(cell, name):
    return [remark for remark in cell.source(name).remarks if "without naming" in remark]


def test_a_log_without_names_is_the_run_of_the_document_beside_it():
    outcomes = [PASSED, PASSED, SKIPPED]
    cell = cell_of(quiet("log.txt", outcomes), whole("log.jsonl", outcomes))
    assert list(cell.jobs) == ["a"]
    assert cell.counts("a") == Counts(passed=2, skipped=1)
    assert cell.verdict("a") is Outcome.PASSED
    assert told(cell, "log.txt") == [
        "tests that it counts without naming them, taken for those that log.jsonl names: 3"
    ]
    assert cell.source("log.txt").named == 3


def test_a_pass_against_expectation_has_no_word_in_junit():
    cell = cell_of(quiet("log.txt", [PASSED, XPASSED]), whole("junit.xml", [PASSED, PASSED]))
    assert total(cell) == Counts(passed=2)


def test_other_counts_or_a_longer_run_are_another_run():
    for other in (
        whole("log.jsonl", [PASSED, PASSED, SKIPPED]),
        whole("log.jsonl", [PASSED, SKIPPED]),
        whole("log.jsonl", [PASSED, PASSED], took_s=60.0),
    ):
        cell = cell_of(quiet("log.txt", [PASSED, PASSED]), other)
        assert told(cell, "log.txt") == []
        assert total(cell).passed == 2 + sum(
            said.outcome is PASSED for said in other.items if isinstance(said, ParsedTest)
        )


def test_a_log_that_names_what_failed_is_of_the_same_tests_whatever_else_they_did():
    outcomes = [FAILED, PASSED, SKIPPED]
    [bad, *_] = result_facts("tests/test_a.py", outcomes)
    again = whole("log.jsonl", [FAILED, PASSED, PASSED], took_s=60.0)
    cell = cell_of(quiet("log.txt", outcomes, bad), again)
    assert total(cell) == Counts(failed=1, passed=2)
    assert cell.verdict("a") is Outcome.FAILED


def test_failures_that_nobody_names_are_kept():
    outcomes = [FAILED, FAILED, PASSED]
    [bad, *_] = result_facts("tests/test_a.py", outcomes)
    cell = cell_of(quiet("log.txt", outcomes, bad), whole("log.jsonl", [FAILED, PASSED, PASSED]))
    assert told(cell, "log.txt") == []
    assert total(cell).failed == 2


def test_more_than_the_other_names_is_left_over():
    outcomes = [FAILED, PASSED, SKIPPED, SKIPPED]
    [bad, *_] = result_facts("tests/test_a.py", outcomes)
    cell = cell_of(quiet("log.txt", outcomes, bad), whole("log.jsonl", [FAILED, PASSED, SKIPPED]))
    assert total(cell) == Counts(failed=1, passed=1, skipped=2)


def test_what_a_person_typed_is_not_taken_for_a_run():
    typed = quiet("transcription.yaml", [PASSED], provenance=Provenance.TRANSCRIBED)
    assert total(cell_of(typed, whole("log.jsonl", [PASSED]))) == Counts(passed=2)


def modules(name, number, *, first=0, provenance=STRUCTURED):
    tests = [ParsedTest(f"tests/test_{n}.py::test_it", PASSED) for n in range(first, number)]
    return text(name, *tests, ParsedEnd(exit_code=0), provenance=provenance)


def test_documents_of_many_modules_are_one_suite_where_they_share_a_test():
    log = modules("log.txt", 13, provenance=Provenance.PARSED_TEXT)
    cell = cell_of(log, modules("log.jsonl", 13), modules("other.xml", 40, first=20))
    assert list(cell.jobs) == ["log", "other"]
    assert [cell.verdict(job) for job in cell.jobs] == [Outcome.PASSED, Outcome.PASSED]
    assert (cell.counts("log").passed, cell.counts("other").passed) == (13, 20)
    assert cell.source("log.jsonl").jobs == ("log",)


def test_a_try_and_its_repetition_contradict_nobody():
    again = [ParsedTest("tests/test_a.py::test_it", outcome) for outcome in (PASSED, FAILED)]
    [one, other] = (
        text("junit.xml", *again, provenance=STRUCTURED),
        text("log.jsonl", again[1], provenance=STRUCTURED),
    )
    for cell in (cell_of(one, other), cell_of(other, one)):
        assert cell.assembly.disagreements == ()
        assert total(cell) == Counts(failed=1)
