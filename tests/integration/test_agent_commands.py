"""Where commands, and what suites start, have the subject from; and what commands leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import (
    SUBJECT,
    Evidence,
    Machine,
    command,
    installed_tool,
    laid_out,
)
from tests.integration.test_agent_environment import wheel
from tests.integration.wheel_making import wheel_bytes

FAKE = "answer = 43\n"
SHADOW = {"demos/tool/__init__.py": "", "demos/tool/part.py": FAKE}
DEMO = "import tool.part; print(tool.part.answer)\n"
INSERT = "import sys; sys.path.insert(0, 'src')\n"
BELOW_SRC = {"src/tool/__init__.py": "", "src/tool/part.py": FAKE}
BORROWED = {"demos/demo.py": "import tool.needs\n", "demos/more.py": ""}


def run(machine: Machine, folder: Path, python: str, files: dict[str, str], **job: Any) -> Evidence:
    wheel(machine.base / "wheels" / "w1", "tool", "1.5")
    payload = laid_out(folder / "payload", files)
    told = command("{python}", "demos/demo.py", **job)
    return machine.run(payload, python=python, wheels="w1", subject=SUBJECT, jobs=[told])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"demos/demo.py": DEMO, **SHADOW}, "demos/tool"),
        ({"demos/demo.py": INSERT + DEMO, **BELOW_SRC}, "src/tool"),
        (
            {
                "demos/demo.py": "import subprocess, sys\n"
                "sys.exit(subprocess.call([sys.executable, 'demos/child.py']))\n",
                "demos/child.py": INSERT + DEMO,
                **BELOW_SRC,
            },
            "src/tool",
        ),
        (
            {
                "demos/demo.py": "import subprocess, sys\n"
                "ask = 'import subprocess, sys; '\n"
                "ask += 'sys.exit(subprocess.call([sys.executable, \"demos/child.py\"]))'\n"
                "sys.exit(subprocess.call([sys.executable, '-c', ask], env={}))\n",
                "demos/child.py": INSERT + DEMO,
                **BELOW_SRC,
            },
            "src/tool",
        ),
        (BORROWED, "imports more, which only the payload has"),
    ],
)
def test_a_command_that_has_the_subject_from_the_payload_does_not_count(
    machine: Machine, lean: str, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    finished = run(machine, tmp_path, lean, files).finished("demo")
    assert (finished["exit_code"], finished["cause"]) == (0, "wrong_subject")
    assert says in finished["detail"]
    assert "Fix: " in finished["detail"]


def test_a_command_with_the_installed_subject_counts(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    """Its helpers are the payload's, and what it starts may know nothing of the environment."""
    demo = (
        "import os, subprocess, sys, helper, tool.part\n"
        "for flags in ([], ['-I'], ['-S'], ['-W', 'error'], ['-X', 'dev']):\n"
        "    for env in ({'PYTHONPATH': ''}, {**os.environ, 'PYTHONPATH': ''}):\n"
        "        ask = [sys.executable, *flags, '-c', 'import tool.part']\n"
        "        done = subprocess.run(ask, capture_output=True, env=env)\n"
        "        print('' if '-S' in flags else done.stderr.decode(), end='')\n"
        "print(tool.part.answer)\n"
    )
    files = {"demos/demo.py": demo, "demos/helper.py": ""}
    evidence = run(machine, tmp_path, lean, files)
    assert (evidence.finished("demo")["exit_code"], evidence.finished("demo")["cause"]) == (0, None)
    assert evidence.log.split(b"=====\n")[-1].decode().split() == ["42"]


ALONE = """
import subprocess, sys
subprocess.run([sys.executable, '-c', 'import tool'], env={}, check=True)
"""


@pytest.mark.parametrize(
    ("demo", "number"),
    [
        ("import tool.part\n", 2),
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import tool'])\n", 1),
        (ALONE, 1),
        ("print('as good as ever')\n", 0),
    ],
    ids=["itself", "in a child", "in a child without variables", "never"],
)
def test_a_command_tells_how_much_of_the_subject_it_loaded(
    machine: Machine, lean: str, tmp_path: Path, demo: str, number: int
) -> None:
    evidence = run(machine, tmp_path, lean, {"demos/demo.py": demo})
    (told,) = evidence.of("test", "demo")
    assert told == {"record": "test_set", "nodeid": "", "subject_modules": number}
    assert evidence.finished("demo")["cause"] is None


