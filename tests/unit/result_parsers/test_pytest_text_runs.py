"""Real runs of pytest: its text and its reportlog must tell the same, test for test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from orchestrator.adapters.result_parsers.reportlog import Reportlog
from orchestrator.domain.outcome import TestOutcome
from tests.unit.result_parsers.pytest_logs import artifact, told

SUITE = '''
"""A suite with everything that can happen."""
import logging, unittest, warnings
import pytest

def test_ok(): pass
def test_fail():
    assert {"a": [1, 2, 3]} == {"a": [1, 2, 4]}, "boom"
def helper(): raise ValueError("bad value\\nsecond line of it")
def test_raise(): helper()
@pytest.mark.skip(reason="not [now] (really)")
def test_skip(): pass
@pytest.mark.skipif(True, reason="requires specific GPU")
@pytest.mark.parametrize("p", [1, 2])
def test_skipif(p): pass
@pytest.mark.xfail(reason="known bug")
def test_xfail(): assert 0
@pytest.mark.xfail(reason="known bug")
def test_xpass(): pass
@pytest.mark.xfail(strict=True, reason="strictly")
def test_strict(): pass
@pytest.fixture
def bad_setup(): raise RuntimeError("setup is bad")
@pytest.fixture
def bad_teardown():
    yield
    raise RuntimeError("teardown is bad")
def test_setup_error(bad_setup): pass
def test_teardown_error(bad_teardown): pass
def test_fail_and_teardown_error(bad_teardown): assert 0
def test_both_errors(bad_teardown, bad_setup): pass
def test_skip_and_teardown_error(bad_teardown): pytest.skip("first line\\nsecond line")
@pytest.mark.parametrize("v", ["a b", "x[1]", "[", "]", "ü", "a\\nb", "::", "a - b", "PASSED",
    "c::d PASSED [ 10%]", "", "tab\\t", "🎉", "(x)", "x SKIPPED (y)", "very" * 40,
    "path/with [brackets] & <b>", "a] b", "x] [50%] y"])
def test_param(v): pass
@pytest.mark.parametrize("v", ["a b", "x[1]", "a - b", "c::d FAILED [ 10%]"])
def test_param_fails(v): raise KeyError(v)
class TestC:
    def test_m(self): print("hello stdout")
    class TestInner:
        def test_n(self): assert False
class U(unittest.TestCase):
    def test_u(self): self.assertEqual(1, 2)
    def test_us(self): raise unittest.SkipTest("unit skip")
    @unittest.expectedFailure
    def test_ue(self): self.fail("x")
    @unittest.expectedFailure
    def test_uu(self): pass
    def test_sub(self):
        for i in range(3):
            with self.subTest(i=i): self.assertNotEqual(i, 1)
def test_subtests(subtests):
    for i in range(3):
        with subtests.test("msg [x]", i=i): assert i != 1
def test_subtests_ok(subtests):
    for i in range(3):
        with subtests.test(i=i): pass
def test_warn(): warnings.warn("watch out")
def test_prints():
    print("\\ntest_x.py::test_liar PASSED [ 10%]")
    print("no newline", end="")
def test_log():
    logging.getLogger("x").warning("logged")
    import asyncio
    asyncio.run(asyncio.sleep(0))
'''
DOCTESTS = '''
def f():
    """
    >>> 1 + 1
    2
    """
def g():
    """
    >>> 1 + 1
    3
    """
'''
FILES = {
    "tests/test_a.py": SUITE,
    "tests/test_doc.py": DOCTESTS,
    "tests/sub dir/test_b.py": "def test_ok(): pass\ndef test_drop(): pass\n",
    "broken/test_broken.py": "import a_module_that_is_not_there\n",
    "broken/test_skipped.py": "import pytest\npytest.skip('whole', allow_module_level=True)\n",
    "broken/test_fine.py": "def test_x(): pass\ndef test_y(): assert 0\n",
    "crash/test_crash.py": "import os\ndef test_a(): pass\ndef test_b(): os.abort()\n"
    "def test_c(): pass\n",
    "hang/test_hang.py": "import time\ndef test_a(): pass\ndef test_h(): time.sleep(60)\n",
    "loud/test_loud.py": "def test_a(): print('\\n1 failed in 0.1s\\n===== 3 passed in 1s =====')\n"
    "def test_b():\n    print('=' * 29 + ' test session starts ' + '=' * 30)\n    assert 0\n",
}


PLUGINS = ("no:cacheprovider", "xdist", "pytest_timeout", "pytest_reportlog.plugin")
"""Only these: the others make the start of each run five times as long."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run(suite, tmp_path, *arguments):
    """Both logs of one run."""
    text, records = tmp_path / "tests.txt", tmp_path / "records.jsonl"
    command = [sys.executable, "-m", "pytest", f"--report-log={records}", "--rootdir", str(suite)]
    command += [part for name in PLUGINS for part in ("-p", name)]
    command += arguments
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    with text.open("wb") as out:
        subprocess.run(
            command,
            cwd=suite,
            env={**kept, "COLUMNS": "80", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
    return told(PytestText(), artifact(text)), told(Reportlog(), artifact(records))


def assert_consistent(text):
    """Its lines, what it announces and what it sums up are one."""
    (footer,) = text.footers
    assert text.counts == footer.counts
    assert text.collected in ([], [footer.total])


VERBOSE = [
    ["-v"],
    ["-v", "-n", "2"],
    ["-vv", "-s", "--tb=short", "--color=yes", "-o", "log_cli=true"],
    ["-v", "--tb=line", "-o", "console_output_style=times", "--durations=3"],
    ["-v", "--tb=native", "-rA", "-o", "console_output_style=count", "-k", "not drop"],
]
SHORT = [[], ["-n", "2"], ["-q"], ["--tb=no"], ["-rA", "-o", "console_output_style=classic"]]


@pytest.mark.parametrize("arguments", VERBOSE, ids=" ".join)
def test_text_with_names_and_reportlog_agree(suite, tmp_path, arguments):
    text, log = run(suite, tmp_path, "tests", "--doctest-modules", *arguments)
    assert len(text.tests) >= 49
    assert text.tests == log.tests
    assert not text.unnamed
    assert_consistent(text)
    assert text.end.exit_code == log.end.exit_code == 1


@pytest.mark.parametrize("arguments", SHORT, ids=lambda given: " ".join(given) or "plain")
def test_text_without_names_and_reportlog_agree(suite, tmp_path, arguments):
    # Nothing tells without -v what a test had done before its error at teardown: mostly passed.
    known = ["-k", "not skip_and_teardown"]
    text, log = run(suite, tmp_path, "tests", "--doctest-modules", *known, *arguments)
    assert text.counts == log.counts
    assert text.tests.items() <= log.tests.items()
    bad = {n for n, outcome in log.tests.items() if outcome.word in ("failed", "error")}
    assert bad <= text.tests.keys()
    assert_consistent(text)
    assert text.end.exit_code == log.end.exit_code == 1


def test_what_a_log_cannot_tell_is_a_remark(suite, tmp_path):
    """Without tracebacks and a number of tests, an error may come from a teardown."""
    text, log = run(suite, tmp_path, "tests", "-k", "teardown_error", "-q", "--tb=no")
    assert text.counts.total() > log.counts.total() == 3
    [remark] = [message for message in text.messages if "may come from teardowns" in message]
    assert remark.startswith("2 errors may come")
    text, _ = run(suite, tmp_path, "tests", "-k", "teardown_error", "-q")
    assert not any("may come from teardowns" in message for message in text.messages)


@pytest.mark.parametrize(
    "arguments", [[], ["-v", "-rs", "-n", "2"], ["-v", "--tb=no"]], ids=" ".join
)
def test_modules_that_were_not_collected(suite, tmp_path, arguments):
    text, log = run(suite, tmp_path, "broken", "--continue-on-collection-errors", *arguments)
    assert text.counts == log.counts == {"error": 1, "skipped": 1, "passed": 1, "failed": 1}
    assert text.tests["broken/test_broken.py"] is TestOutcome.ERROR
    assert ("broken/test_skipped.py" in text.tests) == ("-rs" in arguments)
    assert text.first["broken/test_broken.py"].reason == "collection"
    assert_consistent(text)


def test_collection_that_stops_everything(suite, tmp_path):
    text, log = run(suite, tmp_path, "broken", "-v")
    assert text.counts == log.counts == {"error": 1, "skipped": 1}
    assert text.collected == [4]
    assert text.end.exit_code == log.end.exit_code == 2


def test_a_crash_leaves_the_running_test_without_an_end(suite, tmp_path):
    text, log = run(suite, tmp_path, "crash", "-v")
    both = {f"crash/test_crash.py::test_{name}" for name in "ab"}
    assert text.tests.keys() == log.tests.keys() == both
    assert text.tests["crash/test_crash.py::test_b"] is TestOutcome.ERROR
    assert log.tests["crash/test_crash.py::test_b"] is TestOutcome.MISSING
    assert (text.end.cause, log.end) == ("crashed", None)
    assert text.collected == [3]


def test_a_worker_that_crashes_is_reported_by_xdist(suite, tmp_path):
    text, log = run(suite, tmp_path, "crash", "-v", "-n", "1")
    assert text.tests == log.tests
    assert text.counts == {"passed": 2, "failed": 1}
    (detail,) = text.details
    assert detail.name == "crash/test_crash.py::test_b"
    assert "crashed while running" in detail.message
    assert log.first[detail.name].reason == "crashed"


def test_a_time_limit_that_kills_the_process(suite, tmp_path):
    arguments = ["--timeout=1", "--timeout-method=thread"]
    text, log = run(suite, tmp_path, "hang", "-v", *arguments)
    assert text.tests["hang/test_hang.py::test_h"] is TestOutcome.ERROR
    assert text.first["hang/test_hang.py::test_h"].reason == "hung"
    assert log.tests["hang/test_hang.py::test_h"] is TestOutcome.MISSING


def test_a_suite_that_prints_what_pytest_prints(suite, tmp_path):
    text, log = run(suite, tmp_path, "loud", "-v", "-rA")
    assert text.tests == log.tests
    assert_consistent(text)


def test_a_run_that_stops_early_shows_what_is_left(suite, tmp_path):
    text, log = run(suite, tmp_path, "broken/test_fine.py", "tests", "-x", "-v")
    assert text.tests == log.tests
    assert text.collected[0] > text.footers[0].total == 2
    assert any(message.startswith("pytest stopped early") for message in text.messages)


@pytest.mark.parametrize("arguments", [["tests", "-k", "nothing"], ["nowhere.py"]], ids=" ".join)
def test_nothing_ran(suite, tmp_path, arguments):
    text, log = run(suite, tmp_path, *arguments)
    assert not text.counts
    assert text.end.exit_code == log.end.exit_code
    assert text.end.exit_code in (4, 5)
