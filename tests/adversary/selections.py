"""The test that would fail does not run, and nobody says so."""

from __future__ import annotations

from collections.abc import Mapping

from tests.adversary.lie import Lie, one_run, suite
from tests.adversary.scene import HONEST

_REST = HONEST["t/test_rest.py"]
_FILLERS = _REST + "".join(f"def test_more_{n}(): pass\n" for n in range(5))


def _ini(line: str) -> dict[str, str]:
    return {"pytest.ini": f"[pytest]\n{line}\n"}


def _conftest(code: str) -> dict[str, str]:
    return {"conftest.py": code}


_DROPS = "def pytest_collection_modifyitems(items):\n"
_TELLS = "    config.hook.pytest_deselected(items=[i for i in items if 'double' in i.name])\n"
_KEEPS = "    items[:] = [item for item in items if 'double' not in item.name]\n"

_FAILS = HONEST["t/test_double.py"]
_PASSED_OVER: Mapping[str, tuple[dict[str, str], str]] = {
    "a folder that pytest does not enter: build": (
        {"t/build/test_double.py": _FAILS},
        "t/build was not looked into (norecursedirs)",
    ),
    "a folder that pytest does not enter: .more": (
        {"t/.more/deep/test_double.py": _FAILS},
        "t/.more was not looked into (norecursedirs)",
    ),
    "a class with the suffix Tests": (
        {
            "t/test_more.py": "import mylib\nclass DoubleTests:\n    def test_double(self):\n"
            "        assert mylib.double(2) == 4\n"
        },
        "t/test_more.py::DoubleTests was not looked into (python_classes)",
    ),
    "__test__ = False on a function": (
        {"t/test_double.py": f"{_FAILS}test_double.__test__ = False\n"},
        "t/test_double.py::test_double was not looked into (__test__ = False)",
    ),
    "__test__ = False on a module": (
        {"t/test_double.py": f"{_FAILS}__test__ = False\n"},
        "t/test_double.py was not looked into (__test__ = False)",
    ),
    "a file named tests_double.py": (
        {"t/tests_double.py": _FAILS},
        "t/tests_double.py was not looked into (python_files)",
    ),
    "a test in a conftest": (
        {"t/conftest.py": _FAILS},
        "t/conftest.py::test_double was not looked into (python_files)",
    ),
    "two tests of one name": (
        {"t/test_double.py": f"{_FAILS}def test_double(): pass\n"},
        "t/test_double.py::test_double is lost: line 5 defines it again",
    ),
    "a decorator that returns nothing": (
        {"t/test_double.py": _FAILS.replace("def", "@print\ndef")},
        "t/test_double.py::test_double is not a function",
    ),
    "an assertion of a tuple": (
        {"t/test_double.py": _FAILS.replace("mylib.double(2) == 4", "(mylib.double(2) == 4, '')")},
        "t/test_double.py asserts a tuple, which is always true",
    ),
    "a class below an if of what the machine lacks": (
        {
            "t/test_double.py": "import mylib, shutil\nif shutil.which('nothing-like-it'):\n"
            "    class TestDouble:\n"
            "        def test_double(self): assert mylib.double(2) == 4\n"
        },
        "t/test_double.py::TestDouble is defined under a condition that was false",
    ),
    "a test below the else of a try": (
        {
            "t/test_double.py": "import mylib\ntry: import nothing_like_it\n"
            "except ImportError: pass\nelse:\n"
            "    def test_double(): assert mylib.double(2) == 4\n"
        },
        "t/test_double.py::test_double is defined under a condition that was false",
    ),
    "a helper module's assertion of a tuple": (
        {
            "t/checks.py": "def same(a, b):\n    assert (a == b, 'differ')\n",
            "t/test_double.py": "import checks, mylib\n"
            "def test_double(): checks.same(mylib.double(2), 4)\n",
        },
        "t/checks.py asserts a tuple, which is always true",
    ),
    "an assertion of a generator expression": (
        {
            "t/test_double.py": _FAILS.replace("assert ", "assert (n == 4 for n in [").replace(
                "mylib.double(2) == 4", "mylib.double(2)])"
            )
        },
        "t/test_double.py asserts a generator expression, which is always true",
    ),
    "a comparison without an assertion": (
        {"t/test_double.py": _FAILS.replace("assert ", "")},
        "t/test_double.py::test_double compares without an assertion",
    ),
    "a comparison of arrays whose switch is off": (
        {
            "t/test_double.py": "import mylib, pytest\n@pytest.mark.array_compare\n"
            "def test_double(): mylib.double(2)\n"
        },
        ("t/test_double.py::test_double compares nothing with array_compare without --arraydiff"),
    ),
    "tearDown of a class that is no TestCase": (
        {
            "t/test_double.py": "import mylib\nclass TestDouble:\n    def test(self): pass\n"
            "    def tearDown(self): assert mylib.double(2) == 4\n"
        },
        (
            "t/test_double.py::TestDouble::tearDown is a method for setup or teardown that pytest"
            " does not call in this class"
        ),
    ),
    "a hook in a module of tests": (
        {
            "t/test_double.py": "import mylib\ndef test_double(): pass\n"
            "def pytest_runtest_teardown(): assert mylib.double(2) == 4\n"
        },
        (
            "t/test_double.py::pytest_runtest_teardown is a hook of a module of tests, which pytest"
            " does not call"
        ),
    ),
    "a class named test_Double": (
        {
            "t/test_more.py": "import mylib\nclass test_Double:\n"
            "    def test_double(self): assert mylib.double(2) == 4\n"
        },
        "t/test_more.py::test_Double was not looked into (python_classes)",
    ),
    "a function named TestDouble": (
        {"t/test_double.py": _FAILS.replace("test_double", "TestDouble")},
        "t/test_double.py::TestDouble was not looked into (python_functions)",
    ),
    "failed subtests of a test that is expected to fail": (
        {
            "t/test_double.py": "import mylib, pytest\n@pytest.mark.xfail\n"
            "def test_double(subtests):\n    with subtests.test():\n"
            "        assert mylib.double(2) == 4\n"
        },
        (
            "t/test_double.py::test_double has failed subtests that count as an expected failure,"
            " though it passed itself"
        ),
    ),
    "load_tests adds the failing test": (
        {
            "t/test_more.py": "import mylib, unittest\nclass Double(unittest.TestCase):\n"
            "    def check(self): assert mylib.double(2) == 4\n"
            "def load_tests(loader, tests, pattern):\n"
            "    tests.addTest(Double('check'))\n    return tests\n"
        },
        "t/test_more.py defines load_tests, which pytest does not call",
    ),
    "a module cleanup has the failing assertion": (
        {
            "t/test_double.py": "import mylib, unittest\ndef check(): assert mylib.double(2) == 4\n"
            "def setUpModule(): unittest.addModuleCleanup(check)\ndef test_double(): pass\n"
        },
        "t/test_double.py has addModuleCleanup, whose functions pytest does not call",
    ),
    "conftest changes config.args": (
        {
            "t/conftest.py": "def pytest_configure(config):\n"
            "    config.args[:] = ['t/test_rest.py']\n",
            "t/test_double.py": _FAILS,
        },
        "the arguments t were changed after the start, to t/test_rest.py",
    ),
}
"""By the lie's name: its files beside honest ones, and the line that shows it."""

