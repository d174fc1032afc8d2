"""Exports: whatever happened is in them once, in the words of the format, and never as a pass."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from defusedxml.ElementTree import fromstring
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.ingested import Ingested, Source, SourceState
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.parsed_results import ParsedTally, ParsedTest, Provenance
from orchestrator.domain.run_record import Evidence
from reports.exports.entries import groups_of
from reports.exports.registry import FORMATS, ExportError, export
from reports.registry import model_of
from tests.unit.reports.builders import START, Jobs, T, cell_of, evidence_of, passing, results_of
from tests.unit.reports.stories import STORIES, local, not_available, release, story
from tests.unit.result_parsers.foreign import made

GOOD = {"passed", "skipped", "xfailed", "xpassed"}
FORMULA = ("=1+2", "+1", "-1", "@x", "\tx", "  =cmd()", "|calc", "＝1")


def _text(form: str, evidence: Evidence, cell: str | None = None) -> str:
    return "".join(export(form, evidence, cell=cell))


def _junit(evidence: Evidence) -> Element:
    found: Element = fromstring(_text("junit", evidence).encode(), forbid_dtd=True)
    return found


def _ctrf(evidence: Evidence) -> Any:
    return json.loads(_text("ctrf", evidence))["results"]


def _statements(evidence: Evidence) -> list[Any]:
    return [json.loads(line) for line in _text("intoto", evidence).splitlines()]


def _rows(evidence: Evidence) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_text("csv", evidence), newline="")))


def _one(tests: list[TestFact], outcome: Outcome | None = Outcome.PASSED) -> Evidence:
    jobs = Jobs().suite("x", "X", tests, outcome)
    return evidence_of((cell_of(Platform(id="here", provider="local"), jobs, outcome), jobs),
                       outcome=outcome)  # fmt: skip


def _ingested(evidence: Evidence, **changes: object) -> Evidence:
    """The same as if it had been handed in, by a person who typed it."""
    source = Source(
        name="report.yaml", digest="cd" * 32, size_bytes=9, state=SourceState.INCONSISTENT,
        provenance=Provenance.TRANSCRIBED,
    )  # fmt: skip
    ingested = Ingested(fingerprint="ef" * 32, ingested_at=START + timedelta(days=1),
                        dated_at=START, sources=(source,))  # fmt: skip
    (cell,) = evidence.record.cells
    job = replace(cell.jobs[0], **changes)  # type: ignore[arg-type]
    cell = replace(cell, ingested=ingested, jobs=(job, *cell.jobs[1:]))
    return replace(evidence, record=replace(evidence.record, cells=(cell,)))


@pytest.mark.parametrize("name", STORIES)
def test_every_export_of_every_story_has_every_test(name: str) -> None:
    evidence = story(name)
    tests = [test for told in evidence.tests.values() for test in told]
    document = _junit(evidence)
    cases = list(document.iter("testcase"))
    entries = [e for group in groups_of(evidence, evidence.record.cells) for e in group.entries]
    assert len(cases) == len(entries) >= len(tests)
    assert len(_ctrf(evidence)["tests"]) == len(_rows(evidence)) == len(entries)
    assert Counter(e.word for e in entries if e.kind == "test") == Counter(
        test.outcome.word for test in tests
    )


@pytest.mark.parametrize("name", STORIES)
def test_the_sums_of_a_junit_document_are_those_of_its_cases(name: str) -> None:
    document = _junit(story(name))
    for element in (document, *document.findall("testsuite")):
        cases = list(element.iter("testcase"))
        assert int(element.get("tests", "")) == len(cases)
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
            assert int(element.get(attribute, "")) == sum(c.find(tag) is not None for c in cases)


@pytest.mark.parametrize("name", STORIES)
def test_a_junit_document_says_how_its_total_comes_about(name: str) -> None:
    """Its tests are those of the report; demos and checks are counted beside them."""
    evidence = story(name)
    document = _junit(evidence)
    told = {p.get("name"): p.get("value") for p in document.findall("properties/property")}
    counts = evidence.record.counts
    assert told["tests"] == str(counts.collected)
    for word, number in counts.as_dict().items():
        assert told.get(f"tests.{word}", "0") == str(number)
    unnamed = sum(j.unnamed.collected for cell in evidence.record.cells for j in cell.jobs)
    others = sum(int(told[kind] or "") for kind in ("cases.check", "cases.job", "cases.cell"))
    assert told["cells"] == str(len(evidence.record.cells))
    assert told["jobs"] == str(sum(len(cell.jobs) for cell in evidence.record.cells))
    assert document.get("tests") == str(counts.collected - unnamed + others)


@pytest.mark.parametrize("name", STORIES)
def test_the_time_of_a_junit_document_is_that_of_its_suites(name: str) -> None:
    """A job takes longer than its tests: collecting, installing, a process that was killed."""
    document = _junit(story(name))
    times = [float(suite.get("time", "0")) for suite in document.findall("testsuite")]
    assert float(document.get("time", "0")) == pytest.approx(sum(times), abs=1e-5)


@pytest.mark.parametrize("name", STORIES)
def test_what_did_not_pass_is_green_nowhere(name: str) -> None:
    evidence = story(name)
    outcome = STORIES[name][1]
    document = _junit(evidence)
    is_red = int(document.get("failures", "")) + int(document.get("errors", "")) > 0
    assert is_red == (outcome not in (Outcome.PASSED, Outcome.NOT_AVAILABLE))
    assert (_ctrf(evidence)["summary"]["failed"] > 0) == is_red
    (told,) = _statements(evidence)
    assert (told["predicate"]["result"] == "FAILED") == (outcome is not Outcome.PASSED)


def test_missing_and_not_run_are_errors_of_that_type() -> None:
    evidence = story("every-outcome")
    types = Counter(found.get("type") for found in _junit(evidence).iter("error"))
    assert types["missing"] == 2
    assert types["not_run"] == 1
    assert types["crashed"] == types["hung"] == types["setup"] == 1
    raw = Counter(t["rawStatus"] for t in _ctrf(evidence)["tests"] if t["status"] == "failed")
    assert raw["missing"] == 2
    assert raw["not_run"] == 1
    failed = _statements(evidence)[0]["predicate"]["failedTests"]
    assert sum("test_missing" in name or "test_not_run" in name for name in failed) == 3


def test_a_job_that_failed_without_a_word_has_a_line_of_its_own() -> None:
    evidence = story("every-outcome")
    entries = [e for group in groups_of(evidence, evidence.record.cells) for e in group.entries]
    lines = {entry.nodeid: entry for entry in entries if entry.kind == "job"}
    assert {name: (entry.word, entry.is_good) for name, entry in lines.items()} == {
        "Nothing Collected": ("failed", False),
        "Out of Time": ("timed_out", False),
        "Says Nothing": ("passed", True),
        "Dies": ("failed", False),
    }


def test_an_optional_platform_that_is_not_there_spoils_nothing() -> None:
    evidence = story("not-available")
    (cell,) = evidence.record.cells
    for optional, skipped in ((True, 2), (False, 0)):
        asked = replace(cell, platform=replace(cell.platform, optional=optional))
        document = _junit(replace(evidence, record=replace(evidence.record, cells=(asked,))))
        found = {name: document.get(name) for name in ("tests", "errors", "skipped")}
        assert found == {"tests": "2", "errors": str(2 - skipped), "skipped": str(skipped)}


def test_a_run_of_many_platforms_has_a_suite_for_each_job_of_each_cell() -> None:
    evidence = release()
    names = [suite.get("name") for suite in _junit(evidence).findall("testsuite")]
    assert names == [f"{cell.id}/{job.id}" for cell in evidence.record.cells for job in cell.jobs]
    assert len(_statements(evidence)) == 4
    only = fromstring(_text("junit", evidence, "gcp-l4"))
    assert {str(s.get("name")).split("/")[0] for s in only.findall("testsuite")} == {"gcp-l4"}


def test_tests_that_are_only_counted_are_properties_and_pass_nowhere() -> None:
    unnamed = Counts(passed=10, failed=10)
    evidence = _ingested(_one([], Outcome.FAILED), unnamed=unnamed, counts=unnamed)
    document = _junit(evidence)
    properties = {p.get("name"): p.get("value") for p in document.iter("property")}
    assert (properties["unnamed.passed"], properties["unnamed.failed"]) == ("10", "10")
    assert (document.get("tests"), document.get("errors")) == ("1", "1")
    summary = _ctrf(evidence)["summary"]
    assert summary["passed"] == 0
    assert summary["extra"]["unnamed"] == {"here/x": {"passed": 10, "failed": 10}}
    predicate = _statements(evidence)[0]["predicate"]
    assert predicate["passedTests"] == []
    assert predicate["seatrial"]["unnamed"] == {"here/x": {"passed": 10, "failed": 10}}


def test_a_suite_of_tests_that_are_only_counted_has_no_case() -> None:
    unnamed = Counts(passed=20)
    evidence = _ingested(_one([]), unnamed=unnamed, counts=unnamed)
    assert _junit(evidence).get("tests") == "0"
    assert _statements(evidence)[0]["predicate"]["result"] == "WARNED"


def test_where_results_are_from_stands_in_every_format() -> None:
    evidence = _ingested(_one(passing("x", 2)))
    properties = {p.get("name"): p.get("value") for p in _junit(evidence).iter("property")}
    assert properties["provenance"] == "transcribed"
    assert properties["attested"] == "false"
    assert properties["source.0"] == f"report.yaml sha256:{'cd' * 32} (inconsistent)"
    results = _ctrf(evidence)
    assert results["environment"]["extra"]["cells"]["here"]["provenance"] == "transcribed"
    assert {test["extra"]["provenance"] for test in results["tests"]} == {"transcribed"}
    assert {row["provenance"] for row in _rows(evidence)} == {"transcribed"}
    (told,) = _statements(evidence)
    assert told["subject"][0]["digest"] == {"sha256": "ef" * 32}
    assert told["predicate"]["result"] == "WARNED"
    assert told["predicate"]["seatrial"]["warnings"] == [
        "a person typed it from a document",
        "report.yaml does not agree with itself",
    ]


def test_what_no_file_tells_is_left_out() -> None:
    tests = [replace(test, duration_s=0.0) for test in passing("x", 2)]
    evidence = _ingested(_one(tests), duration_s=None)
    assert all(case.get("time") is None for case in _junit(evidence).iter("testcase"))
    assert [suite.get("timestamp") for suite in _junit(evidence).findall("testsuite")] == [None]
    assert {row["duration_s"] for row in _rows(evidence)} == {""}
    measured = _one(tests)
    assert {row["duration_s"] for row in _rows(measured)} == {"0.000000"}


def test_the_junit_export_is_read_back_with_its_outcomes_and_its_zone(tmp_path: Path) -> None:
    words = [T.PASSED, T.XPASSED, T.XFAILED, T.SKIPPED]
    tests = [TestFact("x", f"tests/test_x.py::test_{n}", outcome, True, 0.1, "", "", "")
             for n, outcome in enumerate(words)]  # fmt: skip
    text = _text("junit", story("every-outcome"))
    zones = {str(suite.get("timestamp"))[-6:] for suite in fromstring(text).iter("testsuite")}
    assert zones == {"+00:00"}
    said = list(JUnitXml().read(made(tmp_path, _text("junit", _one(tests)), "junit.xml")))
    assert [one.outcome for one in said if isinstance(one, ParsedTest)] == words
    assert [one.counts for one in said if isinstance(one, ParsedTally)] == [
        {"passed": 1, "xpassed": 1, "xfailed": 1, "skipped": 1}
    ]


def test_statements() -> None:
    simulated, degraded, whole = (
        _statements(story(name))[0] for name in ("simulated", "l4-degraded", "local")
    )
    assert whole["_type"] == "https://in-toto.io/Statement/v1"
    assert whole["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert whole["subject"] == [{"name": "torchbridge 0.4.40", "digest": {"sha256": "ab" * 32}}]
    predicate = whole["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["configuration"][0] == {"name": "payload", "digest": {"sha256": "ab" * 32}}
    assert "moe: suites/test_moe.py::test_000" in predicate["passedTests"]
    assert not any("test_gpu" in name for names in (predicate["passedTests"],
                   predicate["failedTests"]) for name in names)  # fmt: skip
    assert simulated["predicate"]["result"] == degraded["predicate"]["result"] == "WARNED"
    assert simulated["predicate"]["seatrial"]["origin"]["simulated"] == "true"
    assert degraded["predicate"]["warnedTests"]


def test_a_statement_is_about_the_wheel_that_was_tested_and_names_its_payload() -> None:
    evidence = _one(passing("x", 2))
    wheel = replace(evidence.record.subject, wheel="cd" * 32)
    evidence = replace(evidence, record=replace(evidence.record, subject=wheel))
    (told,) = _statements(evidence)
    assert told["subject"] == [{"name": "torchbridge 0.4.40", "digest": {"sha256": "cd" * 32}}]
    payload = {"name": "payload", "digest": {"sha256": "ab" * 32}}
    assert told["predicate"]["configuration"][0] == payload
    (ingested,) = _statements(_ingested(evidence))
    assert ingested["subject"][0]["digest"] == {"sha256": "ef" * 32}, "the files that were read"


def test_tries_before_the_last_one() -> None:
    fact = TestFact("x", "tests/t.py::test_a", T.PASSED, True, earlier=(T.FAILED, T.ERROR))
    lost = replace(fact, nodeid="tests/t.py::test_b", outcome=T.FAILED, earlier=(T.FAILED,))
    evidence = _one([fact, lost], Outcome.FAILED)
    tests = _ctrf(evidence)["tests"]
    assert [(t["retries"], t["flaky"]) for t in tests] == [(2, True), (1, False)]
    assert [t["rawStatus"] for t in tests[0]["retryAttempts"]] == ["failed", "error"]
    assert _ctrf(evidence)["summary"]["flaky"] == 1
    first, second = _junit(evidence).iter("testcase")
    assert [child.tag for child in first] == ["flakyFailure", "flakyError"]
    assert [child.tag for child in second] == ["failure", "rerunFailure"]
    assert [row["tries"] for row in _rows(evidence)] == ["3", "2"]
    assert _statements(evidence)[0]["predicate"]["warnedTests"] == ["x: tests/t.py::test_a"]


def test_the_ctrf_document_has_what_its_schema_requires() -> None:
    document = json.loads(_text("ctrf", release()))
    assert (document["reportFormat"], document["specVersion"]) == ("CTRF", "1.0.0")
    results = document["results"]
    assert results["tool"]["name"] == "seatrial"
    summary = results["summary"]
    states = ("passed", "failed", "skipped", "pending", "other")
    assert summary["tests"] == sum(summary[name] for name in states) == len(results["tests"])
    assert Counter(t["status"] for t in results["tests"]) == Counter(
        {name: summary[name] for name in states if summary[name]}
    )
    assert isinstance(summary["start"], int)
    assert summary["stop"] >= summary["start"]
    for test in results["tests"]:
        assert test["name"]
        assert test["duration"] >= 0


@pytest.mark.parametrize("evil", FORMULA)
def test_a_spreadsheet_finds_no_formula(evil: str) -> None:
    evidence = _one(results_of("x", [(evil, T.FAILED)], message=evil, reason=evil), Outcome.FAILED)
    row = _rows(evidence)[0]
    for name in ("name", "message", "reason"):
        assert row[name].startswith("'")


def test_rows_have_every_column() -> None:
    rows = _rows(release())
    assert all(None not in row and None not in row.values() for row in rows)
    assert {row["cell"] for row in rows} == {cell.id for cell in release().record.cells}
    passed = next(row for row in rows if row["outcome"] == "passed" and row["kind"] == "test")
    assert passed["duration_s"] == "0.010000"


def test_hostile_names_stay_names() -> None:
    evidence = story("hostile")
    names = [test.nodeid for test in evidence.tests["rack-2"]]
    text = _text("junit", evidence)
    assert "\x1b" not in text
    assert "\x00" not in text
    cases = [
        case for case in _junit(evidence).iter("testcase") if str(case.get("classname")) != "d"
    ]
    assert len(cases) == len(names)
    for case, nodeid in zip(cases, names, strict=True):
        kept = {p.get("name"): p.get("value") for p in case.iter("property")}
        told = kept.get("nodeid")
        found = json.loads(told) if told else f"{case.get('file')}::{case.get('name')}"
        assert found == nodeid


@pytest.mark.parametrize(("form", "cell"), [("junitt", None), ("junit", "nowhere")])
def test_what_there_is_not_is_refused_at_once(form: str, cell: str | None) -> None:
    with pytest.raises(ExportError):
        export(form, story("local"), cell=cell)


def test_tests_are_streamed_one_by_one() -> None:
    evidence = _one(passing("x", 300))
    for form in FORMATS:
        pieces = list(export(form, evidence))
        assert form == "intoto" or len(pieces) > 150


_ANY = st.text(st.characters(codec=None), max_size=40)


@given(st.lists(st.tuples(_ANY, st.sampled_from(list(T)), _ANY), max_size=6))
def test_any_words_make_documents_that_can_be_read(told: list[tuple[str, T, str]]) -> None:
    tests = [TestFact("x", name, outcome, True, 0.1, said, said, said)
             for name, outcome, said in told]  # fmt: skip
    evidence = _one(tests, Outcome.FAILED)
    cases = list(_junit(evidence).iter("testcase"))
    assert len(cases) >= len(tests)
    assert len(_ctrf(evidence)["tests"]) == len(_rows(evidence)) == len(cases)
    assert len(_statements(evidence)) == 1
    bad = sum(test.outcome.word not in GOOD for test in tests)
    assert sum(t["status"] == "failed" for t in _ctrf(evidence)["tests"]) == (bad or 1)


def test_a_cell_in_which_nothing_was_recorded_has_no_provenance() -> None:
    evidence = evidence_of(local(), not_available(), outcome=Outcome.PASSED)
    here, nowhere = evidence.record.cells
    assert {row["cell"]: row["provenance"] for row in _rows(evidence)} == {
        here.id: "agent",
        nowhere.id: "none",
    }
    assert {t["extra"]["cell"]: t["extra"]["provenance"] for t in _ctrf(evidence)["tests"]} == {
        here.id: "agent",
        nowhere.id: "none",
    }
    assert [column.provenance for column in model_of("results", evidence).columns] == [
        "agent",
        "none",
    ]


@pytest.mark.parametrize("name", STORIES)
def test_a_ctrf_document_says_how_its_total_comes_about(name: str) -> None:
    """As a JUnit document does, in the same words."""
    evidence = story(name)
    said = _ctrf(evidence)["summary"]["extra"]
    told = {p.get("name"): p.get("value") for p in _junit(evidence).findall("properties/property")}
    assert {key: str(number) for key, number in said.items() if key != "unnamed"} == told
