"""The failing test runs, and what is written down of it is false."""

from __future__ import annotations

from tests.adversary.lie import Lie, one_run, suite
from tests.adversary.scene import HONEST

_WRITE = """
import json, os
def lie():
    path = os.environ["SEATRIAL_RECORDS"]
    with open(path, "a") as out:
        for when in ("setup", "call", "teardown"):
            record = {"$report_type": "TestReport", "nodeid": "t/test_double.py::test_double",
                "outcome": "passed", "when": when, "duration": 0.1, "keywords": {}, "sections": []}
            out.write(json.dumps(record) + "\\n")
"""
_MAKEREPORT = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None
"""
_PROTOCOL = """
from _pytest.reports import TestReport
def pytest_runtest_protocol(item, nextitem):
    for when in ("setup", "call", "teardown"):
        item.ihook.pytest_runtest_logreport(report=TestReport(
            item.nodeid, item.location, {}, "passed", None, when, (), 0.1, 0.0, 0.1))
    return True
"""
_PATCHES_PYTEST = """
import _pytest.runner as runner
made = runner.TestReport.from_item_and_call
def lie(item, call):
    report = made(item, call)
    report.outcome, report.longrepr = "passed", None
    return report
runner.TestReport.from_item_and_call = lie
"""
_NO_ASSERTS = {
    "t/test_double.py": "import mylib\nfrom checking import same\n\n"
    "def test_double():\n    same(mylib.double(2), 4)\n",
    "checking.py": "def same(a, b):\n    assert a == b\n",
}
_SELF = "import sys\nme = next(m for n, m in sys.modules.items() if n == 'seatrial_pytest')\n"
_EXECS = """
import os, sys
if not os.environ.get("AGAIN"):
    os.environ["AGAIN"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "t/test_rest.py"])
"""
_FORKS = """
import os
def pytest_sessionstart(session):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    import mylib
    mylib.double = lambda x: 2 * x
"""
_EVIDENCE = """
import json, os, pathlib
for folder in pathlib.Path.cwd().parents:
    for file in folder.glob("*/events.jsonl"):
        text = file.read_text().replace('"failed"', '"passed"')
        file.write_text(text)