_IN_THREAD = (
    "def check(): assert mylib.double(2) == 4\ndef test_double():\n"
    "    thread = threading.Thread(target=check)\n    thread.start()\n    thread.join()"
)
_UNHOOKED = (
    "import pytest\n@pytest.fixture(autouse=True)\ndef hook(monkeypatch):\n"
    "    monkeypatch.setattr(threading, 'excepthook', lambda _: None)\n"
)
_CHECK = "import asyncio, mylib\ndef check(*_): assert mylib.double(2) == 4\n"
_IN_POOL = "def test_double():\n    with Executor(2) as pool:"
_IN_LOOP = "def test_double(): asyncio.run(main())\nasync def wait(): check()\nasync def main():"
_EXECUTOR = "from concurrent.futures import ThreadPoolExecutor as Executor\n"
_NOBODY_ASKS = {
    "submit": f"{_EXECUTOR}{_IN_POOL} pool.submit(check)",
    "map": f"{_EXECUTOR}{_IN_POOL} pool.map(check, (1, 2))",
    "apply_async": f"from multiprocessing import Pool as Executor\n{_IN_POOL}\n"
    "        pool.apply_async(check)\n        pool.close()\n        pool.join()",
    "create_task": f"{_IN_LOOP}\n    asyncio.create_task(wait())\n    await asyncio.sleep(0.05)",
    "asyncio.wait": f"{_IN_LOOP} await asyncio.wait([asyncio.create_task(wait())])",
    "call_soon": f"{_IN_LOOP}\n    asyncio.get_running_loop().call_soon(check)\n"
    "    await asyncio.sleep(0.05)",
}
"""By what takes the failing check: a test that does not ask how it ended."""

