"""What was collected, and what kept other tests out, is evidence."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.integration.agent_machine import Evidence, laid_out, machine_at
from tests.integration.test_agent_origins import environment, start

__all__ = ["environment", "start"]

FILES = {
    "pytest.ini": "[pytest]\nmarkers = slow\naddopts = -m 'not slow' --deselect t/test_a.py::test_b"
    " --ignore=t/test_away.py --continue-on-collection-errors\n"
    "norecursedirs = gpu build dist venv node_modules\n",
    "t/test_a.py": "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_key(): pass\n"
    "@pytest.mark.slow\ndef test_slow(): pass\ndef test_said(): pass\n",
    "t/test_module.py": "import pytest\npytest.skip('no device', allow_module_level=True)\n"
    "def test_never(): pass\n",
    "t/test_import.py": "import pytest\npytest.importorskip('no_such_thing')\n",
    "t/test_broken.py": "def test_hidden(): pass\nraise RuntimeError('broken')\n",
    "t/test_away.py": "def test(): pass\n",
    "t/gpu/test_gpu.py": "def test(): pass\n",
    "conftest.py": "collect_ignore = ['u/test_left.py']\n"
    "def pytest_collection_modifyitems(config, items):\n"
    "    said = [each for each in items if each.name == 'test_said']\n"
    "    items[:] = [each for each in items if each.name != 'test_said']\n"
    "    config.hook.pytest_deselected(items=said)\n",
    "u/conftest.py": "def pytest_collection_modifyitems(items):\n"
    "    items[:] = [each for each in items if each.name != 'test_silent']\n",
    "u/test_u.py": "def test_u(): pass\ndef test_silent(): pass\n",
    "u/test_left.py": "def test(): pass\n",
}
PASSED_OVER = {
    "build/test_beside.py": "def test(): assert 0\n",
    "tests_beside.py": "def test(): assert 0\n",
    "w/conftest.py": "import pytest\ndef test_here(): assert 0\n"
    "@pytest.fixture\ndef test_it(): pass\n"
    "def pytest_configure(config): config.args[:] = ['w']\n",
    "w/build/lib/test_built.py": "def test(): assert 0\n",
    "w/dist/notes.txt": "",
    "w/venv/pyvenv.cfg": "",
    "w/venv/lib/test_other.py": "def test(): assert 0\n",
    "w/node_modules/gyp/package.json": "",
    "w/node_modules/gyp/test_gyp.py": "def test(): assert 0\n",
    "w/tests_more.py": "def test(): assert 0\n",
    "w/testing.py": "def ask(): pass\n",
    "w/mixin_tests.py": "class Mixin:\n    def test_mixed(self): pass\n",
    "w/test_off.py": "__test__ = False\ndef test(): assert 0\n",
    "w/test_w.py": """
import sys, unittest
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from mixin_tests import Mixin
def test_twice(): assert 0
def test_twice(): pass
def forgets(function): pass
@forgets
def test_forgotten(): assert 0
def test_tuple(): assert (1 == 2, "said")
def test_off(): assert 0
test_off.__test__ = False
class BaseTests:
    def test_base(self): pass
class TestBase(BaseTests, Mixin): pass
class ScaleTests:
    def test_suffix(self): assert 0
class TestOff:
    __test__ = False
    def test_off(self): assert 0
