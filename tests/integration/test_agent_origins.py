"""Where pytest and the subject come from, seen from inside every process that runs tests."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import (
    AGENT,
    SUBJECT,
    Evidence,
    command,
    laid_out,
    lean_python,
    machine_at,
    parse,
)
from tests.integration.test_agent_environment import wheel

ON_PATH = AGENT / "on_path"
TEST = "import tool.part\ndef test_answer():\n    assert tool.part.answer == {}\n"
FAKE = {"tool/__init__.py": "", "tool/part.py": "answer = 43\n"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An interpreter with pytest, and with the tool as pip unpacks it."""
    folder = tmp_path_factory.mktemp("installed")
    python = lean_python(folder / "venv")
    (site,) = folder.glob("venv/lib/python3*/site-packages")
    with zipfile.ZipFile(wheel(folder, "tool", "1.5")) as archive:
        archive.extractall(site)
    return Path(python)


@dataclass(frozen=True)
class Said:
    """What one pytest, with its workers, came to."""

    code: int
    records: list[dict[str, Any]]
    output: str

    @property
    def problems(self) -> list[dict[str, str]]:
        return [each for look in self.of("origins") for each in look["problems"]]

    def of(self, record: str) -> list[dict[str, Any]]:
        return [line for line in self.records if line["record"] == record]


@pytest.fixture
def start(environment: Path, tmp_path: Path) -> Any:
    """Start pytest in a payload of these files, as the agent does; the wheel's answer is 42."""
    return partial(start_pytest, environment, tmp_path)


def start_pytest(
    environment: Path, folder: Path, files: Mapping[str, str], *arguments: str, path: str = ""
) -> Said:
    """Start pytest of an environment in `folder`, with the distribution `tool` as the subject."""
    payload = laid_out(folder / "payload", files)
    records = folder / "records.jsonl"
    done = subprocess.run(
        [environment, ON_PATH / "seatrial_start.py", "pytest", "-p", "seatrial_pytest",
         f"--rootdir={payload}", f"--confcutdir={payload}", "-c", os.devnull, *arguments, "."],
        cwd=payload, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env={
            "PATH": os.defpath,
            "SEATRIAL_PYTHONPATH": os.pathsep.join(
                [*([str(payload / path)] if path else []), str(ON_PATH)]
            ),
            "SEATRIAL_PAYLOAD": str(payload),
            "SEATRIAL_SUBJECT": "tool",
            "SEATRIAL_RECORDS": str(records),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )  # fmt: skip
    assert records.exists(), done.stdout.decode()
    return Said(done.returncode, parse(records.read_bytes()), done.stdout.decode())


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


FORGED = """
import json, os
def main(*_):
    with open(os.environ["SEATRIAL_RECORDS"], "a") as out:
        out.write(json.dumps({"record": "session_finish"}) + "\\n")
    return 0
console_main = _console_main = main
"""
PUT_FIRST = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
INSERT = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'fakes'))\n"
IN_MODULES = """
import sys, types
tool = sys.modules["tool"] = types.ModuleType("tool")
tool.part = sys.modules["tool.part"] = types.ModuleType("tool.part")
tool.part.answer = 43
"""
LOOKS_REAL = """
import sys, types, tool.part as real
fake = types.ModuleType("tool.part")
exec("answer = 43\\ndef ask(): return 43", fake.__dict__)
fake.__file__, fake.__spec__ = real.__file__, real.__spec__
sys.modules["tool.part"] = sys.modules["tool"].part = fake
"""
FROM_OUTSIDE = """
import sys, tempfile
folder = tempfile.mkdtemp()
open(folder + "/outside.py", "w").write("answer = 43")
sys.path.insert(0, folder)
import outside, tool
sys.modules["tool.part"] = tool.part = outside
"""
MOCKED = "import sys\nfrom unittest.mock import MagicMock\nsys.modules['tool.part'] = MagicMock()\n"
BY_SPEC = """
import importlib.util, os, sys
def load(name, file):
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, "fakes", "tool", file))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
HERE = os.path.dirname(__file__)
load("tool", "__init__.py")
load("tool.part", "part.py")
"""
LATE = """
import sys, types
def test_replaces_it_and_leaves_it_so():
    sys.modules["tool.part"] = types.ModuleType("tool.part")
"""


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"t/test_a.py": TEST.format(43), **below("t", FAKE)}, "t/tool/__init__.py"),
        ({"test_a.py": TEST.format(43), "conftest.py": INSERT, **below("fakes", FAKE)}, "fakes/"),
        ({"test_a.py": TEST.format(43), "conftest.py": IN_MODULES}, "comes from no file"),
        ({"test_a.py": TEST.format(43), "conftest.py": FROM_OUTSIDE}, "installed no such file"),
        ({"test_a.py": TEST.format(43), "conftest.py": LOOKS_REAL}, "functions come from <string>"),
        ({"test_a.py": "import tool.part\ndef test(): pass", "conftest.py": MOCKED}, "no file"),
        ({"test_a.py": TEST.format(43), "conftest.py": BY_SPEC, **below("fakes", FAKE)}, "fakes/"),
        ({"test_a.py": TEST.format(42), "test_b.py": LATE}, "monkeypatch.setitem"),
    ],
    ids=[
        "prepend",
        "sys.path",
        "sys.modules",
        "another module from outside",
        "with its file",
        "mock",
        "importlib",
        "left behind",
    ],
)
def test_what_is_tested_must_be_what_is_installed(
    start: Any, files: Mapping[str, str], says: str
) -> None:
    said = start(files)
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    assert any(says in f"{each['what']} {each['fix']}" for each in said.problems), said.problems
    assert all(each["fix"] for each in said.problems)