LIES = (
    *(
        Lie(
            f"passed over: {name}",
            one_run({"t/test_rest.py": _REST, **files}, only=True),
            inherent="selection",
            shows=line,
        )
        for name, (files, line) in _PASSED_OVER.items()
    ),
    Lie("--deselect in pytest.ini", one_run(_ini("addopts = --deselect t/test_double.py"))),
    Lie("-k in pytest.ini", one_run(_ini("addopts = -k 'not double'"))),
    Lie("-k by PYTEST_ADDOPTS", one_run({}, jobs=suite(PYTEST_ADDOPTS="-k rest"))),
    Lie(
        "-m in pytest.ini",
        one_run(
            {
                **_ini("addopts = -m 'not slow'\nmarkers = slow"),
                "t/test_double.py": "import mylib, pytest\n@pytest.mark.slow\n"
                "def test_double():\n    assert mylib.double(2) == 4\n",
            }
        ),
    ),
    Lie("conftest drops a test", one_run(_conftest(_DROPS + _KEEPS))),
    Lie(
        "conftest drops a test and tells pytest",
        one_run(_conftest(_DROPS.replace("items)", "config, items)") + _TELLS + _KEEPS)),
    ),
    Lie(
        "conftest drops a test, after a green release",
        one_run(_conftest(_DROPS + _KEEPS), after_green=True),
    ),
    Lie(
        "--ignore in pytest.ini",
        one_run(_ini("addopts = --ignore t/test_double.py"), after_green=True),
    ),
    Lie(
        "collect_ignore",
        one_run(_conftest("collect_ignore = ['t/test_double.py']\n"), after_green=True),
    ),
    Lie(
        "collect_ignore_glob",
        one_run(_conftest("collect_ignore_glob = ['*double*']\n"), after_green=True),
    ),
    Lie(
        "pytest_ignore_collect",
        one_run(
            _conftest(
                "def pytest_ignore_collect(collection_path):\n"
                "    return True if 'double' in collection_path.name else None\n"
            ),
            after_green=True,
        ),
    ),
    Lie(
        "python_files leaves a file out",
        one_run(_ini("python_files = test_rest.py"), after_green=True),
    ),
    Lie(
        "python_functions leaves a test out",
        one_run(_ini("python_functions = test_name test_triple"), after_green=True),
    ),
    Lie(
        "norecursedirs",
        one_run(
            {"t/a/test_double.py": HONEST["t/test_double.py"], "t/test_rest.py": _REST}
            | _ini("norecursedirs = a"),
            only=True,
            after_green=True,
        ),
    ),
    Lie(
        "__test__ = False",
        one_run(
            {"t/test_double.py": HONEST["t/test_double.py"] + "test_double.__test__ = False\n"},
            after_green=True,
        ),
    ),
    Lie("the test is removed", one_run({"t/test_rest.py": _REST}, only=True, after_green=True)),
    Lie(
        "the test is removed and five others are added",
        one_run({"t/test_rest.py": _FILLERS}, only=True, after_green=True),
    ),
    Lie(
        "the test is renamed so that it is none",
        one_run(
            {"t/test_double.py": HONEST["t/test_double.py"].replace("test_double", "_test_double")},
            after_green=True,
        ),
    ),
    Lie(
        "the test is renamed and does nothing",
        one_run(
            {"t/test_double.py": "def test_doubled(): pass\n", "t/test_rest.py": _REST},
            only=True,
            after_green=True,
        ),
    ),
    Lie(
        "fewer parameters than the green release had",
        one_run(
            {
                "t/test_rest.py": _REST,
                "t/test_double.py": "import mylib, pytest\n@pytest.mark.parametrize('n', [-1])\n"
                "def test_double(n):\n    assert mylib.double(n) == -1\n",
            },
            only=True,
            after_green=True,
        ),
    ),
    *(
        Lie(
            f"a test that asserts nothing, and {line}",
            one_run(
                {
                    "t/test_double.py": f"import mylib, threading\n{body}\n",
                    "pytest.ini": f"[pytest]\n{line}\n",
                }
            ),
            inherent="text",
            shows=shows,
        )
        for line, shows, body in (
            (
                "filterwarnings = ignore",
                "returned a value",
                "def test_double(): return mylib.double(2) == 4",
            ),
            (
                "addopts = -p no:warnings",
                "asserts a tuple",
                "def test_double(): assert (mylib.double(2) == 4, 'doubled')",
            ),
            (
                "addopts = -p no:threadexception",
                "left an exception in a thread",
                _IN_THREAD,
            ),
        )
    ),
    Lie(
        "a fixture replaces the hook of threads that fail",
        one_run({"t/test_double.py": f"import mylib, threading\n{_UNHOOKED}{_IN_THREAD}\n"}),
        inherent="text",
        shows="left an exception in a thread",
    ),
    *(
        Lie(
            f"nobody asks how a failed assertion ended: {taker}",
            one_run({"t/test_double.py": f"{_CHECK}{body}\n"}),
            inherent="text",
            shows="t/test_double.py::test_double left a failed assertion in a future, task or"
            " callback whose result was never read",
        )
        for taker, body in _NOBODY_ASKS.items()
    ),
    Lie(
        "an asynchronous test that returns a comparison",
        one_run(
            {
                "conftest.py": "import asyncio, inspect, pytest\n"
                "@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n"
                "    if inspect.iscoroutinefunction(pyfuncitem.obj):\n"
                "        asyncio.run(pyfuncitem.obj())\n        return True\n",
                "t/test_double.py": "import mylib\n"
                "async def test_double(): return mylib.double(2) == 4\n",
            }
        ),
        inherent="text",
        shows="t/test_double.py::test_double returned a value, which asserts nothing",
    ),
    Lie(
        "a test that is a fixture",
        one_run(
            {
                "t/test_double.py": "import mylib, pytest\n@pytest.fixture\n"
                "def test_double(): assert mylib.double(2) == 4\n"
            }
        ),
        inherent="selection",
        shows="is a fixture",
    ),
    Lie(
        "a test that an import replaces",
        one_run(
            {
                "t/helpers.py": "def test_double(): pass\n",
                "t/test_double.py": f"{HONEST['t/test_double.py']}from helpers import *\n",
            }
        ),
        inherent="selection",
        shows="an import replaces it",
    ),
    Lie("--collect-only in pytest.ini", one_run(_ini("addopts = --collect-only"))),
    *(
        Lie(f"{option} in pytest.ini", one_run(_ini(f"addopts = {option}")))
        for option in ("--setup-only", "--setup-plan")
    ),
    Lie("--setup-only by PYTEST_ADDOPTS", one_run({}, jobs=suite(PYTEST_ADDOPTS="--setup-only"))),
    Lie(
        "--lf and a cache that names another test",
        one_run(
            {
                "pytest.ini": "[pytest]\naddopts = --lf\ncache_dir = kept\n",
                "kept/v/cache/lastfailed": '{"t/test_rest.py::test_name": true}',
            }
        ),
    ),
    Lie("-x and an order in which others go first", one_run(_ini("addopts = -x"))),
    Lie(
        "pytest.exit with status 0 before the failing test",
        one_run(
            {
                **_conftest(
                    "import pytest\ndef pytest_runtest_setup(item):\n"
                    "    if 'double' in item.name: pytest.exit('done', 0)\n"
                    "def pytest_collection_modifyitems(items):\n"
                    "    items.sort(key=lambda item: 'double' in item.name)\n"
                )
            }
        ),
    ),
    Lie(
        "session.shouldstop before the failing test",
        one_run(
            _conftest(
                "def pytest_runtest_logfinish(nodeid, location): pass\n"
                "def pytest_collection_modifyitems(session, items):\n"
                "    items.sort(key=lambda item: 'double' in item.name)\n"
                "def pytest_runtest_teardown(item, nextitem):\n"
                "    if nextitem and 'double' in nextitem.name: item.session.shouldstop = 'done'\n"
            )
        ),
    ),
    Lie("nothing is collected", one_run({"t/notes.txt": ""}, only=True)),
    Lie(
        "a collection error hides the failing test",
        one_run({"t/test_double.py": "import nothing_like_it\n"}),
    ),
    Lie(
        "--continue-on-collection-errors",
        one_run(
            {"t/test_double.py": "import nothing_like_it\n"},
            jobs=suite("--continue-on-collection-errors"),
        ),
    ),
    Lie(
        "pytest_collect_file makes its own items",
        one_run(
            _conftest(
                "import pytest\nclass Item(pytest.Item):\n    def runtest(self): pass\n"
                "class File(pytest.File):\n    def collect(self):\n"
                "        yield Item.from_parent(self, name='test_double')\n"
                "def pytest_pycollect_makemodule(module_path, parent):\n"
                "    if 'double' in module_path.name:\n"
                "        return File.from_parent(parent, path=module_path)\n"
            )
        ),
        inherent="hook",
        shows="conftest.py",
    ),
)
