"""One crash is one failure, one hang is one failure, and no process is ever left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.agent_machine import (
    Machine,
    command,
    lean_python,
    machine_at,
    processes_of,
)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture
def machine(tmp_path):
    with machine_at(tmp_path / "base") as machine:
        yield machine


def suite(folder: Path, text: str) -> Path:
    """Make a payload of one test file."""
    folder.mkdir()
    (folder / "test_it.py").write_text(text)
    return folder


def test_sigkill(machine: Machine, python: str) -> None:
    evidence = machine.run("sigkill", python=python)
    tests = evidence.of("manifest")[0]["tests"]
    assert [(one["process"], one["tests"]) for one in evidence.of("manifest")] == [
        (1, tests),
        (2, tests),
    ]
    killer = "test_sigkill.py::test_killer"
    assert evidence.outcomes() == {
        test: "crashed" if test == killer else "passed" for test in tests
    }
    (crash,) = [one for one in evidence.reports() if "cause" in one]
    assert crash["nodeid"] == killer
    assert (crash["when"], crash["outcome"], crash["cause"]) == ("call", "failed", "crashed")
    assert crash["signal"] == 9
    assert "SIGKILL" in crash["longrepr"]
    assert 0 <= crash["duration"] < 30
    assert "test_sigkill.py ..." in crash["longrepr"]
    starts = [one["nodeid"] for one in evidence.of("test") if one["record"] == "start"]
    assert starts == tests, "no test runs twice"
    finished = evidence.finished()
    assert (finished["restarts"], finished["cause"], finished["exit_code"]) == (1, None, 0)


def test_hang(machine: Machine, python: str) -> None:
    evidence = machine.run("hang", python=python, jobs=[{"silence_s": 1.5}])
    assert evidence.outcomes() == {
        "test_hang.py::test_before": "passed",
        "test_hang.py::test_hangs_for_ever": "hung",
        "test_hang.py::test_after": "passed",
    }
    (hung,) = [one for one in evidence.reports() if "cause" in one]
    assert hung["signal"] == 6
    assert 1.5 <= hung["duration"] < 30, "what it took until it was ended"
    assert 'test_hang.py", line 9 in test_hangs_for_ever' in hung["longrepr"]
    assert b"Fatal Python error: Aborted" in evidence.log
    assert evidence.finished()["restarts"] == 1


def test_restarts_are_limited(machine: Machine, python: str, tmp_path: Path) -> None:
    text = (
        "import os, pytest\n"
        "@pytest.mark.parametrize('n', range(6))\n"
        "def test_dies(n): os._exit(7)\n"
    )
    payload = suite(tmp_path / "payload", text)
    evidence = machine.run(payload, python=python, limits={"restarts": 2})
    assert evidence.counts() == {"crashed": 3}
    finished = evidence.finished()
    assert (finished["cause"], finished["restarts"], finished["exit_code"]) == ("crashed", 2, 7)
    assert "given up after 2 restarts, 3 tests were not run" in finished["detail"]
    assert evidence.end["outcome"] == "completed"


@pytest.mark.parametrize(
    "closes",
    ["os.closerange(0, 256)", "os.closerange(3, 256)", "os.closerange(3, 256); open('x', 'w')"],
    ids=["all of them", "all but the standard ones", "and opens others"],
)
def test_a_test_that_closes_files_is_one_crash_and_no_full_disk(
    machine: Machine, python: str, tmp_path: Path, closes: str
) -> None:
    text = f"import os\nkept = []\ndef test_closes(): {closes}\ndef test_after(): pass\n"
    text = text.replace("open('x', 'w')", "kept.extend(open(f'x{n}', 'w') for n in range(99))")
    jobs = [{}, command("{python}", "-c", "raise SystemExit(74)", id="fails"), command("true")]
    evidence = machine.run(suite(tmp_path / "payload", text), python=python, jobs=jobs)
    assert list(evidence.outcomes().values()) == ["crashed", "passed"]
    (crash,) = [one for one in evidence.reports() if "cause" in one]
    assert "must not close files" in crash["longrepr"]
    assert evidence.finished("fails")["cause"] is None, "a demo's 74 is its own"
    assert evidence.finished("demo")["exit_code"] == 0
    assert evidence.end["outcome"] == "completed"


def test_a_test_that_ends_as_a_full_disk_does_is_a_crash(
    machine: Machine, python: str, tmp_path: Path
) -> None:
    text = "import os\ndef test_lies(): os._exit(74)\ndef test_after(): pass\n"
    evidence = machine.run(suite(tmp_path / "payload", text), python=python)
    assert list(evidence.outcomes().values()) == ["crashed", "passed"]


def test_last_test_crashes(machine: Machine, python: str, tmp_path: Path) -> None:
    text = "import os\ndef test_good(): pass\ndef test_dies(): os.kill(os.getpid(), 11)\n"
    evidence = machine.run(suite(tmp_path / "payload", text), python=python)
    assert list(evidence.outcomes().values()) == ["passed", "crashed"]
    finished = evidence.finished()
    assert (finished["cause"], finished["signal"], finished["restarts"]) == (None, 11, 0)


def test_poisoned_device(machine: Machine, python: str) -> None:
    evidence = machine.run("poisoned", python=python)
    assert {name.rpartition("::")[2]: word for name, word in evidence.outcomes().items()} == {
        "test_before": "passed",
        "test_bad_kernel": "crashed",
        "test_after": "passed",
        "test_only_talks_about_it": "failed",
    }
    (crash,) = [one for one in evidence.reports() if "cause" in one]
    assert "device-side assert" in crash["longrepr"]
    assert crash["sections"] == [["Captured stdout call", "launching the bad kernel\n"]]
    assert evidence.finished()["restarts"] == 1


@pytest.mark.parametrize(
    ("conftest", "code", "number"),
    [
        ("import os; os._exit(9)", 9, None),
        ("import os; os.kill(os.getpid(), 9)", None, 9),
        ("import os\ndef pytest_sessionfinish(): os.kill(os.getpid(), 11)", None, 11),
        ("def pytest_configure(): raise RuntimeError('no')", 3, None),
    ],
)
def test_crash_outside_any_test(
    machine: Machine, python: str, tmp_path: Path, conftest: str, code: int, number: int
) -> None:
    payload = suite(tmp_path / "payload", "def test_good(): pass\n")
    (payload / "conftest.py").write_text(conftest + "\n")
    finished = machine.run(payload, python=python).finished()
    assert (finished["exit_code"], finished["signal"]) == (code, number)
    assert (finished["cause"], finished["restarts"]) == (None, 0)


def test_pytest_exit_is_no_crash(machine: Machine, python: str, tmp_path: Path) -> None:
    text = "import pytest\ndef test_one(): pytest.exit('enough')\ndef test_two(): pass\n"
    evidence = machine.run(suite(tmp_path / "payload", text), python=python)
    assert evidence.finished()["restarts"] == 0
    assert evidence.finished()["exit_code"] == 2
    assert [one for one in evidence.reports() if "cause" in one] == []


def test_timeout_ends_the_whole_family(machine: Machine, python: str, tmp_path: Path) -> None:
    """Children in the group, in sessions of their own, orphaned, and deaf to SIGTERM."""
    payload = tmp_path / "payload"
    payload.mkdir()
    (payload / "family.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "deaf = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(61234)'\n"
        "subprocess.Popen([sys.executable, '-c', deaf])\n"
        "subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True)\n"
        "subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True, env={})\n"
        "subprocess.run(['setsid', '-f', 'sleep', '61234'])\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        "print('family of five', flush=True)\n"
        "while True: print('.', flush=True); time.sleep(0.1)\n"
    )
    began = time.monotonic()
    job = command("{python}", "family.py", timeout_s=1.5)
    evidence = machine.run(payload, python=python, jobs=[job])
    finished = evidence.finished("demo")
    assert finished["cause"] == "timeout"
    assert "not done after 1.5 s" in finished["detail"]
    assert b"family of five" in evidence.log
    assert time.monotonic() - began < 15
    assert _with_word(b"61234") == []


def _with_word(word: bytes) -> list[str]:
    """Return the processes that have a word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found += [entry.name] if word in line else []
    return found