def test_a_paired_benchmark_tells_how_much_of_the_subject_it_loaded(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    (told,) = paired(machine, tmp_path, lean, bench=BENCH).of("test", "bench")
    assert told["subject_modules"] == 2


IN_A_CHILD = """
import pathlib, subprocess, sys, tool.part
SRC = pathlib.Path(__file__).parent / "src"
def test_answer(tmp_path):
    assert tool.part.answer == 42
    (tmp_path / "tool").mkdir()
    for name in ("__init__", "part"):
        (tmp_path / "tool" / (name + ".py")).write_text((SRC / "tool" / (name + ".py")).read_text())
    ask = [sys.executable, "-c", "import tool.part; print(tool.part.answer)"]
    assert subprocess.check_output(ask, cwd={}) == b"43\\n"
"""


@pytest.mark.parametrize(
    ("cwd", "cause"),
    [("SRC", "wrong_subject"), ("SRC, env={}", "wrong_subject"), ("tmp_path", None)],
)
def test_a_suite_whose_child_has_the_subject_from_the_payload_does_not_count(
    machine: Machine, lean: str, tmp_path: Path, cwd: str, cause: str | None
) -> None:
    """A copy that a test makes elsewhere is the test's own."""
    wheel(machine.base / "wheels" / "w1", "tool", "1.5")
    payload = laid_out(tmp_path / "payload", {"test_a.py": IN_A_CHILD.format(cwd), **BELOW_SRC})
    evidence = machine.run(payload, python=lean, wheels="w1", subject=SUBJECT, jobs=[{}])
    finished = evidence.finished("suite")
    assert (finished["exit_code"], finished["cause"]) == (0, cause), evidence.log.decode()
    assert ("src/tool" in finished["detail"]) == (cause is not None)


OLD = {"tool/__init__.py": "", "tool/part.py": "answer = 43\n"}
NEW = {"tool/__init__.py": "", "tool/part.py": "answer = 42\n"}
ASKS = "import tool.part\ndef test_answer():\n    assert tool.part.answer\n"
IN_ITS_CHILD = """
import subprocess, sys
def test_answer():
    ask = [sys.executable, "-c", "import tool.part; print(tool.part.answer)"]
    assert subprocess.check_output(ask, env={})
"""
ELSEWHERE = "__import__('sys').path.insert(0, {!r})\n"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has an earlier release of the tool."""
    files = {**OLD, "tool/_version.py": "VERSION = 1\n"}
    return str(installed_tool(tmp_path_factory.mktemp("older"), files))


@pytest.mark.parametrize("what", ["suite", "child of a suite", "demo", "another folder"])
@pytest.mark.parametrize("shipped", [NEW, OLD], ids=["another", "the same"])
def test_another_copy_of_the_payload_does_not_count(
    machine: Machine, older: str, lean: str, tmp_path: Path, what: str, shipped: dict[str, str]
) -> None:
    """Without a wheel the payload is the subject: a copy with the same text may be imported."""
    files = {f"src/{name}": text for name, text in shipped.items()}
    test = IN_ITS_CHILD if what == "child of a suite" else ASKS
    files |= {"t/test_a.py": test, "demo.py": "import tool.part, tool._version\n"}
    files |= {"__main__.py": "import demo\n", "src/tool/_version.py": "VERSION = 2\n"}
    if what == "another folder":
        files["t/conftest.py"] = ELSEWHERE.format(str(laid_out(tmp_path / "worktree", OLD)))
    job = command("{python}", "demo.py") if what == "demo" else {"pytest": ["t"]}
    python = lean if what == "another folder" else older
    evidence = machine.run(laid_out(tmp_path / "payload", files), python=python, jobs=[job])
    finished = evidence.finished(job.get("id", "suite"))
    assert finished["exit_code"] in (0, 76), evidence.log.decode()
    assert finished["cause"] == ("wrong_subject" if shipped is NEW else None), finished
    if shipped is NEW:
        assert "has another src/tool/part.py. Fix: " in finished["detail"], finished["detail"]


def test_a_payload_that_comes_before_an_older_copy_counts(
    machine: Machine, older: str, tmp_path: Path
) -> None:
    files = {**NEW, "conftest.py": "", "test_a.py": ASKS.replace("answer\n", "answer == 42\n")}
    files |= {"types.py": "", "tests/__init__.py": ""}
    evidence = machine.run(laid_out(tmp_path / "payload", files), python=older, jobs=[{}])
    assert (evidence.finished()["exit_code"], evidence.finished()["cause"]) == (0, None)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("from space import b", "space.a imports space.b"),
        ("import space.b", "space.a imports space.b"),
        ("from . import b", "space.a imports space.b"),
        ("from .b import answer", "space.a imports space.b"),
        ("import types", "space.b was loaded from space/b.py, in a namespace package of tool"),
    ],
)
def test_a_module_that_a_namespace_package_lacks_does_not_count(
    machine: Machine, lean: str, tmp_path: Path, line: str, what: str
) -> None:
    """The importer may be the payload or the subject."""
    finished = _demo_in_namespace(machine, lean, tmp_path, line, "space/b.py")
    assert (finished["exit_code"], finished["cause"]) == (0, "wrong_subject")
    assert what in finished["detail"]


def test_the_tests_may_add_to_the_subjects_namespace(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    source = "def late():\n    from ..b import answer\n"
    finished = _demo_in_namespace(machine, lean, tmp_path, source, "tests/space/b.py")
    assert (finished["exit_code"], finished["cause"]) == (0, None), finished["detail"]


def _demo_in_namespace(
    machine: Machine, lean: str, tmp_path: Path, line: str, part: str
) -> dict[str, Any]:
    wheels = machine.base / "wheels" / "w1"
    wheels.mkdir(parents=True)
    made = wheel_bytes("tool", "1.5", files={"space/a.py": f"{line}\n"})
    (wheels / "tool-1.5-py3-none-any.whl").write_bytes(made)
    first = "import sys; sys.path.insert(0, 'tests')\n"
    files = {part: "answer = 42\n", "demo.py": f"{first}import space.a, space.b\n"}
    payload = laid_out(tmp_path / "payload", files)
    job = command("{python}", "demo.py")
    evidence = machine.run(payload, python=lean, wheels="w1", subject=SUBJECT, jobs=[job])
    return evidence.finished("demo")


def test_the_subject_may_import_the_program_that_runs(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    files = {"tool.py": "import __main__\nprogram = __main__.__file__\n"}
    wheels = machine.base / "wheels" / "w1"
    wheels.mkdir(parents=True)
    (wheels / "tool-1.5-py3-none-any.whl").write_bytes(wheel_bytes("tool", "1.5", files=files))
    payload = laid_out(tmp_path / "payload", {"demo.py": "import tool; print(tool.program)\n"})
    job = command("{python}", "demo.py")
    evidence = machine.run(payload, python=lean, wheels="w1", subject=SUBJECT, jobs=[job])
    assert (evidence.finished("demo")["exit_code"], evidence.finished("demo")["cause"]) == (0, None)


def test_a_report_of_origins_that_cannot_be_read_is_refused(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    demo = "import os; open(os.environ['SEATRIAL_MODULES'], 'a').write('{}\\n')\n"
    finished = run(machine, tmp_path, lean, {"demos/demo.py": demo}).finished("demo")
    assert finished["cause"] == "forged_records"


BENCH = (
    "import seatrial_events, tool.part\n"
    "seatrial_events.metric('m', [1.0], unit='ms', direction='lower')\n"
)


def paired(machine: Machine, folder: Path, python: str, *, bench: str, **old: str) -> Evidence:
    """Run a benchmark whose baseline has `old` as its files, or else the same."""
    wheel(machine.base / "wheels" / "w1", "tool", "1.5")
    new_payload = laid_out(folder / "new", {"bench.py": bench})
    old_payload = laid_out(folder / "old", old or {"bench.py": bench})
    few = {"min_pairs": 4, "max_pairs": 4, "precision": 0.001}
    told = command("{python}", "bench.py", id="bench", kind="benchmark", paired=few)
    baseline = {
        "payload": machine.unpack(old_payload),
        "environment": {"name": "image"},
        "wheels": "w1",
        "subject": SUBJECT,
    }
    return machine.run(
        new_payload, python=python, wheels="w1", subject=SUBJECT, jobs=[told], baseline=baseline
    )


def test_a_benchmark_whose_baseline_has_the_subject_from_the_payload_does_not_count(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    files = {"bench.py": INSERT + BENCH, **BELOW_SRC}
    evidence = paired(machine, tmp_path, lean, bench=BENCH, **files)
    finished = evidence.finished("bench")
    assert finished["cause"] == "wrong_subject", evidence.log.decode()
    assert finished["detail"].startswith("the baseline: ")
    assert "src/tool" in finished["detail"]


@pytest.mark.parametrize("arm", ["new", "old"])
@pytest.mark.parametrize(
    ("words", "code", "check"),
    [
        ((), "sys.exit(256)", "exit-code"),
        ((), "os._exit(512)", "exit-code"),
        ((), "exit(256)", "exit-code"),
        (("-O",), "assert False", "assertions"),
        ((), "pytest.main(['test_a.py', '-p', 'no:terminal'])", "pytest"),
        ((), "import subprocess; subprocess.run([sys.executable, 'check.py'])", "assertion"),
        ((), "import subprocess; subprocess.run([sys.executable, '-m', 'check'])", "assertion"),
    ],
)
def test_what_the_exit_code_of_an_arm_hides_is_a_failed_check(
    machine: Machine, lean: str, tmp_path: Path, arm: str, words: Any, code: str, check: str
) -> None:
    wheel(machine.base / "wheels" / "w1", "tool", "1.5")
    bench = (
        "import os, sys, pytest, seatrial_events, tool.part\n"
        "seatrial_events.metric('m', [1.0], unit='ms', direction='lower')\n"
    )
    fails = {"bench.py": bench + code, "test_a.py": "def test_a(): assert False\n"}
    fails["check.py"] = "import tool.part\nassert tool.part.answer == 41\n"
    new, old = (
        laid_out(tmp_path / name, fails if name == arm else {"bench.py": bench})
        for name in ("new", "old")
    )
    few = {"min_pairs": 4, "max_pairs": 4, "precision": 0.001}
    told = command("{python}", *words, "bench.py", id="bench", kind="benchmark", paired=few)
    baseline = {
        "payload": machine.unpack(old),
        "environment": {"name": "image"},
        "wheels": "w1",
        "subject": SUBJECT,
    }
    evidence = machine.run(
        new, python=lean, wheels="w1", subject=SUBJECT, jobs=[told], baseline=baseline
    )
    failed = [each["check"] for each in evidence.of("check") if each["outcome"] == "failed"]
    assert failed == ([check] if arm == "new" else []), evidence.log.decode()
    pairs = [each for each in evidence.of("metric") if "turn" in each]
    assert bool(pairs) == (arm == "new")
    if arm == "old":
        assert f"its arm failed its own checks: {check}" in "".join(evidence.messages("warning"))


@pytest.mark.parametrize(
    ("test", "failed"),
    [
        ("import tool.part\ndef test_a(): assert False\n", ["pytest"]),
        ("import tool.part\ndef test_a(): pass\n", []),
        ("import tool.part\n", []),
        ("def test_a(): assert False\n", []),
    ],
    ids=["fails", "passes", "has-none", "without-the-subject"],
)
def test_failed_tests_of_a_pytest_whose_output_a_demo_captures_are_a_failed_check(
    machine: Machine, lean: str, tmp_path: Path, test: str, failed: list[str]
) -> None:
    demo = (
        "import subprocess, sys, tool.part\n"
        "subprocess.run([sys.executable, '-m', 'pytest', 'test_a.py'], capture_output=True)\n"
    )
    evidence = run(machine, tmp_path, lean, {"demos/demo.py": demo, "test_a.py": test})
    assert evidence.finished("demo")["exit_code"] == 0
    checks = [each["check"] for each in evidence.of("check") if each["outcome"] == "failed"]
    assert checks == failed, evidence.log.decode()


CHECK = "import tool.part\ndef check(answer=41):\n    assert tool.part.answer == answer\n"
THREADS = "from concurrent.futures import ThreadPoolExecutor, wait\n"
FORK = "import multiprocessing\nfork = multiprocessing.get_context('fork')\n"
TASKS = "import asyncio\nasync def late(): check()\n"
DROPS = {
    "submit": f"{THREADS}with ThreadPoolExecutor(2) as pool: pool.submit(check)",
    "no-with": f"{THREADS}pool = ThreadPoolExecutor(2)\npool.submit(check)",
    "map": f"{THREADS}with ThreadPoolExecutor(2) as pool: pool.map(check, (40, 41))",
    "processes": f"{FORK}from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(1, fork) as pool: pool.submit(check)",
    "pool": f"{FORK}"
    "with fork.Pool(1) as pool:\n    pool.apply_async(check)\n    pool.close()\n    pool.join()",
    "task": f"{TASKS}async def main():\n    asyncio.ensure_future(late())\n"
    "    await asyncio.sleep(0)\nasyncio.run(main())",
    "in-a-child": "import subprocess, sys\nsubprocess.run([sys.executable, 'demos/submit.py'])",
}
ASKS_FOR_IT = {
    "result": f"{THREADS}pool = ThreadPoolExecutor(1)\n"
    "try: pool.submit(check).result()\nexcept AssertionError: print('as expected')",
    "exception": f"{THREADS}with ThreadPoolExecutor(2) as pool:\n"
    "    done, _ = wait([pool.submit(check), pool.submit(check, 42)])\n"
    "assert len([one for one in done if one.exception()]) == 1",
    "first-of-map": f"{THREADS}with ThreadPoolExecutor(2) as pool:\n"
    "    try: list(pool.map(check, (40, 41)))\n    except AssertionError: print('as expected')",
    "get": f"{FORK}with fork.Pool(1) as pool:\n"
    "    try: pool.apply_async(check).get()\n    except AssertionError: print('as expected')",
    "gather": f"{TASKS}async def main(): return await asyncio.gather(late(), "
    "return_exceptions=True)\nassert asyncio.run(main())[0].args == ()",
    "forks": f"{THREADS}import os, sys\nwith ThreadPoolExecutor(1) as pool: one = "
    "pool.submit(check)\nif not os.fork(): sys.exit()\nos.wait()\nassert one.exception()",
    "other-error": f"{THREADS}with ThreadPoolExecutor(1) as pool: pool.submit(int, 'x')",
    "no-subject": "",
}


def test_failed_assertions_that_a_command_asks_nobody_for_are_failed_checks(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    """Those that it asks for are as it expects them; without the subject they say nothing of it."""
    files = {f"demos/{name}.py": f"{CHECK}{code}\n" for name, code in (DROPS | ASKS_FOR_IT).items()}
    files["demos/no-subject.py"] = f"def check(): assert False\n{DROPS['submit']}\n"
    wheel(machine.base / "wheels" / "w1", "tool", "1.5")
    jobs = [command("{python}", file, id=file[6:-3]) for file in files]
    payload = laid_out(tmp_path / "payload", files)
    evidence = machine.run(payload, python=lean, wheels="w1", subject=SUBJECT, jobs=jobs)
    failed = {job["id"]: [one["reason"] for one in evidence.of("check", job["id"])] for job in jobs}
    assert {evidence.finished(job["id"])["exit_code"] for job in jobs} == {0}, evidence.log.decode()
    for name in DROPS:
        file = "demos/submit.py" if name == "in-a-child" else f"demos/{name}.py"
        (reason,) = failed[name]
        assert f"whose result was never read: {file}:3" in reason
    assert {name: failed[name] for name in ASKS_FOR_IT} == {name: [] for name in ASKS_FOR_IT}


def test_an_assertion_that_a_console_handles_ends_no_process(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    handles = (
        "import code, tool.part\n"
        "code.InteractiveConsole().push('assert False')\n"
        "code.InteractiveConsole(globals()).push('assert False')\n"
        "print('went on')\n"
    )
    demo = (
        "import subprocess, sys\n"
        "assert b'went on' in subprocess.check_output([sys.executable, '-c', sys.argv[0]])\n"
    ).replace("sys.argv[0]", repr(handles))
    evidence = run(machine, tmp_path, lean, {"demos/demo.py": demo})
    assert evidence.finished("demo")["exit_code"] == 0, evidence.log.decode()
    assert evidence.of("check", "demo") == []


@pytest.mark.parametrize("call", ["sys.exit", "os._exit", "exit", "quit"])
def test_a_process_that_cannot_record_its_exit_code_ends_with_it(
    machine: Machine, lean: str, tmp_path: Path, call: str
) -> None:
    demo = (
        "import os, subprocess, sys\n"
        "variables = {**os.environ, 'SEATRIAL_EVENTS': '/no/such/file'}\n"
        f"words = [sys.executable, '-c', 'import os, sys; {call}(256)']\n"
        "done = subprocess.run(words, env=variables, stderr=subprocess.PIPE, text=True)\n"
        "assert done.returncode == 0, done.stderr\n"
        f"assert '{call}(256) is exit code 0' in done.stderr, done.stderr\n"
        "assert 'Traceback' not in done.stderr, done.stderr\n"
    )
    evidence = run(machine, tmp_path, lean, {"demos/demo.py": demo})
    assert evidence.finished("demo")["exit_code"] == 0, evidence.log.decode()


def test_a_command_that_ends_before_its_work_fails(
    machine: Machine, lean: str, tmp_path: Path
) -> None:
    """The processes that the agent ended may have failed: their result is unknown."""
    demo = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    )
    evidence = run(machine, tmp_path, lean, {"demos/demo.py": demo})
    (check,) = evidence.of("check", "demo")
    assert check["outcome"] == "failed"
    assert "left 1 process behind" in check["reason"]
    assert "time.sleep(60)" in check["reason"]