def load_tests(loader, tests, pattern): return tests
def setUpModule(): unittest.addModuleCleanup(lambda: 1 / 0)
""",
}


def cause(by: str, test: str, *, asked: bool = False) -> dict[str, Any]:
    return {"by": by, "count": 1, "tests": [test], "asked": asked}


WORKERS: dict[str, list[str]] = {"one": [], "xdist": ["-n", "2"]}
ONLY = "v/test_v.py::test_a"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str) -> Evidence:
    """One attempt: the same suite in one process and in several, and what the agent leaves out."""
    files = {**FILES, "v/test_v.py": "def test_a(): pass\ndef test_b(): pass\n"}
    jobs: list[dict[str, Any]] = [
        *(
            {"id": name, "pytest": [*workers, "-k", "not key", "t", "u"]}
            for name, workers in WORKERS.items()
        ),
        {"id": "only", "pytest": ["v"], "only": [ONLY]},
        {"id": "skips", "pytest": ["v"], "skip": [ONLY]},
        *(
            {"id": f"over-{name}", "pytest": [*workers, "w", "v"]}
            for name, workers in WORKERS.items()
        ),
    ]
    files.update(PASSED_OVER)
    payload = laid_out(tmp_path_factory.mktemp("payload"), files)
    with machine_at(tmp_path_factory.mktemp("machine") / "base") as machine:
        return machine.run(payload, python=lean, jobs=jobs)


def set_of(ran: Evidence, job: str) -> dict[str, Any]:
    (told,) = [one for one in ran.of("test", job) if one["record"] == "test_set"]
    return told


@pytest.mark.parametrize("job", WORKERS)
def test_what_is_left_out_is_told_with_who_did_it(ran: Evidence, job: str) -> None:
    told = set_of(ran, job)
    (manifest,) = ran.of("manifest", job)
    assert manifest["tests"] == ["t/test_a.py::test_a", "u/test_u.py::test_u"]
    assert told["collected"] == 2
    assert told["digest"] == hashlib.sha256(b"t/test_a.py::test_a\nu/test_u.py::test_u").hexdigest()
    assert told["deselected"] == [
        cause("--deselect", "t/test_a.py::test_b"),
        cause("-k", "t/test_a.py::test_key", asked=True),
        cause("-m", "t/test_a.py::test_slow"),
        cause("conftest.py", "t/test_a.py::test_said"),
        cause("conftest.py, u/conftest.py", "u/test_u.py::test_silent"),
    ]
    why = "Skipped: could not import 'no_such_thing': No module named 'no_such_thing'"
    assert told["modules"] == [
        ["t/test_import.py", why],
        ["t/test_module.py", "Skipped: no device"],
    ]
    assert told["ignored"] == [
        ["t/gpu", "norecursedirs"],
        ["t/test_away.py", "--ignore"],
        ["u/test_left.py", "conftest"],
    ]
    assert told["hidden"] == ["t/test_broken.py"]
    said = [one["message"] for one in ran.of("log", job) if one["level"] == "warning"]
    assert any("deselected by conftest.py: t/test_a.py::test_said" in text for text in said)
    assert not any("deselected by -k" in text for text in said)
    skipped = [one for one in ran.of("test", job) if one["record"] == "collect_skip"]
    assert [one["nodeid"] for one in skipped] == ["t/test_import.py", "t/test_module.py"]


@pytest.mark.parametrize(("job", "collected"), [("only", 1), ("skips", 2)])
def test_what_the_agent_leaves_out_is_nobodys_deselecting(
    ran: Evidence, job: str, collected: int
) -> None:
    told = set_of(ran, job)
    assert (told["collected"], told["deselected"]) == (collected, [])


@pytest.mark.parametrize("job", WORKERS)
def test_what_has_a_usual_name_and_is_passed_over_is_told(ran: Evidence, job: str) -> None:
    told = set_of(ran, f"over-{job}")
    (manifest,) = ran.of("manifest", f"over-{job}")
    assert manifest["tests"] == [
        "w/test_w.py::test_twice",
        "w/test_w.py::test_tuple",
        "w/test_w.py::TestBase::test_mixed",
        "w/test_w.py::TestBase::test_base",
    ]
    assert told["ignored"] == [
        ["w/build", "norecursedirs"],
        ["w/conftest.py::test_here", "python_files"],
        ["w/test_off.py", "__test__ = False"],
        ["w/test_w.py::ScaleTests", "python_classes"],
        ["w/test_w.py::TestOff", "__test__ = False"],
        ["w/test_w.py::test_off", "__test__ = False"],
        ["w/tests_more.py", "python_files"],
    ]
    rows = [row for row in told["hooks"] if not row[0].startswith("pytest_")]
    assert sorted(rows) == [
        ["asserts a tuple, which is always true", "w/test_w.py"],
        ["defines load_tests, which pytest does not call", "w/test_w.py"],
        ["has addModuleCleanup, whose functions pytest does not call", "w/test_w.py"],
        ["is lost: line 7 defines it again", "w/test_w.py::test_twice"],
        ["is not a function", "w/test_w.py::test_forgotten"],
        ["were changed after the start, to w", "the arguments w v"],
    ]


WRITES = """
import pytest
def pytest_addoption(parser):
    parser.addoption("--snapshot-update", action="store_true", dest="update_snapshots")
    parser.addoption("--inline-snapshot", dest="inline_snapshot")
    parser.addoption("--insta", default="auto")
    parser.addoption("--regtest-reset", action="store_true")
    parser.addoption("--snapshot-dirname", default="__snapshots__")
    parser.addoption("--image-snapshot-save-diff", action="store_true")
    parser.addoption("--mpl-generate-path")
    parser.addoption("--no-update-snapshots", action="store_true")
    parser.addoption("--accept-goldens-without-asking", action="store_true")
    parser.addoption("--approvaltests-use-reporter", dest="approvaltests_reporter")
