"""JUnit XML of pytest and of others."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from orchestrator.adapters.result_parsers.junit import JunitTestIds, JUnitXml, pytest_nodeid
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedNotice,
    ParsedTally,
    ParsedTest,
)
from tests.unit.result_parsers.foreign import (
    FOREIGN,
    errors,
    foreign,
    made,
    of_kind,
    outcomes,
    warnings,
)

DIALECT = JUnitXml()
REAL = (FOREIGN / "pytest-xunit2.xml").read_bytes()


def read(folder, text, name="junit.xml"):
    return list(DIALECT.read(made(folder, text, name)))


def test_both_families_of_one_run_name_the_same_tests():
    first, second = (
        outcomes(DIALECT.read(foreign(f"pytest-xunit{family}.xml"))) for family in (1, 2)
    )
    assert first == second
    assert len(first) == 44


def test_every_outcome_of_pytest():
    said = list(DIALECT.read(foreign("pytest-xunit2.xml")))
    tests = {each.nodeid: each for each in of_kind(said, ParsedTest)}
    here = "tests/test_all.py::"
    expected = {
        "test_ok": (Outcome.PASSED, ""),
        "test_bad": (Outcome.FAILED, ""),
        "test_skip": (Outcome.SKIPPED, "because"),
        "test_skip_inside": (Outcome.SKIPPED, "inside <&>"),
        "test_xfail": (Outcome.XFAILED, "known"),
        "test_xpass_strict": (Outcome.FAILED, ""),
        "test_err": (Outcome.ERROR, "setup"),
        "test_teardown": (Outcome.ERROR, "teardown"),
        "test_both": (Outcome.FAILED, ""),
        "test_subs": (Outcome.FAILED, ""),
        "MyCase::test_us": (Outcome.SKIPPED, "us"),
        "TestY::TestInner::test_deep": (Outcome.PASSED, ""),
        "test_p[a::b]": (Outcome.PASSED, ""),
        "test_p[a/b.py]": (Outcome.PASSED, ""),
        "test_p[[x]]": (Outcome.FAILED, ""),
    }
    found = {n: (tests[here + n].outcome, tests[here + n].reason) for n in expected}
    assert found == expected
    assert tests[here + "test_bad"].message == "AssertionError: no"
    assert "assert 0" in tests[here + "test_both"].text
    assert "teardown broke" in tests[here + "test_both"].text
    assert tests["tests/test_broken.py"].reason == "collection"
    assert tests["tests/test_broken.py"].message.startswith("ModuleNotFoundError")
    assert tests["tests/test_modskip.py"].reason == "whole module"
    assert tests["src/pkg/mod.py::pkg.mod.f"].outcome is Outcome.FAILED
    assert tests["docs/guide.rst::guide.rst"].outcome is Outcome.FAILED
    assert tests["tests/test_child.py::TestChild::test_inherited"].outcome is Outcome.PASSED


def test_its_sum_agrees_with_what_it_names_although_pytest_counts_reports():
    said = list(DIALECT.read(foreign("pytest-xunit2.xml")))
    (tally,) = of_kind(said, ParsedTally)
    assert tally.total - 7 == len(outcomes(said)) == sum(tally.counts.values())
    assert errors(said) == warnings(said) == []
    assert of_kind(said, ParsedNotice) == [
        ParsedNotice(
            "pytest counts 7 more than it names: subtests that passed, or tests that were taken "
            "out of it; its log or reportlog beside it tells which"
        )
    ]
    assert of_kind(said, ParsedEnvironment) == [
        ParsedEnvironment({"machine": {"hostname": "builder"}})
    ]


SUITE = (
    '<testsuites name="pytest tests"><testsuite name="pytest" {sums}>{cases}</testsuite>'
    "</testsuites>"
)
AFTER = '<error message="failed on teardown with &quot;RuntimeError: x&quot;">E x</error>'
CASES = (
    '<testcase classname="test_x" name="test_a" />'
    f'<testcase classname="test_x" name="test_b">{AFTER}</testcase>'
    f'<testcase classname="test_x" name="test_e">{AFTER}</testcase>'
    '<testcase classname="test_x" name="test_c"><failure message="no">E no</failure></testcase>'
    f'<testcase classname="test_x" name="test_c">{AFTER}</testcase>'
    f'<testcase classname="test_x" name="test_s"><skipped message="s" />{AFTER}</testcase>'
)


@pytest.mark.parametrize(("pytest_is", "tests"), [("8.4", 8), ("9.2", 6)])
def test_both_ways_in_which_pytest_counts_teardowns_are_consistent(
    tmp_path, pytest_is: str, tests: int
) -> None:
    sums = f'errors="4" failures="1" skipped="1" tests="{tests}"'
    said = read(tmp_path, SUITE.format(sums=sums, cases=CASES).encode())
    (tally,) = of_kind(said, ParsedTally)
    assert (tally.total, sum(tally.counts.values())) == (5, 5)
    assert errors(said) == warnings(said) == []


def test_a_failure_that_was_taken_out_is_seen(tmp_path):
    begin = REAL.index(b'<testcase classname="tests.test_all" name="test_bad"')
    end = REAL.index(b"</testcase>", begin) + len(b"</testcase>")
    said = read(tmp_path, REAL[:begin] + REAL[end:])
    assert errors(said) == [
        "pytest counts 18 failures or errors, and contains 17",
    ]


EXIT_CODE = '<properties><property name="exit_code" value="{}"/></properties>'
SAID = '<properties><property name="{}" value="{}"/></properties>'
INNER = (
    '<testsuites><testsuite name="a" tests="1"><testsuite name="b" {}>{}'
    "</testsuite></testsuite></testsuites>"
)
CASE = '<testcase name="t"/>'
PROPERTY = '<testcase name="t"><properties><property name="{}" value="{}"/></properties></testcase>'


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        (INNER.format('failures="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (INNER.format('errors="2"', CASE), "b counts 2 failures or errors, and contains 0"),
        (INNER.format("", f"{CASE}<error message='no server'/>"), "no server"),
        (
            f'<testsuites failures="1"><testsuite tests="1">{CASE}</testsuite></testsuites>',
            "testsuites counts 1 failure or error, and contains 0",
        ),
        (
            f'<testsuite name="pytest" tests="1" skipped="1">{CASE}</testsuite>',
            "it says 1 skipped, but it contains 0",
        ),
        (INNER.format('timeouts="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (INNER.format('failed="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (INNER.format('unexpected="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (INNER.format('cancelled="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (INNER.format("", f"{CASE}<timeout/>"), "<timeout>"),
        (INNER.format('aborted="1"', CASE), "b counts 1 failure or error, and contains 0"),
        (
            INNER.format('aborted="true"', CASE),
            'b says aborted="true", and none of its tests failed',
        ),
        (
            INNER.format('status="incomplete"', CASE),
            'b says status="incomplete", and none of its tests failed',
        ),
        (
            INNER.format('failures="one"', CASE),
            'b says failures="one", and none of its tests failed',
        ),
        (
            INNER.format('errors="-1"', CASE),
            'b says errors="-1", and none of its tests failed',
        ),
        (
            INNER.format('exitcode="1"', CASE),
            'b says exitcode="1", and none of its tests failed',
        ),
        (
            INNER.format("", SAID.format("result", "FAILURE") + CASE),
            'b says result="FAILURE", and none of its tests failed',
        ),
        (
            INNER.format("", SAID.format("success", "false") + CASE),
            'b says success="false", and none of its tests failed',
        ),
        (
            INNER.format("", EXIT_CODE.format(137) + CASE),
            'b says exit_code="137", and none of its tests failed',
        ),
    ],
)
def test_failures_that_no_testcase_has_are_told_and_end_the_job_badly(tmp_path, document, detail):
    said = read(tmp_path, document)
    assert [(end.exit_code, end.detail) for end in of_kind(said, ParsedEnd)] == [(1, detail)]
    assert any(detail in message for message in errors(said))


@pytest.mark.parametrize(
    "document",
    [
        INNER.format('failures="1"', '<testcase name="t"><failure/></testcase>'),
        INNER.format("", EXIT_CODE.format(0) + CASE),
        INNER.format("", EXIT_CODE.format(1) + '<testcase name="t"><failure/></testcase>'),
        INNER.format('failures="" errors="0.0" failed="none" exitcode="00" killed="false"', CASE),
        INNER.format('failures="one"', '<testcase name="t"><failure/></testcase>'),
        INNER.format("", SAID.format("result", "fast") + SAID.format("failed", "x") + CASE),
        INNER.format('failures="0"', '<testcase name="t"><flakyFailure/></testcase>'),
        INNER.format('errors="1"', '<testcase name="t" status="error"/>'),
        INNER.format('failures="1"', '<testcase name="t"><failure/><rerunFailure/></testcase>'),
        INNER.format('timeouts="1" errors="1"', '<testcase name="t"><error/></testcase>'),
        INNER.format('timeouts="0" aborted="0" success="true" executed="3"', CASE),
        INNER.format('passed="1" failed="0"', f"<timeout>60</timeout>{CASE}"),
        INNER.format('failed="1" passed="0"', '<testcase name="t"><failure/></testcase>'),
        INNER.format('aborted="false" status="Finished" result="Passed"', CASE),
        INNER.format('result="Failed"', '<testcase name="t"><failure/></testcase>'),
        INNER.format('result="Ignored"', '<testcase name="t"><skipped/></testcase>'),
    ],
)
def test_sums_that_agree_with_the_testcases_are_no_alarm(tmp_path, document):
    said = read(tmp_path, document)
    assert [end.exit_code for end in of_kind(said, ParsedEnd)] == [None]
    assert errors(said) == []


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ('<testcase name="t"><Failure message="x"/></testcase>', Outcome.FAILED),
        ('<testcase name="t"><crash message="SIGSEGV"/></testcase>', Outcome.ERROR),
        ('<testcase name="t"><timeout>5</timeout></testcase>', Outcome.PASSED),
        ('<testcase name="t"><timeout/></testcase>', Outcome.ERROR),
        ('<testcase name="t"><aborted message="by a person"/></testcase>', Outcome.ERROR),
        ('<testcase name="t"><cancelled/></testcase>', Outcome.ERROR),
        ('<testcase name="t"><assertion-failed/></testcase>', Outcome.FAILED),
        ('<testcase name="t"><killed>by signal 9</killed></testcase>', Outcome.ERROR),
        ('<testcase name="t" state="failed"/>', Outcome.FAILED),
        ('<testcase name="t" state="passed"/>', Outcome.PASSED),
        ('<testcase name="t" state="not-run"/>', Outcome.SKIPPED),
        ('<testcase name="t" passed="false"/>', Outcome.FAILED),
        ('<testcase name="t" passed="true"/>', Outcome.PASSED),
        ('<testcase name="t"><steps/><system-out>failure</system-out></testcase>', Outcome.PASSED),
        ('<testcase name="t" status="failed"/>', Outcome.FAILED),
        ('<testcase name="t" status="run" result="completed"/>', Outcome.PASSED),
        ('<testcase name="t" result="Error"/>', Outcome.ERROR),
        ('<testcase name="t" Result="Failed"/>', Outcome.FAILED),
        ('<testcase name="t" status="errored"/>', Outcome.ERROR),
        ('<testcase name="t" status="timeout"/>', Outcome.ERROR),
        ('<testcase name="t" outcome="Timed out"/>', Outcome.ERROR),
        ('<testcase name="t" STATUS="timed_out"/>', Outcome.ERROR),
        ('<testcase name="t" status="aborted"/>', Outcome.ERROR),
        ('<testcase name="t" result="crashed"/>', Outcome.ERROR),
        ('<testcase name="t" Status="NotRun"/>', Outcome.SKIPPED),
        ('<testcase name="timeout" timeout="failed"/>', Outcome.PASSED),
        ('<testcase name="t" result="KO"/>', Outcome.FAILED),
        ('<testcase name="t" success="false"/>', Outcome.FAILED),
        ('<testcase name="t" success="True" executed="true" result="OK"/>', Outcome.PASSED),
        ('<testcase name="t" executed="false"/>', Outcome.ERROR),
        ('<testcase name="t" executed="False" result="Ignored"/>', Outcome.SKIPPED),
        (
            '<testcase name="t" executed="False" success="false"><skipped/></testcase>',
            Outcome.SKIPPED,
        ),
        ('<testcase name="t" status="incomplete" completed="false"/>', Outcome.ERROR),
        ('<testcase name="t" status="Not Runnable"/>', Outcome.ERROR),
        ('<testcase name="t" result="Inconclusive"/>', Outcome.ERROR),
        ('<testcase name="t" result="Inconclusive"><skipped/></testcase>', Outcome.SKIPPED),
        ('<testcase name="t" aborted="true"/>', Outcome.ERROR),
        ('<testcase name="t" aborted="false" status="0" result=""/>', Outcome.PASSED),
        ('<testcase name="t" result="3.14"/>', Outcome.PASSED),
        ('<testcase name="t" failed="true"/>', Outcome.FAILED),
        ('<testcase name="t" failures="1"/>', Outcome.FAILED),
        ('<testcase name="t" failures="one"/>', Outcome.FAILED),
        ('<testcase name="t" errors="1"/>', Outcome.ERROR),
        ('<testcase name="t" exitcode="1"/>', Outcome.ERROR),
        ('<testcase name="t" return_code="-11"/>', Outcome.ERROR),
        ('<testcase name="t" failure="not equal"/>', Outcome.FAILED),
        ('<testcase name="t" failed="False" failures="0" error="" exit-code="0"/>', Outcome.PASSED),
        ('<testcase name="t" regression="true" timeout="60"/>', Outcome.PASSED),
        ('<testcase name="t"><system-err>2 failures</system-err></testcase>', Outcome.PASSED),
        (PROPERTY.format("exit_code", "1"), Outcome.PASSED),
        ('<testcase name="t"><failed/></testcase>', Outcome.FAILED),
        (PROPERTY.format("result", "fast"), Outcome.PASSED),
        (PROPERTY.format("Outcome", "Crashed"), Outcome.ERROR),
        (PROPERTY.format("outcome", "failed"), Outcome.FAILED),
        (PROPERTY.format("reason", "failed"), Outcome.PASSED),
        (PROPERTY.format("status", "200"), Outcome.PASSED),
    ],
)
def test_a_failure_may_be_an_attribute_or_a_property(tmp_path, case, outcome):
    said = read(tmp_path, f'<testsuite name="s">{case}</testsuite>')
    assert [test.outcome for test in of_kind(said, ParsedTest)] == [outcome]


@pytest.mark.parametrize(
    ("classname", "name", "file", "nodeid"),
    [
        ("tests.test_x.TestY", "test_z[p]", "", "tests/test_x.py::TestY::test_z[p]"),
        ("tests.test_x", "test_z[a::b.c]", "", "tests/test_x.py::test_z[a::b.c]"),
        ("test_x", "test_z", "", "test_x.py::test_z"),
        ("pkg.sub.queue_test.Deep.Deeper", "test_z", "",
         "pkg/sub/queue_test.py::Deep::Deeper::test_z"),
        ("tests.test_x.lower", "test_z", "tests/test_x.py", "tests/test_x.py::lower::test_z"),
        ("tests.test_x.TestY", "test_z", "tests/shared.py", "tests/test_x.py::TestY::test_z"),
        ("checks.parts.Checks", "test_z", "", "checks/parts.py::Checks::test_z"),
        ("checks.parts", "test_z", "checks/parts.py", "checks/parts.py::test_z"),
        ("src.pkg.mod", "pkg.mod.f", "", "src/pkg/mod.py::pkg.mod.f"),
        ("src.pkg.mod", "pkg.mod", "", "src/pkg/mod.py::pkg.mod"),
        ("docs.guide.rst", "guide.rst", "", "docs/guide.rst::guide.rst"),
        ("README.md", "README.md", "", "README.md::README.md"),
        ("", "tests.test_x", "", "tests/test_x.py"),
        ("tests.test_pkg.test_x.TestY", "test_z", "", "tests/test_pkg/test_x.py::TestY::test_z"),
    ],
)  # fmt: skip
def test_node_ids(classname, name, file, nodeid):
    assert pytest_nodeid(classname, name, file) == nodeid


def test_other_producers_have_unique_names():
    names = JunitTestIds()
    twice = {"classname": "Button renders", "name": "Button renders"}
    assert names.nodeid(twice, "Button") == "Button renders::Button renders"
    assert names.nodeid(twice, "Button") == "Button renders::Button renders#2"
    assert names.nodeid({"name": "alone"}, "Suite") == "Suite::alone"
    assert names.nodeid({"classname": "org.example.test.CalcTest", "name": "testAdds"}, "") == (
        "org.example.test.CalcTest::testAdds"
    )
    assert not names.is_pytest


def test_unittest_runners_with_module_paths_read_as_python():
    names = JunitTestIds()
    case = {"classname": "tests.test_x.TestY", "name": "test_z"}
    assert names.nodeid(case, "tests.test_x.TestY-20260119") == "tests/test_x.py::TestY::test_z"


@pytest.mark.parametrize(
    ("name", "total", "counts"),
    [
        ("gtest.xml", 5, {"passed": 3, "failed": 1, "error": 0, "skipped": 1}),
        ("surefire.xml", 5, {"passed": 2, "failed": 1, "error": 1, "skipped": 1}),
        ("jest.xml", 3, {"passed": 2, "failed": 1, "error": 0, "skipped": 0}),
        ("go.xml", 3, {"passed": 2, "failed": 0, "error": 0, "skipped": 1}),
    ],
)
def test_other_producers(name, total, counts):
    said = list(DIALECT.read(foreign(name)))
    assert DIALECT.match(foreign(name)) == 0.95
    found = outcomes(said)
    (tally,) = of_kind(said, ParsedTally)
    assert (tally.total, tally.counts) == (total, counts)
    assert len(found) == total
    words = [outcome.word for outcome in found.values()]
    assert {word: words.count(word) for word in counts} == counts
    assert errors(said) == []


def test_tries_before_the_last_one():
    said = DIALECT.read(foreign("surefire.xml"))
    tests = {each.nodeid.split("::")[1]: each for each in said if isinstance(each, ParsedTest)}
    assert tests["testFlaky"].outcome is Outcome.PASSED
    assert tests["testFlaky"].earlier == (Outcome.FAILED, Outcome.ERROR)
    assert tests["testAlwaysBad"].earlier == (Outcome.FAILED,)
    assert tests["testAlwaysBad"].message == "expected: <1> but was: <2>"


def test_tries_of_pytest_are_empty_testcases_that_it_does_not_count(tmp_path):
    case = "<testcase classname='tests.test_a' name='{}' time='1'{}"
    bad = "><failure message='no'>E no</failure></testcase>"
    near = ["one", "two", "two", "three", "three", "three"]
    cases = [case.format(name, "/>") for name in near[:-1]] + [case.format("three", bad)]
    afar = [case.format("four", "/>"), case.format("five", "/>"), case.format("four", bad)]
    suite = "<testsuite name='pytest' tests='5' failures='2' errors='0' skipped='0'>{}</testsuite>"
    said = read(tmp_path, suite.format("".join([*cases, *afar])))
    tests = {each.nodeid.split("::")[1]: each for each in said if isinstance(each, ParsedTest)}
    assert [len(tests[name].earlier) for name in ("one", "two", "three")] == [0, 1, 2]
    assert tests["two"].outcome is Outcome.PASSED
    assert outcomes(said)["tests/test_a.py::four"] is Outcome.FAILED
    (tally,) = of_kind(said, ParsedTally)
    assert (tally.total, tally.counts) == (5, {"passed": 3, "failed": 2})
    assert (errors(said), warnings(said)) == ([], [])


def test_durations_with_thousands_and_nonsense(tmp_path):
    times = ["1,234.5", "nan", "-1", "inf", "x", ""]
    cases = "".join(f'<testcase name="t{n}" time="{t}"/>' for n, t in enumerate(times))
    tests = of_kind(read(tmp_path, f"<testsuite>{cases}</testsuite>"), ParsedTest)
    assert [each.duration_s for each in tests] == [1234.5, None, None, None, None, None]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('<!DOCTYPE testsuite [<!ENTITY a "b">]><testsuite>&a;</testsuite>', "refused"),
        ('<!DOCTYPE testsuite SYSTEM "http://example.org/x.dtd"><testsuite/>', "refused"),
        (
            '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><testsuite name="&b;"/>',
            "refused",
        ),
        ("<report><testsuite/></report>", "not JUnit's"),
        ("", "not XML"),
        ("plain text", "not XML"),
    ],
)
def test_what_is_refused(tmp_path, document, words):
    with pytest.raises(UnreadableError, match=words):
        read(tmp_path, document)


def test_a_torn_document_keeps_what_came(tmp_path):
    cut = REAL.index(b'name="test_skip"')
    said = read(tmp_path, REAL[:cut])
    assert outcomes(said)["tests/test_all.py::test_bad"] is Outcome.FAILED
    assert errors(said) == ["torn: the document ends in its middle; what came before it is kept"]
    assert of_kind(said, ParsedEnd) == []
    announced = [(one.where, one.total) for one in of_kind(said, ParsedTally)]
    (declared,) = re.findall(rb'<testsuite [^>]*tests="(\d+)"', REAL)
    assert announced == [("collected", int(declared))], "the rest of them is missing"


def test_a_torn_document_that_declares_less_than_it_has_announces_what_it_has(tmp_path):
    cases = '<testcase classname="test_x" name="a"/><testcase classname="test_x" name="b"/>'
    said = read(tmp_path, f'<testsuite name="pytest" tests="1">{cases}<testcase')
    assert [one.total for one in of_kind(said, ParsedTally)] == [2]
    assert of_kind(read(tmp_path, f'<testsuite name="pytest">{cases}<testcase'), ParsedTally) == []


def test_a_test_that_is_torn_is_missing_or_as_bad_as_it_began(tmp_path):
    begun = '<testsuite name="pytest"><testcase classname="test_x" name="test_a">'
    assert outcomes(read(tmp_path, begun)) == {"test_x.py::test_a": Outcome.MISSING}
    failing = begun + '<failure message="boom">Trace'
    assert outcomes(read(tmp_path, failing)) == {"test_x.py::test_a": Outcome.FAILED}


def test_nesting_and_long_values_are_bounded(tmp_path):
    deep = "<testsuite>" * 70
    said = read(tmp_path, deep)
    assert "nested deeper than 64" in errors(said)[0]
    long = "x" * 300_000
    case = f'<testcase name="{long}"><failure message="{long}">{long}END</failure></testcase>'
    (test,) = of_kind(read(tmp_path, f"<testsuite>{case}</testsuite>"), ParsedTest)
    assert len(test.nodeid) < 2_100
    assert len(test.text) < 70_000
    assert test.text.endswith("END")
    assert "characters left out" in test.text


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(tmp_path, codec):
    label = "utf-8" if codec == "utf-8-sig" else codec
    text = f'<?xml version="1.0" encoding="{label}"?><testsuite><testcase name="é"/></testsuite>'
    document = made(tmp_path, text.encode(codec), "junit.xml")
    assert DIALECT.match(document) == 0.95
    assert list(outcomes(DIALECT.read(document))) == ["é"]


def test_control_characters_that_xml_forbids_do_not_tear_it(tmp_path):
    said = read(tmp_path, b"<testsuite><testcase name='a\x1bb'/><testcase name='c'/></testsuite>")
    assert list(outcomes(said)) == ["a\ufffdb", "c"]
    assert errors(said) == []


def test_a_large_document_is_read_in_bounded_memory(tmp_path):
    body = "line of output\n" * 20_000
    with (tmp_path / "big.xml").open("w") as file:
        file.write("<testsuite>")
        for number in range(20):
            file.write(f"<testcase name='t{number}'><system-out>{body}</system-out></testcase>")
        file.write("</testsuite>")
    data = (tmp_path / "big.xml").read_bytes()
    document = made(tmp_path, data, "big.xml")
    del data
    tracemalloc.start()
    count = sum(isinstance(each, ParsedTest) for each in DIALECT.read(document))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20
    assert peak < 4_000_000