def test_every_worker_looks_for_itself(start: Any) -> None:
    said = start({"t/test_a.py": TEST.format(43), **below("t", FAKE)}, "-n", "2")
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    assert {look["worker"] for look in said.of("origins") if look["problems"]} >= {"gw0"}


def test_a_module_that_only_the_payload_has_is_the_wheels_defect(start: Any) -> None:
    """The wheel's `tool.lean` imports a module that its repository has, and the wheel has not."""
    files = {"forgotten.py": "answer = 42\n", "conftest.py": PUT_FIRST}
    said = start({**files, "test_a.py": "import tool.lean\ndef test(): tool.lean.late()\n"})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    [what] = {each["what"] for each in said.problems}
    assert "tool.lean imports forgotten, which only the payload has (forgotten.py)" in what


RETRIES = """
import pytest
from _pytest.runner import runtestprotocol
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    runtestprotocol(item, log=False, nextitem=nextitem)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
CALLS_AGAIN = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call" and call.excinfo:
        again = pytest.CallInfo.from_call(lambda: item.ihook.pytest_runtest_call(item=item), "call")
        outcome.force_result(pytest.TestReport.from_item_and_call(item, again))
"""
UNSTABLE = "tries = []\ndef test_a():\n    tries.append(1)\n    assert len(tries) > 1\n"


@pytest.mark.parametrize(
    ("plugin", "workers"),
    [(RETRIES, ()), (CALLS_AGAIN, ()), (CALLS_AGAIN, ("-n", "1"))],
    ids=["protocol", "call", "call in a worker"],
)
def test_a_test_that_is_run_again_is_told(start: Any, workers: Any, plugin: str) -> None:
    """Whatever plugin does it."""
    stable = "def test_b(): pass\n"
    said = start({"test_a.py": UNSTABLE + stable, "conftest.py": plugin}, *workers)
    assert said.code == 0, said.output
    assert [line["nodeid"] for line in said.of("rerun")] == ["test_a.py::test_a"]


PATCHES = """
import functools, tool.part
from unittest.mock import MagicMock
from _pytest.reports import TestReport
class Answers:
    def __call__(self): return 42
    def ask(self): return 42
tool.part.ask = lambda: 42
tool.part.bound = Answers().ask
tool.part.called = Answers()
tool.part.half = functools.partial(lambda number: number, 42)
tool.part.mock = MagicMock()
tool.part.plain = functools.partial(int, 42)
made = TestReport.from_item_and_call
TestReport.from_item_and_call = classmethod(lambda cls, item, call: made(item, call))
"""


FORGED = """
import types, _pytest.runner, pytest
def pytest_report_to_serializable(report): pass
text = "import pytest\\n@pytest.hookimpl(wrapper=True)\\n"
text += "def pytest_runtest_makereport(): return (yield)\\n"
def disguised(name, file):
    module = types.ModuleType(name)
    module.__file__ = file
    exec(compile(text, file, "exec"), module.__dict__)
    return module
def pytest_configure(config):
    config.pluginmanager.register(disguised("_pytest.more", _pytest.runner.__file__))
    config.pluginmanager.register(disguised("pytest_mock.more", "/usr/lib/pytest_mock/plugin.py"))
"""