"""

HARMLESS = {
    "NO_UPDATE_SNAPSHOTS": "1",
    "SNAPSHOT_NO_UPDATE": "1",
    "SKIP_GENERATE_BASELINES": "1",
    "forbid_update_goldens": "1",
    "SNAPSHOT_UPDATE_DISABLED": "1",
    "SNAPSHOT_UPDATE": "check",
    "UPDATE_GOLDENS": "Disabled",
    "UPDATE_EXPECTED": "verify",
    "GOLDENS_UPDATE": "compare",
    "reference_last_update": "2026-01-01",
    "UPDATE_BASELINE_DIR": "/x",
    "SNAPSHOT_UPDATE_URL": "https://host/x",
    "snapshot_dont_update": "1",
    "without_update_snapshots": "1",
    "DENY_UPDATE_GOLDENS": "1",
    "BASELINE_UPDATE_TIME": "x",
    "SNAPSHOT_UPDATE_FILE": "/x",
    "UPDATE_GOLDENS_HERE": "n",
    "SNAPSHOT_DIR": "/x",
    "UPDATE_CHECK_URL": "https://host/x",
    "BASELINE_RECORD_ID": "17",
    "GOLDEN_RECORD_COUNT": "3",
    "REFRESH_REFERENCE_TOKEN": "x",
    "RECORD_EXPECTED_NAME": "x",
    "REFERENCE_UPDATE_BUCKET": "x",
    "GOLDEN_UPDATE_KEY": "x",
    "UPDATE_BASELINE_VERSION": "3",
    "ACCEPT_LANGUAGE": "de",
    "RECORD_MODE": "rewrite",
    "RECORD_SNAPSHOTS": "none",
    "SAVE_SNAPSHOTS": "1",
    "CREATE_FIXTURES": "1",
    "UPDATE": "1",
    "ACCEPT": "*/*",
    "GOLDEN": "tests/golden",
    "INSTA_UPDATE": "new",
    "TRYBUILD": "wip",
}
"""Variables with which tests check their expectations."""


def _variables(values: dict[str, str]) -> str:
    """Return the text of a plug-in that sets variables."""
    return f"import os\nos.environ.update({values!r})\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--snapshot-update"], "--snapshot-update (True)"),
        (["--inline-snapshot=create,report"], "--inline-snapshot (create,report)"),
        (["--insta=update-new"], "--insta (update-new)"),
        (["--regtest-reset"], "--regtest-reset (True)"),
        (["-n", "1", "--snapshot-update"], "--snapshot-update (True)"),
        (["-o", "addopts=--insta=record"], "--insta (record)"),
        (["--mpl-generate-path=check"], "--mpl-generate-path (check)"),
        (["--accept-goldens-without-asking"], "--accept-goldens-without-asking (True)"),
        (["-p", "writes"], "UPDATE_GOLDENS"),
    ],
)
def test_expectations_are_not_written(start: Any, arguments: list[str], word: str) -> None:
    files = {
        "conftest.py": WRITES,
        "test_a.py": "def test_a(): pass\n",
        "writes.py": _variables({"UPDATE_GOLDENS": "s3cret"}),
    }
    said = start(files, *arguments)
    assert said.code == (0 if "-n" in arguments else 76)  # workers' is seen at the end
    told = {(problem["reason"], problem["what"]) for problem in said.problems}
    what = f"pytest runs with {word}, which writes expectations instead of checking them"
    assert told == {("wrong_pytest", what)}


WRITING = {
    "RECORD_SNAPSHOTS": "all",
    "REGEN": "1",
    "REBASELINE": "1",
    "BLESS": "1",
    "INSTA_UPDATE": "always",
    "CREATE_BASELINES": "1",
    "SAVE_REFERENCE": "yes",
    "GOLDEN": "update",
    "FIX_EXPECTED": "1",
    "REFRESH_FIXTURES": "1",
    "TRYBUILD": "overwrite",
}


def test_each_name_of_a_variable_that_writes_expectations_is_told(start: Any) -> None:
    files = {"test_a.py": "def test_a(): pass\n", "writes.py": _variables(WRITING)}
    said = start(files, "-p", "writes")
    told = {problem["what"].split(",")[0].split(" ")[3] for problem in said.problems}
    assert (said.code, told) == (76, set(WRITING))


def test_expectations_that_are_checked_are_no_alarm(start: Any) -> None:
    words = ("--inline-snapshot=report", "--insta=update-none", "--image-snapshot-save-diff")
    words += ("--approvaltests-use-reporter=PythonNativeReporter", "--no-update-snapshots")
    files = {
        "conftest.py": WRITES,
        "test_a.py": "def test_a(): pass\n",
        "checks.py": _variables(HARMLESS),
    }
    said = start(files, *words, "-p", "checks")
    assert (said.code, said.problems) == (0, []), said.output


IDLE = """
import pytest, threading, unittest, warnings
warnings.warn(pytest.PytestCollectionWarning("yield tests were removed in pytest 4.0 - test_y"))
def test_returns(): return 1 == 2
def test_tuple():
    assert (1 == 2, "equal")
