"""Real runs of pytest: every structured document of a run names the same tests, the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.adapters.result_parsers.json_report import PytestJsonReport
from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.adapters.result_parsers.reportlog import Reportlog
from orchestrator.application.ports.result_parsers import Dialect
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import ParsedTally
from tests.unit.result_parsers.foreign import artifact, errors, of_kind, outcomes

SUITE = """
import unittest
import pytest

def test_ok(): pass
def test_bad(): assert 1 == 2, "no"
@pytest.mark.skip(reason="because")
def test_skip(): pass
def test_skip_inside(): pytest.skip("inside <&>")
@pytest.mark.xfail(reason="known")
def test_xfail(): assert 0
@pytest.mark.xfail(reason="known", strict=False)
def test_xpass(): pass
@pytest.mark.xfail(reason="known", strict=True)
def test_xpass_strict(): pass
@pytest.mark.xfail(run=False, reason="not run")
def test_norun(): pass
@pytest.fixture
def broken(): raise RuntimeError("setup broke")
def test_err(broken): pass
@pytest.fixture
def broken_after():
    yield
    raise RuntimeError("teardown broke")
def test_teardown(broken_after): pass
def test_both(broken_after): assert 0
def test_skip_then_teardown(broken_after): pytest.skip("first")
ODD = ["a b", "a::b", "a/b.py", "[x]", "é", "<&\\"'>", "", "a.b.C", "x\\ny", "\\x1b[31m", "]]>"]
@pytest.mark.parametrize("p", ODD)
def test_odd(p): assert p != "[x]"
class TestY:
    def test_z(self): print("out")
    @pytest.mark.parametrize("n", [1, 2])
    def test_n(self, n): assert n == 1
    class TestInner:
        def test_deep(self): pass
class lowercase(unittest.TestCase):
    def test_low(self): pass
class MyCase(unittest.TestCase):
    def test_u(self): pass
    def test_uf(self): self.fail("no")
    @unittest.skip("us")
    def test_us(self): pass
    @unittest.expectedFailure
    def test_ux(self): self.fail()
    @unittest.expectedFailure
    def test_uxp(self): pass
    def test_usub(self):
        for i in range(3):
            with self.subTest(i=i): self.assertEqual(i, 1)
def test_subs(subtests):
    for i in range(3):
        with subtests.test(msg="m", i=i): assert i != 1
def test_subs_ok(subtests):
    with subtests.test(): pass
def test_subs_skip(subtests):
    with subtests.test("s"): pytest.skip("ss")
"""
SHARED = """
class Shared:
    def test_inherited(self): pass
    def test_bad(self): 1 / 0
"""
DOCUMENTED = '''"""
>>> 1 + 1
2
"""
def f():
    """
    >>> f()
    4
    """
    return 3
'''
FILES = {
    "tests/__init__.py": "",
    "tests/test_all.py": SUITE,
    "tests/shared.py": SHARED,
    "tests/test_child.py": "from tests.shared import Shared\nclass TestChild(Shared): pass\n",
    "tests/test_broken.py": "import nothing_there\n",
    "tests/test_modskip.py": "import pytest\npytest.skip('whole', allow_module_level=True)\n",
    "tests/deep/er/queue_test.py": "def test_a(): pass\n",
    "src/pkg/__init__.py": "",
    "src/pkg/mod.py": DOCUMENTED,
    "README.rst": ">>> 1\n1\n",
    "docs/guide.rst": ">>> 2\n3\n",
    "pytest.ini": "[pytest]\n",
}
WORST = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "skipped": Outcome.SKIPPED}


def reportlog(path: Path) -> dict[str, Outcome]:
    """The worst outcome of each test, by the rules of design §6."""
    found: dict[str, Outcome] = {}
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        kind = record.get("$report_type", "")
        if kind not in ("TestReport", "CollectReport", "SubTestReport"):
            continue
        outcome = WORST[record["outcome"]]
        if kind == "CollectReport" and outcome is Outcome.PASSED:
            continue
        if kind == "SubTestReport" and outcome is not Outcome.FAILED:
            continue
        if outcome is Outcome.FAILED and (kind == "CollectReport" or record["when"] != "call"):
            outcome = Outcome.ERROR
        if "wasxfail" in record:
            outcome = Outcome.XFAILED if outcome is Outcome.SKIPPED else Outcome.XPASSED
        found[record["nodeid"]] = max(outcome, found.get(record["nodeid"], outcome))
    return found


def run(project: Path, home: Path, *more: str) -> None:
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini"]
    command += ["--import-mode=importlib", "--doctest-modules", "--doctest-glob=*.rst"]
    command += ["--continue-on-collection-errors", "--rootdir=.", *more, "."]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=120, check=False,
        env={"PYTHONPATH": "src:.", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(
    scope="module",
    params=[(), pytest.param(("-n", "2"), marks=pytest.mark.slow)],
    ids=["one process", "xdist"],
)
def documents(request, project, tmp_path_factory):
    """The documents of one run; the second family of JUnit needs a run of its own."""
    home = tmp_path_factory.mktemp("documents")
    run(
        project, home, *request.param, f"--junitxml={home}/junit2.xml",
        f"--report-log={home}/log.jsonl", "--json-report", f"--json-report-file={home}/report.json",
        f"--ctrf={home}/ctrf.json",
    )  # fmt: skip
    run(project, home, *request.param, f"--junitxml={home}/junit1.xml", "-o", "junit_family=xunit1")
    return home


def read(dialect: Dialect, path: Path):
    document = artifact(path)
    assert dialect.match(document) >= 0.95
    said = list(dialect.read(document))
    assert errors(said) == []
    return said


def differing(one, other):
    return {
        nodeid: (one.get(nodeid), other.get(nodeid))
        for nodeid in {*one, *other}
        if one.get(nodeid) is not other.get(nodeid)
    }


@pytest.mark.parametrize("family", ["junit1.xml", "junit2.xml"])
def test_junit_agrees_with_the_reportlog_test_for_test(documents, family):
    said = read(JUnitXml(), documents / family)
    # What JUnit XML cannot tell apart; nothing else is lost.
    assert differing(outcomes(said), reportlog(documents / "log.jsonl")) == {
        "tests/test_all.py::test_xpass": (Outcome.PASSED, Outcome.XPASSED),
        "tests/test_all.py::test_subs_skip": (Outcome.SKIPPED, Outcome.PASSED),
    }
    (tally,) = of_kind(said, ParsedTally)
    assert tally.total == len(outcomes(said))


def test_json_report_agrees_with_the_reportlog_test_for_test(documents):
    said = read(PytestJsonReport(), documents / "report.json")
    assert differing(outcomes(said), reportlog(documents / "log.jsonl")) == {}
    assert {tally.total for tally in of_kind(said, ParsedTally)} == {len(outcomes(said))}


def test_our_reader_of_reportlogs_agrees_with_the_plain_one(documents):
    path = documents / "log.jsonl"
    assert differing(outcomes(Reportlog().read(artifact(path))), reportlog(path)) == {}


def test_ctrf_agrees_with_the_reportlog_test_for_test(documents):
    said = read(Ctrf(), documents / "ctrf.json")
    # It says nothing of modules, and its first bad phase hides a later one.
    assert differing(outcomes(said), reportlog(documents / "log.jsonl")) == {
        "tests/test_all.py::test_xpass": (Outcome.PASSED, Outcome.XPASSED),
        "tests/test_all.py::test_subs_skip": (Outcome.SKIPPED, Outcome.PASSED),
        "tests/test_all.py::test_skip_then_teardown": (Outcome.SKIPPED, Outcome.ERROR),
        "tests/test_broken.py": (None, Outcome.ERROR),
        "tests/test_modskip.py": (None, Outcome.SKIPPED),
    }
    (tally,) = of_kind(said, ParsedTally)
    assert tally.total == len(outcomes(said))