def test_code_that_says_it_is_anothers_is_named(start: Any) -> None:
    said = start({"test_a.py": TEST.format(42), "conftest.py": FORGED})
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    assert told == [
        ["pytest_report_to_serializable", "conftest.py"],
        ["pytest_runtest_makereport", "/usr/lib/pytest_mock/plugin.py"],
        ["pytest_runtest_makereport", "a function that is not in _pytest/runner.py"],
    ]


def test_functions_that_the_payload_replaces_are_named(start: Any) -> None:
    said = start({"test_a.py": TEST.format(42), "conftest.py": PATCHES})
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    patched = "_pytest.reports.TestReport.from_item_and_call"
    assert told[0] == [patched, "conftest.py"]
    by_payload = ("ask", "bound", "called", "half")
    assert told[1:-1] == [[f"tool.part.{name}", "conftest.py"] for name in by_payload]
    assert told[-1][1] == "tool.part.mock"
    assert "unittest/mock.py" in told[-1][0]


REPLACES = """
import sys, types, tool.part
def test_for_a_moment(monkeypatch):
    monkeypatch.setitem(sys.modules, "tool.part", types.ModuleType("tool.part"))
"""


PATCHED_NAMES = (
    "os.write", "os.getpid", "os.open", "os._exit", "fcntl.flock", "time.sleep",
    "json.dumps", "json.loads", "json.JSONEncoder.encode", "json.JSONEncoder.iterencode",
    "json.JSONEncoder.default", "hashlib.sha256", "builtins.open",
)  # fmt: skip
"""What tests of other libraries replace for a moment, and the recorder needs."""
PATCHES_NAMES = f"""
import fcntl, pytest
@pytest.mark.parametrize("name", {PATCHED_NAMES!r})
def test_for_a_moment(monkeypatch, name):
    monkeypatch.setattr(name, lambda *a, **k: 0)
"""


HONEST = {
    "test_plain.py": TEST.format(42),
    "test_names_that_the_recorder_needs.py": PATCHES_NAMES,
    "test_restored.py": REPLACES,
    "of_its_name/tool/test_part.py": TEST.format(42),
    "of_its_name/conftest.py": "",
    "package/test_a.py": TEST.format(42),
    "package/__init__.py": "",
    "test_made.py": "import tool.made\ndef test(): assert tool.made.twice(2) == 4\n",
    "test_second_names.py": "import tool.moves\ndef test(): pass\n",
}
"""What others do for a moment or for good reasons: all in one suite, as each must be no alarm."""


@pytest.mark.parametrize(
    "arguments",
    [(), ("-n", "2"), ("--import-mode=importlib",)],
    ids=["one process", "xdist", "importlib"],
)
def test_honest_suites_are_no_alarm(start: Any, arguments: tuple[str, ...]) -> None:
    said = start(HONEST, *arguments)
    assert (said.code, said.problems) == (0, []), said.output
    workers = {"", "gw0", "gw1"} if "-n" in arguments else {""}
    assert {one["worker"] for one in said.of("origins") if one["when"] == "end"} == workers
    assert {one["worker"] for one in said.of("worker")} == workers - {""}


@pytest.mark.parametrize(
    ("files", "path", "shadow"),
    [
        ({"pytest/__init__.py": FORGED, "pytest/__main__.py": "from pytest import main\nmain()"},
         "", "pytest/__init__.py"),
        ({"_pytest/__init__.py": FORGED, "_pytest/config/__init__.py": FORGED},
         "", "_pytest/__init__.py"),
        ({"pluggy.py": FORGED}, "", "pluggy.py"),
        ({"seatrial_pytest.py": FORGED}, "", "seatrial_pytest.py"),
        ({"src/pytest.py": FORGED}, "src", "src/pytest.py"),
    ],
)  # fmt: skip
def test_a_payload_cannot_bring_its_own_pytest(
    start: Any, files: Mapping[str, str], path: str, shadow: str
) -> None:
    said = start({"test_a.py": "def test(): assert False\n", **files}, path=path)
    assert said.code == 76
    (problem,) = said.problems
    assert (problem["reason"], problem["file"]) == ("wrong_pytest", shadow)
    assert problem["fix"].startswith("rename it")
    assert [line["record"] for line in said.records] == ["origins"]


def test_the_source_of_the_subject_is_to_be_left_out(start: Any) -> None:
    said = start({"test_a.py": TEST.format(43), **FAKE})
    assert {problem["fix"].partition(";")[0] for problem in said.problems} == {
        'leave that source out of the payload, with exclude = ["tool"] in payload.toml'
    }