def test_what_a_job_leaves_behind_is_ended(machine: Machine, python: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.mkdir()
    job = command("sh", "-c", "setsid sleep 601 & sleep 602 & echo done")
    began = time.monotonic()
    evidence = machine.run(payload, python=python, jobs=[job])
    assert evidence.finished("demo")["exit_code"] == 0
    assert evidence.messages("warning") == ["demo left 2 processes behind; they were ended"]
    assert time.monotonic() - began < 20, "a pipe that is held open does not hold up the job"


def test_silent_demo_is_hung(machine: Machine, python: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.mkdir()
    jobs = [
        command("{python}", "-c", "import time; print('hi', flush=True); time.sleep(99)",
                silence_s=1, id="silent"),
        command("sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done",
                silence_s=1, id="talks"),
    ]  # fmt: skip
    evidence = machine.run(payload, python=python, jobs=jobs)
    silent = evidence.finished("silent")
    assert (silent["cause"], silent["signal"]) == ("hung", 6)
    assert b"Fatal Python error: Aborted" in evidence.log
    assert evidence.finished("talks")["exit_code"] == 0
    assert evidence.end["outcome"] == "completed"


def test_start_failed(machine: Machine, python: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.mkdir()
    jobs = [
        command("./no-such-program", id="absent"),
        command("true", id="gpus", gpus=4_000),
        command("true", id="secret", secrets=["TOKEN"]),
        command("true", id="fine"),
    ]
    evidence = machine.run(payload, python=python, jobs=jobs)
    assert [evidence.finished(name)["cause"] for name in ("absent", "gpus", "secret", "fine")] == [
        "start_failed",
        "start_failed",
        "start_failed",
        None,
    ]
    assert "./no-such-program cannot be started" in evidence.finished("absent")["detail"]
    assert evidence.finished("gpus")["detail"].startswith("needs 4000 gpus, found ")
    assert evidence.finished("secret")["detail"] == "secret TOKEN was not handed over"


def test_nothing_of_an_attempt_runs_after_close(
    machine: Machine, python: str, tmp_path: Path
) -> None:
    payload = suite(
        tmp_path / "payload",
        "import subprocess, time\n"
        "def test_it():\n"
        "    subprocess.Popen(['setsid', 'sleep', '603'])\n"
        "    time.sleep(600)\n",
    )
    folder = machine.prepare(payload, python=python)
    machine.start(folder)
    machine.follow(folder, until='"when":"setup"')
    assert len(processes_of(folder)) == 2
    machine.verb("close", "--attempt", folder)
    assert processes_of(folder) == {}
    assert not folder.exists()
    machine.verb("close", "--attempt", folder)