def test_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
class Checked:
    def __del__(self): assert False
def test_deleted(): Checked()
async def wait(): assert False
def test_waits(): wait()
class TestMade:
    def __init__(self): pass
    def test(self): assert False
class TestLeftOut(unittest.TestCase):
    def test(self): assert False
class Retried:
    def __init__(self, test): self.test = test
    def __call__(self): self.test()
@Retried
def test_again(): assert False
if not pytest:
    def test_never(): assert False
import helper
def test_helped(): helper.same(1, 2)
async def test_compares(): return 1 == 2
@pytest.mark.parametrize("n", [1, 2])
async def test_compares_each(n): return n == 3
async def test_helped_later(): return helper.same(1, 2)
def good(): return False
def test_function():
    assert good
def test_each():
    assert (n == 2 for n in (1,))
@pytest.mark.parametrize("n", [1, 2])
def test_compared(n):
    n == 3
def test_order():
    with pytest.raises(TypeError):
        1 < ""
def pytest_runtest_teardown(): assert False
class TestOld:
    def setUp(self): assert False
    @classmethod
    def tearDownClass(cls): assert False
    def teardown(self): assert False
    def test(self): pass
class Called:
    def tearDown(self): pass
    def teardown_method(self): self.tearDown()
class TestCalled(Called):
    def test(self): pass
@pytest.mark.xfail
def test_subtests(subtests):
    with subtests.test(): assert False
def test_all_skipped(subtests):
    with subtests.test(): pytest.skip("no")
def test_one_skipped(subtests):
    with subtests.test(): pytest.skip("no")
    with subtests.test(): pass
@pytest.mark.xfail
def test_wanted(): assert False
"""
ASYNC = """
import asyncio, inspect, pytest
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj(**pyfuncitem.funcargs))
        return True
