"""Logs of other projects: text, reportlog, JUnit and two more of one run agree test for test.

What a document cannot say is listed here, and nothing else may differ:

- JUnit XML and CTRF have no word for a test that passed against expectation: it stands there as
  passed.
- CTRF says nothing of modules that could not be collected, or were skipped as a whole.
- Text does not name a module that was skipped as a whole. Without ``-v`` it names nothing but
  what went wrong, and what ``-r`` asks for.
- A module that two collectors collect (tests and doctests), or two workers, counts as often in
  text; it is one node id.
- JUnit XML has an empty testcase for each try that was repeated; pytest-json-report says that
  there were such tries, but not how many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.parsed_results import ParsedEnd, ParsedSubtests
from tests.integration import other_suites as suites
from tests.integration.other_projects import DIALECTS, Documents, Project, Read, differing, run
from tests.unit.domain.assembly_cases import cell_of

AS_PASSED = ("passed", "xpassed")
BROKEN = "jsonschema/tests/test_jsonschema_test_suite.py"
"""It wants a checkout of another repository beside it."""


@dataclass(frozen=True)
class Case:
    """One run."""

    project: Project
    options: tuple[str, ...]
    modules: tuple[str, ...] = ()
    """Modules that are tests themselves: broken, or skipped as a whole."""
    more: dict[str, int] = field(default_factory=dict)
    """Reports that pytest sums up beside one for each test."""
    at_least: int = 100

    @property
    def is_verbose(self) -> bool:
        return any(option.startswith("-v") for option in self.options)

    @property
    def id(self) -> str:
        return " ".join((self.project.name, *self.options))


SUMS = {"passed": 1, "failed": 2}
"""Failed subtests of tests that failed, and a test of three that passed but for its subtests."""
CASES = (
    Case(suites.TOOLZ, ("--tb=short",)),
    Case(suites.JSONSCHEMA, ("-v", "-n", "2"), (BROKEN,), {"error": 1}),
    Case(suites.AIOSQLITE, ("-n", "2", "-rA"), at_least=25),
    Case(suites.MPMATH, ("-q", "-n", "2", "--tb=no")),
    Case(suites.TORNADO, ("-vv", "--tb=line", "-rA")),
    Case(suites.NETWORKX, ("-v",)),
    Case(suites.SYMPY, ("-rA", "--tb=native"), at_least=10),
    Case(suites.ASYNCIO, ("-v",), more=SUMS, at_least=15),
    Case(suites.ASYNCIO, ("-q",), more=SUMS, at_least=15),
    Case(suites.RERUNS, ("-v", "-n", "2", "--tb=short"), at_least=9),
    Case(suites.RERUNS, ("--tb=line",), at_least=9),
)
"""Each project once, and every option of pytest that changes what it prints."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Ran:
    """A run and what each of its documents says."""

    case: Case
    documents: Documents
    read: dict[str, Read]

    @property
    def log(self) -> Read:
        """The reportlog: the others are held against it."""
        return self.read["log.jsonl"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    made = {}

    def copy(project: Project):
        if project.missing:
            pytest.skip(f"not installed: {', '.join(project.missing)}")
        if project.name not in made:
            made[project.name] = project.put(tmp_path_factory.mktemp(project.name))
        return made[project.name]

    return copy


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.id)
def ran(request, copies, tmp_path_factory):
    case, home = request.param, tmp_path_factory.mktemp("documents")
    documents = run(copies(case.project), home, *case.project.arguments, *case.options)
    return Ran(case, documents, {name: documents.read(name) for name in DIALECTS})


def test_a_run_is_a_run(ran):
    assert len(ran.log.tests) >= ran.case.at_least
    assert ran.log.problems == []
    assert ran.documents.exit_code == (1 if {"failed", "error"} & set(ran.log.counts) else 0)


