"""Exports over REST, and what our own dialects read in them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring

from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact, Dialect
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.outcome import TestOutcome as T
from orchestrator.domain.parsed_results import ParsedProblem, ParsedTest
from orchestrator.domain.run_record import Evidence
from reports.exports.registry import export
from tests.integration.api_context import Desk
from tests.unit.reports.builders import Jobs, cell_of, evidence_of
from tests.unit.reports.stories import every_test_outcome

FORMATS = {
    "junit": "application/xml",
    "ctrf": "application/json",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "intoto": "application/x-ndjson",
}
NAMES = (
    "tests/test_a.py::test_plain",
    "tests/test_a.py::TestB::test_c",
    "tests/deep/er/test_a.py::TestB::TestC::test_d[x]",
    "tests/test_a.py::test_e[a::b]",
    "tests/test_a.py::test_f[a.b/c]",
    "tests/test_a.py::test_g[with space]",
    "tests/test_a.py::test_h[<&>\"']",
    "tests/test_a.py::test_i[\N{SHIP}]",
    "tests/test_a.py::test_j[=1+2]",
    "tests/test_a.py::test_k[]]>]",
    "test_top.py::test_l",
    "tests/checks.py::Odd::test_m[1-2]",
)
COARSE = {T.MISSING: T.ERROR, T.NOT_RUN: T.ERROR}
"""JUnit XML has no words of its own for these."""
COARSE_CTRF = {T.MISSING: T.FAILED, T.NOT_RUN: T.FAILED}


def named_tests() -> list[TestFact]:
    every = [outcome for outcome in T if outcome is not T.NOT_RUN]
    return [
        TestFact("all", name, every[index % len(every)], True, 0.5, reason="why", message="said")
        for index, name in enumerate(NAMES)
    ]


def evidence(tests: list[TestFact]) -> Evidence:
    jobs = Jobs().suite("all", "All", tests, Outcome.FAILED)
    cell = cell_of(Platform(id="here", provider="local"), jobs, Outcome.FAILED)
    return evidence_of((cell, jobs), outcome=Outcome.FAILED)


def read_back(folder: Path, dialect: Dialect, form: str, told: Evidence) -> tuple[
    dict[str, ParsedTest], list[str]
]:  # fmt: skip
    data = "".join(export(form, told)).encode()
    path = folder / form
    path.write_bytes(data)
    artifact = Artifact(f"x.{form}", path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])
    assert dialect.match(artifact) > 0.9
    said = list(dialect.read(artifact))
    problems = [one.message for one in said if isinstance(one, ParsedProblem)]
    tests = [one for one in said if isinstance(one, ParsedTest)]
    assert len({test.nodeid for test in tests}) == len(tests)
    return {test.nodeid: test for test in tests}, problems


@pytest.mark.parametrize("make", [named_tests, every_test_outcome])
@pytest.mark.parametrize(
    ("form", "dialect", "coarse"),
    [("junit", JUnitXml(), COARSE), ("ctrf", Ctrf(), COARSE_CTRF)],
    ids=["junit", "ctrf"],
)
def test_our_dialects_read_the_same_tests_and_outcomes(
    tmp_path: Path, form: str, dialect: Dialect, coarse: dict[T, T], make: object
) -> None:
    tests = make()  # type: ignore[operator]
    found, problems = read_back(tmp_path, dialect, form, evidence(tests))
    assert {nodeid: test.outcome for nodeid, test in found.items()} == {
        test.nodeid: coarse.get(test.outcome, test.outcome) for test in tests
    }
    assert problems == []
    failed = {t.nodeid: t.message for t in tests if t.outcome is T.FAILED}
    assert {nodeid: found[nodeid].message for nodeid in failed} == failed


def test_tries_are_read_back(tmp_path: Path) -> None:
    name = "tests/t.py::test_a"
    told = evidence([TestFact("all", name, T.PASSED, True, 0.1, earlier=(T.FAILED, T.ERROR))])
    for form, dialect in (("junit", JUnitXml()), ("ctrf", Ctrf())):
        found, _ = read_back(tmp_path, dialect, form, told)
        assert found[name].earlier == (T.FAILED, T.ERROR)


@pytest.fixture(scope="module")
def finished(shared_api: Desk) -> str:
    run = str(shared_api.launch()["id"])
    for cell in ("here", "there"):
        agent = shared_api.begin(run, cell)
        agent.send(
            agent.manifest("t.py::test_a", "t.py::test_b", "t.py::test_c"),
            agent.test("t.py::test_a"),
            agent.test("t.py::test_b", "failed", longrepr="boom\x1b[0m]]>"),
        )
    shared_api.finish(run, "here", "there")
    return run


@pytest.mark.parametrize(("form", "media"), FORMATS.items())
def test_every_format_over_rest(shared_api: Desk, finished: str, form: str, media: str) -> None:
    answer = shared_api.client.get(f"/api/v1/runs/{finished}/export/{form}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["content-disposition"].startswith(
        f'attachment; filename="{finished}-{form}'
    )
    assert answer.text.count("t.py::test_b") >= 2 or form == "junit"
    one = shared_api.client.get(f"/api/v1/runs/latest/export/{form}", params={"cell": "here"})
    assert len(one.content) < len(answer.content)
    if form == "json":  # what the run's cells have in common names them all
        told = one.json()
        assert [cell["id"] for cell in told["cells"]] == list(told["tests"]) == ["here"]
    else:
        assert "there" not in one.text


def test_what_is_exported_can_be_read(shared_api: Desk, finished: str) -> None:

    def exported(form: str) -> str:
        return str(shared_api.client.get(f"/api/v1/runs/{finished}/export/{form}").text)

    cases = list(fromstring(exported("junit")).iter("testcase"))
    names = [case.get("name") for case in cases if case.get("file")]
    assert names == ["test_a", "test_b", "test_c"] * 2
    rows = [row for row in csv.DictReader(io.StringIO(exported("csv"))) if row["kind"] == "test"]
    assert [row["outcome"] for row in rows] == ["passed", "failed", "missing"] * 2
    shown = shared_api.client.get(f"/api/v1/runs/{finished}").json()
    told = json.loads(exported("json"))
    tests = told.pop("tests")
    assert told == shown
    listed = shared_api.client.get(f"/api/v1/runs/{finished}/cells/here/tests").json()["items"]
    assert tests["here"] == listed
    statements = [json.loads(line) for line in exported("intoto").splitlines()]
    assert [one["predicate"]["result"] for one in statements] == ["FAILED", "FAILED"]


@pytest.mark.parametrize("path", ["junitt", "junit?cell=nowhere", "xml"])
def test_what_there_is_not_is_a_problem(shared_api: Desk, finished: str, path: str) -> None:
    answer = shared_api.client.get(f"/api/v1/runs/latest/export/{path}")
    assert answer.status_code == 404
    assert answer.json()["status"] == 404