def pytest_unconfigure(): pass
"""
HELPER = "def same(a, b):\n    assert (a == b, 'differ')\ndef good(a): assert (a == 1), 'one'\n"
IN_SUBTEST = "has failed subtests that count as an expected failure, though it passed itself"
SILENCED = ("-p no:warnings", "-W ignore", "-p no:threadexception -p no:unraisableexception")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", ["", *SILENCED, "-n 1 -W ignore"])
def test_tests_that_assert_nothing_are_told(start: Any, words: str) -> None:
    """Whatever the payload does with pytest's warnings."""
    files = {"test_a.py": IDLE, "helper.py": HELPER, "conftest.py": ASYNC}
    said = start(files, "-p", "no:unittest", *words.split())
    assert said.code == 0, said.output
    told = {tuple(hook) for line in said.of("hooks") for hook in line["hooks"]}
    assert {row for row in told if row[1].startswith(("test_a.py", "helper.py"))} == {
        ("asserts a tuple, which is always true", "helper.py"),
        ("is defined under a condition that was false", "test_a.py::test_never"),
        ("returned a value, which asserts nothing", "test_a.py::test_compares"),
        ("returned a value, which asserts nothing", "test_a.py::test_compares_each"),
        ("returned a value, which asserts nothing", "test_a.py::test_returns"),
        ("asserts a tuple, which is always true", "test_a.py"),
        ("left an exception in a thread", "test_a.py::test_thread"),
        ("left a failed assertion where it cannot be raised", "test_a.py::test_deleted"),
        ("has a coroutine that was never awaited", "test_a.py::test_waits"),
        ("is not collected, because it has a __init__ constructor", "test_a.py::TestMade"),
        ("is not collected, because it has a __init__ constructor", "test_a.py::TestLeftOut"),
        ("is not collected, because it is not a function", "test_a.py::test_again"),
        ("has a yield test, which pytest does not run", "test_a.py"),
        ("asserts a function, which is always true", "test_a.py"),
        ("asserts a generator expression, which is always true", "test_a.py"),
        ("compares without an assertion", "test_a.py::test_compared"),
        (
            "is a hook of a module of tests, which pytest does not call",
            "test_a.py::pytest_runtest_teardown",
        ),
        *(
            (
                "is a method for setup or teardown that pytest does not call in this class",
                f"test_a.py::TestOld::{name}",
            )
            for name in ("setUp", "tearDownClass", "teardown")
        ),
        (IN_SUBTEST, "test_a.py::test_subtests"),
        ("skipped all of its subtests, though it passed itself", "test_a.py::test_all_skipped"),
    }
    assert ("leaves out the tests that it would collect", "-p no:unittest") in told
    assert (("pytest_unconfigure", "conftest.py") in told) is ("-n" in words)


SWITCHES = """
import pytest
def pytest_addoption(parser):
    parser.addoption("--mpl", action="store_true")
    parser.addoption("--arraydiff", action="store_true")
    parser.addini("arraydiff", "", default="")
def pytest_configure(config):
    for mark in ("mpl_image_compare", "array_compare"):
        config.addinivalue_line("markers", mark)
"""
COMPARED = """
import pytest
@pytest.mark.mpl_image_compare(baseline_dir="x")
def test_figure(): pass
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.array_compare
def test_array(n): pass
def test_other(): pass
"""
ARRAY = ("compares nothing with array_compare without --arraydiff", "test_a.py::test_array")
FIGURE = ("compares nothing with mpl_image_compare without --mpl", "test_a.py::test_figure")


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("", {ARRAY, FIGURE}),
        ("--mpl", {ARRAY}),
        ("--mpl --arraydiff", set()),
        ("-o arraydiff=true", {FIGURE}),
        ("-o arraydiff=false", {ARRAY, FIGURE}),
        ("-n 1", {ARRAY, FIGURE}),
    ],
)
def test_comparisons_whose_switch_is_off_are_told(start: Any, words: str, rows: Any) -> None:
    said = start({"test_a.py": COMPARED, "conftest.py": SWITCHES}, *words.split())
    assert said.code == 0, said.output
    told = {tuple(hook) for line in said.of("hooks") for hook in line["hooks"]}
    assert {row for row in told if row[1].startswith("test_a.py")} == rows


def test_a_mark_of_a_plug_in_that_is_not_there_compares_nothing(start: Any) -> None:
    said = start({"test_a.py": COMPARED})
    told = {tuple(hook) for line in said.of("hooks") for hook in line["hooks"]}
    assert {ARRAY, FIGURE} <= told


ERRORS = """
import pytest, warnings
def test_error():
    with pytest.raises(RuntimeWarning, match="^coroutine 'wait' was never"), \
            warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings._warn_unawaited_coroutine(wait())
async def wait(): pass
def test_made():
    warning = pytest.PytestWarning("a", 2)
    assert warning.args == ("a", 2) and str(warning) == "('a', 2)"
"""