def test_text_names_the_same_tests_and_outcomes(ran):
    text = ran.read["log.txt"]
    skipped = {name for name in ran.case.modules if ran.log.tests[name].word == "skipped"}
    found = differing(text.tests, ran.log.tests)
    if ran.case.is_verbose:
        assert found == dict.fromkeys(skipped, ("-", "skipped"))
    else:
        assert {said for said, _ in found.values()} <= {"-"}
        bad = {n for n, outcome in ran.log.tests.items() if outcome.word in ("failed", "error")}
        assert bad <= set(text.tests)
    assert text.problems == []


def test_every_document_counts_what_pytest_sums_up(ran):
    footer, more = ran.documents.footer, Counter(ran.case.more)
    as_tests = ran.log.counts
    assert footer - more == as_tests
    text = ran.read["log.txt"]
    again = Counter(error=text.repeated_modules)
    assert text.counts + again == as_tests + (more if ran.case.modules else Counter())
    assert text.tallies["footer"][0].total == text.counts.total() + text.repeated_modules
    for name, lost in (("junit.xml", 0), ("ctrf.json", len(ran.case.modules))):
        (tally,) = ran.read[name].tallies["footer"]
        passed = sum(one.count for one in ran.log.items if isinstance(one, ParsedSubtests))
        more = passed if name == "junit.xml" else 0
        assert 0 <= tally.total - (as_tests.total() - lost) <= more, name
        assert Counter(tally.counts) == ran.read[name].counts, name


@pytest.mark.parametrize("name", ["junit.xml", "report.json", "ctrf.json"])
def test_documents_name_the_same_tests_and_outcomes(ran, name):
    found = differing(ran.read[name].tests, ran.log.tests)
    explained = {}
    if name in ("junit.xml", "ctrf.json"):
        passed = (n for n, outcome in ran.log.tests.items() if outcome.word == "xpassed")
        explained |= dict.fromkeys(passed, AS_PASSED)
    if name == "ctrf.json":
        explained |= {n: ("-", ran.log.tests[n].word) for n in ran.case.modules}
    assert found == explained


def test_tries_are_told_alike(ran):
    tries = ran.log.earlier
    assert bool(tries) is (ran.case.project is suites.RERUNS)
    assert ran.read["ctrf.json"].earlier == tries
    passed = {name for name in tries if ran.log.tests[name].word == "passed"}
    assert set(ran.read["report.json"].earlier) == passed
    if ran.case.is_verbose:
        assert ran.read["log.txt"].earlier == tries
    if "-n" not in ran.case.options:
        assert ran.read["junit.xml"].earlier == tries


def test_they_end_as_pytest_did(ran):
    for name in ("log.txt", "log.jsonl", "report.json"):
        (end,) = (said for said in ran.read[name].items if isinstance(said, ParsedEnd))
        assert (end.exit_code, end.cause) == (ran.documents.exit_code, ""), name


@pytest.mark.parametrize("names", [("log.txt",), tuple(DIALECTS)], ids=["text", "all"])
def test_together_they_are_one_cell_in_which_each_test_counts_once(ran, names):
    cell = cell_of(*ran.documents.foreign(*names))
    assert {source.state for source in cell.assembly.sources} == {SourceState.READ}
    counted = Counter()
    for job in cell.jobs:
        counted.update(cell.counts(job).as_dict())
    assert +counted == ran.read["log.txt"].counts
    verdicts = {cell.verdict(job) for job in cell.jobs}
    assert (verdicts == {Outcome.PASSED}) is (ran.documents.exit_code == 0)
    unlike = {one.nodeid for one in cell.assembly.disagreements}
    assert unlike <= {n for n, outcome in ran.log.tests.items() if outcome.word == "xpassed"}


def test_text_of_a_run_below_the_root_has_paths_from_there(copies, tmp_path):
    """pytest prints paths from where it was started; its other documents have them from the root.

    Nothing in a log says where that was, so such a log and its reportlog are two sets of tests.
    """
    documents = run(copies(suites.TOOLZ), tmp_path, "-v", "tests/test_utils.py", inside="toolz")
    text, log = documents.read("log.txt"), documents.read("log.jsonl")
    assert {f"toolz/{name}": outcome for name, outcome in text.tests.items()} == log.tests
    assert documents.read("junit.xml").tests == log.tests