SPIES = """
import os, subprocess, sys
def test_path():
    own = [os.getcwd(), os.path.join(os.getcwd(), "src"), os.path.dirname(os.__file__)]
    assert sorted(own, key=sys.path.index) == own, sys.path
    import aside, seatrial_events
    said = subprocess.run([sys.executable, "-c", "import aside; print(aside.x)"],
                          stdout=subprocess.PIPE, check=True).stdout
    assert said == b"1\\n"
def test_spawn():
    import aside, multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(aside.double, [1]) == [2]
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_the_payloads_own_path_works_as_with_python_m(
    start: Any, arguments: tuple[str, ...]
) -> None:
    files = {
        "suites/test_a.py": SPIES,
        "src/aside.py": "x = 1\ndef double(n): return 2 * n\n",
        "pytest/test_in_a_folder_of_that_name.py": "def test(): pass\n",
    }
    said = start(files, *arguments, path="src")
    assert (said.code, said.problems) == (0, []), said.output
    assert len({line["nodeid"] for line in said.of("report")}) == 3


OVERWRITES = """
import pathlib, seatrial_pytest
def test():
    pathlib.Path(seatrial_pytest.__file__).write_text("")
"""
HOOKS_OFF = """
def pytest_collection_modifyitems(config):
    config.pluginmanager.unregister(name="seatrial-prover")
"""


BESIDE = """
import importlib.metadata, pathlib, shutil, sys
away = pathlib.Path(sys.argv[1])
away.mkdir(parents=True)
home = pathlib.Path(importlib.metadata.distribution(away.name).locate_file(""))
for folder in home.glob(away.name.replace("pytest", "*pytest") + "*"):
    if folder.is_dir():
        shutil.copytree(folder, away / folder.name)
"""
ONLY = """
import json, os, pathlib
path = pathlib.Path("only.json").resolve()
path.write_text(json.dumps(["only/test_b.py::test_b"]))
os.environ["SEATRIAL_ONLY"] = os.environ["SEATRIAL_SKIP"] = str(path)
"""
SPOIL = """
from pathlib import Path
Path("undone/test_a.py").write_text("def test_a(): pass")
Path("undone/conftest.py").write_text("")
Path("undone/kept.txt").write_text("1")
"""
HIDES = """
import os
os.environ["SEATRIAL_PAYLOAD"] = ""
import tool.part
class Fake:
    def f(self): return 1