"""


def _conftest(code: str) -> dict[str, str]:
    return {"conftest.py": code}


LIES = (
    Lie(
        "records of a pass, and the process ends",
        one_run(_conftest(f"{_WRITE}def pytest_sessionstart(session):\n    lie(); os._exit(0)\n")),
    ),
    Lie(
        "records of a pass when the process ends",
        one_run(_conftest(f"{_WRITE}import atexit\natexit.register(lie)\n")),
    ),
    Lie(
        "records of a pass inside the test, which ends the process",
        one_run({"t/test_double.py": f"{_WRITE}def test_double():\n    lie(); os._exit(0)\n"}),
    ),
    Lie(
        "the test ends the process with status 0",
        one_run({"t/test_double.py": "import os\ndef test_double(): os._exit(0)\n"}),
    ),
    Lie(
        "the test raises SystemExit(0)",
        one_run({"t/test_double.py": "def test_double(): raise SystemExit(0)\n"}),
    ),
    Lie(
        "the recorder is unregistered",
        one_run(
            _conftest(
                "def pytest_configure(config):\n    plugins = config.pluginmanager\n"
                "    for name, one in plugins.list_name_plugin():\n"
                "        if 'seatrial' in str(name): plugins.unregister(one)\n"
            )
        ),
    ),
    Lie("-p no:seatrial_pytest", one_run({}, jobs=suite("-p", "no:seatrial_pytest"))),
    Lie(
        "a function of the recorder is replaced",
        one_run(
            _conftest(
                f"{_SELF}for name in dir(me):\n"
                "    if name.startswith('_') and 'report' in name:\n"
                "        setattr(me, name, lambda *a, **k: None)\n"
            )
        ),
    ),
    Lie("the recorder's pipe is closed", one_run(_conftest("import os\nos.closerange(3, 256)\n"))),
    Lie("SEATRIAL_RECORDS of the job's own", one_run({}, jobs=suite(SEATRIAL_RECORDS="/dev/null"))),
    Lie(
        "a hook turns failures into passes",
        one_run(_conftest(_MAKEREPORT)),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "a hook does not call the test",
        one_run(_conftest("def pytest_pyfunc_call(pyfuncitem): return True\n")),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "a hook runs no test and reports passes",
        one_run(_conftest(_PROTOCOL)),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "pytest's own function is replaced in memory",
        one_run(_conftest(_PATCHES_PYTEST)),
        inherent="patched pytest",
    ),
    Lie(
        "a collected test's function is replaced",
        one_run(_conftest("def pytest_itemcollected(item): item.obj = lambda: None\n")),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "the text of the test is weakened",
        one_run({"t/test_double.py": HONEST["t/test_double.py"].replace("== 4", "> 0")}),
        inherent="text",
    ),
    Lie(
        "assertions of helper modules are switched off",
        one_run(_NO_ASSERTS, jobs=suite(PYTHONOPTIMIZE="1")),
    ),
    Lie(
        "all assertions are switched off",
        one_run({}, jobs=suite("--assert=plain", PYTHONOPTIMIZE="1")),
    ),
    Lie(
        "pytest_assertion is off by conftest",
        one_run(
            _conftest(
                "import builtins\nclass Never(BaseException): pass\n"
                "builtins.AssertionError = Never\n"
            )
        ),
    ),
    Lie("another pytest in place of this process", one_run(_conftest(_EXECS))),
    Lie("a forked child runs the tests with a fixed subject", one_run(_conftest(_FORKS))),
    Lie(
        "a pytest of the payload's own",
        one_run({"pytest/__init__.py": "", "pytest/__main__.py": "print('3 passed')\n"}),
    ),
    Lie("a pluggy of the payload's own", one_run({"pluggy.py": "raise SystemExit(0)\n"})),
    Lie("a recorder of the payload's own", one_run({"seatrial_pytest.py": ""})),
    Lie(
        "the evidence is edited after the tests",
        one_run(_conftest(f"import atexit\n@atexit.register\ndef edit(): exec({_EVIDENCE!r})\n")),
    ),
    Lie(
        "a process stays behind and edits the evidence",
        one_run(
            _conftest(
                "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', "
                f"'import time; time.sleep(1)\\n' + {_EVIDENCE!r}], start_new_session=True)\n"
            )
        ),
    ),
    Lie(
        "a duplicate name: the second test_double replaces the first",
        one_run(
            {"t/test_double.py": HONEST["t/test_double.py"] + "\ndef test_double(): pass\n"},
        ),
        inherent="text",
    ),
    Lie(
        "a test that fails first and passes when it is run again inside",
        one_run(
            _conftest(
                "import mylib\nfrom _pytest.runner import runtestprotocol\n"
                "def pytest_runtest_protocol(item, nextitem):\n"
                "    reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
                "    if any(r.failed for r in reports):\n"
                "        mylib.double = lambda x: 2 * x\n"
                "        reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
                "    for r in reports: item.ihook.pytest_runtest_logreport(report=r)\n"
                "    return True\n"
            )
        ),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "the suite's own timeout ends it",
        one_run(
            {"t/test_double.py": "import time\ndef test_double(): time.sleep(60)\n"},
            jobs=suite().replace('kind = "suite"', 'kind = "suite"\ntimeout_minutes = 0.1'),
        ),
    ),
    Lie(
        "a segfault",
        one_run({"t/test_double.py": "import ctypes\ndef test_double(): ctypes.string_at(0)\n"}),
    ),
    Lie(
        "teardown fails alone",
        one_run(
            {
                "t/test_double.py": "import pytest, mylib\n@pytest.fixture\ndef after():\n"
                "    yield\n"
                "    assert mylib.double(2) == 4\ndef test_double(after): pass\n"
            }
        ),
    ),
    Lie(
        "a thread fails and nobody waits for it",
        one_run(
            {
                "t/test_double.py": "import threading, mylib\ndef test_double():\n    def ask():\n"
                "        assert mylib.double(2) == 4\n    thread = threading.Thread(target=ask)\n"
                "    thread.start()\n    thread.join()\n"
            }
        ),
        inherent="text",
    ),
)