def test_warnings_are_what_they_were(start: Any) -> None:
    said = start({"test_a.py": ERRORS})
    assert said.code == 0, said.output


DROPPED = """
import asyncio, pytest
from concurrent.futures import ThreadPoolExecutor, wait
def fails(*_): assert False, "on purpose"
def raises(*_): raise RuntimeError("on purpose")
async def afails(): fails()
async def araises(): raises()
def test_submit():
    with ThreadPoolExecutor(2) as pool: pool.submit(fails)
def test_map():
    with ThreadPoolExecutor(2) as pool: pool.map(fails, (1, 2))
def test_pool():
    from multiprocessing.pool import ThreadPool
    with ThreadPool(2) as pool:
        pool.apply_async(fails)
        pool.map_async(fails, (1, 2))
        pool.close()
        pool.join()
def test_threadsafe():
    async def main():
        future = asyncio.run_coroutine_threadsafe(afails(), asyncio.get_running_loop())
        while not future.done(): await asyncio.sleep(0)
    asyncio.run(main())
def test_task():
    async def main():
        done, _ = await asyncio.wait([asyncio.ensure_future(afails())])
    asyncio.run(main())
def test_callback():
    async def main():
        asyncio.get_running_loop().call_soon(fails)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    asyncio.run(main())
"""
ASKED = """
import asyncio, pytest
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from multiprocessing.pool import ThreadPool
from test_dropped import afails, araises, fails, raises
def test_errors_on_purpose():
    with ThreadPoolExecutor(2) as pool:
        pool.submit(raises)
        pool.map(raises, (1, 2))
        done, _ = wait([pool.submit(fails), pool.submit(raises)])
        assert all(one.exception() for one in done)
        with pytest.raises(AssertionError): pool.submit(fails).result()
        with pytest.raises(AssertionError): list(pool.map(fails, (1, 2)))
        for one in as_completed([pool.submit(fails)]): assert one.exception() is not None
def test_callback_asks():
    asked, future = [], Future()
    future.add_done_callback(lambda one: asked.append(one.exception()))
    future.set_exception(AssertionError())
    assert len(asked) == 1
    with pytest.raises(AttributeError): del Future().nothing
    assert Future().exception.__self__._exception is None
def test_pools():
    asked = []
    with ThreadPool(2) as pool:
        with pytest.raises(AssertionError): pool.apply_async(fails).get()
        with pytest.raises(AssertionError): pool.map(fails, (1, 2))
        pool.apply_async(fails, error_callback=asked.append).wait()
        pool.apply_async(AssertionError)
        pool.apply_async(raises)
        assert pool.map_async(abs, (-1, 2)).get() == [1, 2]
        pool.close()
        pool.join()
    assert len(asked) == 1
def test_loops():
    handled = []
    async def main():
        loop = asyncio.get_running_loop()
        for result in await asyncio.gather(afails(), araises(), return_exceptions=True):
            assert isinstance(result, Exception)
        with pytest.raises(AssertionError): await loop.run_in_executor(None, fails)
        await asyncio.wait([asyncio.ensure_future(araises())])
        loop.set_exception_handler(lambda loop, context: handled.append(context))
        loop.call_soon(fails)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    asyncio.run(main())
    assert len(handled) == 1
"""


@pytest.mark.parametrize("words", ["", "-n 1"])
def test_failed_assertions_that_nobody_asks_for_are_told(start: Any, words: str) -> None:
    """Errors on purpose that a test asks for, or that are no assertions, are no alarm."""
    files = {"test_dropped.py": DROPPED, "test_more.py": ASKED}
    said = start(files, "-p", "no:asyncio", *words.split())
    assert said.code == 0, said.output
    told = {tuple(hook) for line in said.of("hooks") for hook in line["hooks"]}
    note = "left a failed assertion in a future, task or callback whose result was never read"
    tests = ("submit", "map", "pool", "threadsafe", "task", "callback")
    assert {row for row in told if row[0].startswith("left")} == {
        (note, f"test_dropped.py::test_{test}") for test in tests
    }