tool.part.f = Fake.f
"""
PASSES = "def test_a(): pass\n"
CHILD = """
import sys, subprocess
def test(): subprocess.run([sys.executable, "-c", "import tool.part"])
"""
SUITES = {
    "honest/test_a.py": TEST.format(42),
    "prepend/t/test_a.py": TEST.format(43),
    **below("prepend/t", FAKE),
    "shadow/pytest.py": FORGED,
    "unhooked/test_a.py": TEST.format(42),
    "unhooked/conftest.py": HOOKS_OFF,
    "only/test_a.py": "def test_a(): assert 0\n",
    "only/test_b.py": "def test_b(): pass\n",
    "only/conftest.py": ONLY,
    "hides/test_a.py": TEST.format(42),
    "hides/conftest.py": HIDES,
    "dies/test_a.py": "import os, tool.part\ndef test_a(): os._exit(3)\ndef test_b(): pass\n",
    "undone/test_a.py": (
        "from pathlib import Path\ndef test_a(): assert not Path('undone/kept.txt').exists()\n"
    ),
    "bodies/test_a.py": "def test_a(): assert False\n",
    "never/test_a.py": PASSES,
    "child/test_a.py": CHILD,
    "overwrites/test_a.py": OVERWRITES,
}


NO_BODIES = ("--setup-only", "--setup-plan", "--collect-only", "--lf")
CHANGES_CODE = ("PYTHONOPTIMIZE", "PYTHONPYCACHEPREFIX")


def jobs(away: Path) -> list[dict[str, Any]]:
    """Suites of which each is about one thing; the last one spoils the agent itself."""
    copies = [away / name for name in ("tool", "pytest")]
    folders = ("honest", "prepend", "unhooked", "only", "hides", "never", "child")
    variables = {name: {name: "1"} for name in CHANGES_CODE}
    paths = {f"copy-{copy.name}": {"PYTHONPATH": str(copy)} for copy in copies}
    shadow = {"env": {"PYTHONPATH": "shadow"}, "path_variables": ["PYTHONPATH"]}
    return [
        *({"id": name, "pytest": [name]} for name in folders),
        *({"id": f"{name}-n", "pytest": ["-n", "1", name]} for name in ("honest", "only", "dies")),
        {"id": "shadow", "pytest": ["honest"], **shadow},
        *({"id": option.strip("-"), "pytest": [option, "bodies"]} for option in NO_BODIES),
        command("{python}", "-c", SPOIL, id="spoil"),
        {"id": "undone", "pytest": ["undone"]},
        *(command("{python}", "-c", BESIDE, str(one), id=f"make-{one.name}") for one in copies),
        *(
            {"id": name, "pytest": ["honest"], "env": env}
            for name, env in {**variables, **paths}.items()
        ),
        {"id": "overwrites", "pytest": ["overwrites"]},
    ]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str) -> Evidence:
    """One attempt of many suites: which of them count, and why the others do not."""
    payload = laid_out(tmp_path_factory.mktemp("payload"), SUITES)
    away = tmp_path_factory.mktemp("away") / "copies"
    with machine_at(tmp_path_factory.mktemp("machine") / "base") as machine:
        wheel(machine.base / "wheels" / "w1", "tool", "1.5")
        return machine.run(
            payload, python=lean, wheels="w1", subject=SUBJECT, jobs=jobs(away),
            limits={"deadline_s": 280}, timeout_s=280,
        )  # fmt: skip


REFUSED = {
    "prepend": ("wrong_subject", "Fix: rename or move prepend/t/tool/__init__.py"),
    "shadow": ("wrong_pytest", "shadow/pytest.py has the name of a tool"),
    "unhooked": ("wrong_pytest", "never said where it was loaded from"),
    "overwrites": ("wrong_pytest", "seatrial_pytest.py was changed"),
    # copies with metadata of their own, which look as good as what was installed
    "copy-tool": ("wrong_subject", "comes before the installed one on the path"),
    "copy-pytest": ("wrong_pytest", "comes before the installed one on the path"),
    **{
        option.strip("-"): ("wrong_pytest", "leaves tests or their bodies out")
        for option in NO_BODIES
    },
    **{name: ("wrong_pytest", name) for name in CHANGES_CODE},
}


@pytest.mark.parametrize("job", REFUSED)
def test_the_agent_says_that_the_results_do_not_count(ran: Evidence, job: str) -> None:
    cause, says = REFUSED[job]
    finished = ran.finished(job)
    assert finished["cause"] == cause, ran.log.decode()
    assert says in finished["detail"]


def test_the_results_of_an_honest_suite_count(ran: Evidence) -> None:
    finished = ran.finished("honest")
    assert (finished["exit_code"], finished["cause"]) == (0, None), ran.log.decode()
    assert "exit code 0" in finished["detail"]


@pytest.mark.parametrize("job", ["only", "only-n"])
def test_a_conftest_cannot_say_which_tests_are_wanted(ran: Evidence, job: str) -> None:
    assert ran.finished(job)["exit_code"] == 1
    assert ran.counts(job) == {"failed": 1, "passed": 1}


def told(ran: Evidence, job: str) -> dict[str, Any]:
    [told] = [each for each in ran.of("test", job) if each["record"] == "test_set"]
    return told


def test_a_conftest_that_hides_the_payloads_folder_is_named_all_the_same(ran: Evidence) -> None:
    assert ["tool.part.f", "hides/conftest.py"] in told(ran, "hides")["hooks"]


def test_a_worker_that_dies_is_the_failure_of_its_test(ran: Evidence) -> None:
    finished = ran.finished("dies-n")
    assert (finished["exit_code"], finished["cause"]) == (1, None), ran.log.decode()
    outcomes = [
        (one["nodeid"], one["outcome"]) for one in ran.reports("dies-n") if one["when"] == "call"
    ]
    assert sorted(outcomes) == [
        ("dies/test_a.py::test_a", "failed"),
        ("dies/test_a.py::test_b", "passed"),
    ]


def test_what_a_job_did_to_the_tests_is_undone_before_the_next(ran: Evidence) -> None:
    assert ran.finished("undone")["exit_code"] == 1
    warning = "an earlier job changed undone/test_a.py, undone/conftest.py: as shipped again"
    assert warning in ran.messages("warning")


@pytest.mark.parametrize(
    ("job", "modules"), [("honest", 2), ("honest-n", 2), ("never", 0), ("child", None)]
)
def test_it_is_told_whether_the_subject_was_imported(
    ran: Evidence, job: str, modules: int | None
) -> None:
    assert told(ran, job)["subject_modules"] == modules
    assert told(ran, job)["subject_names"] == ["tool"]
