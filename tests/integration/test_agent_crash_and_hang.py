"""One crash is one failure, one hang is one failure, and no process is ever left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runners.agent.plan import Name, PlanJob
from runners.agent.suite import idle_timeout_advice
from tests.integration.agent_machine import (
    PAYLOADS,
    Evidence,
    Machine,
    command,
    machine_at,
    processes_of,
)
from tests.waiting import until

FAMILY = """
import os, signal, subprocess, sys, time
deaf = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(61234)'
subprocess.Popen([sys.executable, '-c', deaf])
subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True)
subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True, env={})
subprocess.run(['setsid', '-f', 'sleep', '61234'])
signal.signal(15, signal.SIG_IGN)
print('family of five', flush=True)
while True: print('.', flush=True); time.sleep(0.1)
"""
LEFT = """
import glob
def line(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""  # gone meanwhile
found = [line(path) for path in glob.glob("/proc/[0-9]*/cmdline")]
print("of the family", sum(b"612" + b"34" in one for one in found))
"""
FILES = {
    "endless/test_it.py": (
        "import os, pytest\n"
        "@pytest.mark.parametrize('n', range(6))\n"
        "def test_dies(n): os._exit(7)\n"
    ),
    "last/test_it.py": (
        "import os\ndef test_good(): pass\ndef test_dies(): os.kill(os.getpid(), 11)\n"
    ),
    "speaks/conftest.py": "print('before collection')\n",
    "speaks/test_it.py": (
        "import ctypes, os, subprocess, sys, time\n"
        "def test_good(): print('said by a good test')\n"
        "def test_segfault():\n"
        "    print('before the segfault')\n"
        "    print('to stderr', file=sys.stderr)\n"
        "    ctypes.string_at(0)\n"
        "def test_exit():\n"
        "    subprocess.run(['echo', 'said by a child'])\n"
        "    os._exit(3)\n"
        "def test_fails():\n"
        "    print('said by a failing test')\n"
        "    assert False\n"
        "def test_hangs():\n"
        "    print('before the hang', flush=True)\n"
        "    time.sleep(600)\n"
    ),
    "exits/test_it.py": (
        "import pytest\ndef test_one(): pytest.exit('enough')\ndef test_two(): pass\n"
    ),
    "patient/test_it.py": "import time\ndef test_slow(): time.sleep(16)\ndef test_quick(): pass\n",
    "family.py": FAMILY,
    "left.py": LEFT,
}
OUTSIDE = {
    "exit": ("import os; os._exit(9)", 9, None),
    "kill": ("import os; os.kill(os.getpid(), 9)", None, 9),
    "late": ("import os\ndef pytest_sessionfinish(): os.kill(os.getpid(), 11)", None, 11),
    "error": ("def pytest_configure(): raise RuntimeError('no')", 3, None),
}
"""What goes wrong outside any test: a conftest, the exit code and the signal."""
UNCOLLECTED = {
    **dict.fromkeys(("out.json", "in/f.json"), "it is, or is below, a link"),
    **dict.fromkeys(("loop", "fifo", "folder"), "no plain file that can be read"),
    "big.json": "1073741824 bytes are too many",
}
"""Why metric files of a job are not collected."""
ENDING: list[dict[str, Any]] = [
    *(
        {"id": name, "pytest": [name]}
        for name in ("sigkill", "poisoned", "endless", "last", "exits", *OUTSIDE)
    ),
    command("./no-such-program", id="absent"),
    command("true", id="gpus", gpus=4_000),
    command("true", id="secret", secrets=["TOKEN"]),
    command(
        "sh",
        "-c",
        "mkdir build; echo 1 > build/f.json; ln -s /etc/hostname out.json; ln -s build in"
        "; ln -s loop loop; mkfifo fifo; truncate -s 1G big.json; mkdir folder",
        id="measures",
        metrics=["build/f.json", *UNCOLLECTED, "none.json"],
    ),
    command("true", id="fine"),
]
"""Jobs that end by themselves."""
ENDED: list[dict[str, Any]] = [
    {"id": "hang", "pytest": ["hang"], "silence_s": 9},
    {"id": "speaks", "pytest": ["speaks"], "silence_s": 9, "silence_source": "matrix"},
    {"id": "spread", "pytest": ["-n", "1", "speaks", "-k", "segfault or hangs"], "silence_s": 12},
    command("{python}", "family.py", id="family", timeout_s=9),
    command("{python}", "left.py", id="left"),
    command("sh", "-c", "setsid sleep 601 & sleep 602 & echo done", id="leaves"),
    command("{python}", "-c", "import time; print('hi', flush=True); time.sleep(99)",
            silence_s=2, id="silent"),
    command("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 1; done",
            silence_s=6, id="talks"),
    {"id": "patient", "pytest": ["patient"], "silence_s": 12,
     "test_silence_s": {"patient/test_it.py::test_slow": 60}},
]  # fmt: skip
"""Jobs that the agent waits for, and mostly ends."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str) -> Evidence:
    """Two attempts, in which each job goes wrong and the next one goes on.

    They run side by side: while one waits for silence or a deadline, the other works.
    """
    folder = tmp_path_factory.mktemp("payload")
    for name in ("sigkill", "hang", "poisoned"):
        shutil.copytree(PAYLOADS / name, folder / name)
    outside = {f"{name}/conftest.py": text + "\n" for name, (text, _, _) in OUTSIDE.items()}
    tests = {f"{name}/test_{name}.py": "def test_good(): pass\n" for name in OUTSIDE}
    for name, text in {**FILES, **outside, **tests}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with machine_at(tmp_path_factory.mktemp("machine") / "base") as machine:
        limits = {"restarts": 2, "deadline_s": 280}
        attempts = [
            machine.prepare(folder, python=lean, jobs=jobs, limits=limits)
            for jobs in (ENDED, ENDING)
        ]
        for attempt in attempts:
            machine.start(attempt)
        first, second = (machine.wait(attempt, timeout_s=280) for attempt in attempts)
        return Evidence([*first.events, *second.events], first.log + second.log)


def test_a_test_that_is_known_to_take_long_may_be_silent_for_longer(ran: Evidence) -> None:
    assert set(ran.outcomes("patient").values()) == {"passed"}
    assert ran.finished("talks")["longest_idle_s"] < 6
    assert ran.finished("silent")["longest_idle_s"] >= 2


def test_files_of_figures_come_home_and_links_do_not(ran: Evidence) -> None:
    names = {one["name"] for one in ran.of("artifact", "measures")}
    assert names == {"measures.txt", "measures.build-f.json"}
    assert [one["message"] for one in ran.of("log", "measures")] == [
        f"{name} of measures is not kept: {why}" for name, why in UNCOLLECTED.items()
    ]


def test_a_file_of_figures_is_of_the_job_that_wrote_it(
    machine: Machine, lean: str, payload: Path
) -> None:
    """Neither a shipped file nor an earlier job's counts; one that is written again does."""
    (payload / "shipped.json").write_text("1")
    (payload / "again.json").write_text("1")
    jobs = [
        command("sh", "-c", "echo 1 > o.json", id="first", metrics=["o.json"]),
        command("echo", "nothing", id="second", metrics=["o.json", "shipped.json"]),
        command("sh", "-c", "echo 1 > o.json; printf 1 > again.json", id="third",
                metrics=["o.json", "again.json"]),
    ]  # fmt: skip
    evidence = machine.run(payload, python=lean, jobs=jobs)
    names = {one["name"] for one in evidence.of("artifact")}
    assert {name for name in names if name.endswith(".json")} == {
        "environment.json",
        "first.o.json",
        "third.o.json",
        "third.again.json",
    }
    assert [one["message"] for one in evidence.of("log", "second")] == [
        f"{name} of second is not kept: it was there before, and second did not write it"
        for name in ("o.json", "shipped.json")
    ]


def crash_in(ran: Evidence, job: str) -> dict[str, Any]:
    """The one report of a test that the agent itself has made."""
    (crash,) = [one for one in ran.reports(job) if "cause" in one]
    return crash


def test_sigkill(ran: Evidence) -> None:
    first, second = ran.of("manifest", "sigkill")
    assert (first["process"], second["process"]) == (1, 2)
    assert first["tests"] == second["tests"]
    killer = "sigkill/test_sigkill.py::test_killer"
    assert ran.outcomes("sigkill") == {
        test: "crashed" if test == killer else "passed" for test in first["tests"]
    }
    crash = crash_in(ran, "sigkill")
    assert crash["nodeid"] == killer
    assert (crash["when"], crash["outcome"], crash["cause"]) == ("call", "failed", "crashed")
    assert crash["signal"] == 9
    assert "SIGKILL" in crash["longrepr"]
    assert 0 <= crash["duration"] < 30
    assert "test_sigkill.py ..." in crash["longrepr"]
    starts = [one["nodeid"] for one in ran.of("test", "sigkill") if one["record"] == "start"]
    assert starts == first["tests"], "no test runs twice"
    finished = ran.finished("sigkill")
    assert (finished["restarts"], finished["cause"], finished["exit_code"]) == (1, None, 0)


def test_hang(ran: Evidence) -> None:
    assert list(ran.outcomes("hang").values()) == ["passed", "hung", "passed"]
    hung = crash_in(ran, "hang")
    assert hung["nodeid"] == "hang/test_hang.py::test_hangs_for_ever"
    assert hung["signal"] == 6
    assert 4 <= hung["duration"] < 100, "what it took until it was ended"
    assert 'test_hang.py", line 9 in test_hangs_for_ever' in hung["longrepr"]
    assert b"Fatal Python error: Aborted" in ran.log
    assert ran.finished("hang")["restarts"] == 1


def test_what_a_lost_test_had_printed_is_kept(ran: Evidence) -> None:
    """pytest's captured output: in the report of the test, and in the output of the job."""
    reports = {one["nodeid"].rpartition("::")[2]: one for one in ran.reports("speaks")}
    lost = {name: one for name, one in reports.items() if "cause" in one}
    assert {name: one["sections"] for name, one in lost.items()} == {
        "test_segfault": [
            ["Captured stdout", "before the segfault\n"],
            ["Captured stderr", "to stderr\n"],
        ],
        "test_exit": [["Captured stdout", "said by a child\n"]],
        "test_hangs": [["Captured stdout", "before the hang\n"]],
    }
    for text in (b"before the segfault\n", b"to stderr\n", b"said by a child\n"):
        assert ran.log.count(b"\n" + text) == 1, text
    fails = [one["sections"] for one in ran.reports("speaks") if one["outcome"] == "failed"]
    assert ["Captured stdout call", "said by a failing test\n"] in fails[2], "as pytest does it"


def test_a_lost_test_has_the_last_output_of_its_own_process_alone(ran: Evidence) -> None:
    reports = {one["nodeid"].rpartition("::")[2]: one for one in ran.reports("speaks")}
    assert "in test_segfault" in reports["test_segfault"]["longrepr"]
    for name in ("test_exit", "test_hangs"):
        assert "test_segfault" not in reports[name]["longrepr"], name
    assert "in test_hangs" in reports["test_hangs"]["longrepr"]


def test_a_traceback_keeps_the_indent_of_its_first_line(ran: Evidence) -> None:
    (fails,) = [one for one in ran.reports("speaks") if "crash" in one]
    assert fails["longrepr"].splitlines()[:3] == [
        "    def test_fails():",
        "        print('said by a failing test')",
        ">       assert False",
    ]


def test_what_a_lost_test_had_printed_is_kept_under_xdist(ran: Evidence) -> None:
    lost = {one["nodeid"].rpartition("::")[2]: one for one in ran.reports("spread")}
    assert {name: one["sections"] for name, one in lost.items()} == {
        "test_segfault": [
            ["Captured stdout", "before the segfault\n"],
            ["Captured stderr", "to stderr\n"],
        ],
        "test_hangs": [
            ["Captured stdout of gw1", "before the hang\n"],
            ["Captured stdout", "before collection\n"],
        ],
    }
    assert lost["test_hangs"]["cause"] == "hung"


@pytest.mark.parametrize(
    ("source", "test", "advice"),
    [
        ("matrix", "t", "raise idle_timeout_minutes of job a in the matrix (0.4 now)"),
        ("payload", "t", "raise idle_timeout_minutes of job a in payload.toml (0.4 now)"),
        ("default", "t", "set idle_timeout_minutes of job a (by default 0.4 now)"),
        (
            "durations",
            "t",
            "set idle_timeout_minutes of job a (0.4 now: twice what earlier runs took)",
        ),
        (
            "default",
            "slow",
            "set idle_timeout_minutes of job a (10 now: twice what earlier runs took)",
        ),
    ],
)
def test_the_advice_on_a_hang_names_the_limit_and_its_source(
    source: Any, test: str, advice: str
) -> None:
    job = PlanJob(
        Name("a"), "suite", 99.0, 24.0, silence_source=source, test_silence_s={"slow": 600.0}
    )
    assert idle_timeout_advice(job, test) == advice


def test_a_hang_is_advised_about_the_timeout_that_is_set(ran: Evidence) -> None:
    fix = "raise idle_timeout_minutes of job speaks in the matrix (0.15 now)"
    assert f"Fix: where that is usual, {fix}\n" in ran.reports("speaks")[-1]["longrepr"]


def test_restarts_are_limited(ran: Evidence) -> None:
    assert ran.counts("endless") == {"crashed": 3}
    finished = ran.finished("endless")
    assert (finished["cause"], finished["restarts"], finished["exit_code"]) == ("crashed", 2, 7)
    assert "given up after 2 restarts, 3 tests were not run" in finished["detail"]


CLOSES = {
    "all": "os.closerange(0, 256)",
    "own": "os.closerange(3, 256)",
    "others": "os.closerange(3, 256); kept.extend(open(f'x{n}', 'w') for n in range(99))",
}
"""What a test does to the descriptors that it did not open."""


def test_a_test_that_closes_files_is_one_crash_and_no_full_disk(
    machine: Machine, lean: str, payload: Path
) -> None:
    tests = {
        name: f"import os\nkept = []\ndef test_closes(): {text}\n" for name, text in CLOSES.items()
    }
    tests["lies"] = "import os\ndef test_lies(): os._exit(74)\n"
    for name, text in tests.items():
        (payload / f"test_{name}.py").write_text(f"{text}def test_after(): pass\n")
    jobs = [{"id": name, "pytest": [f"test_{name}.py"]} for name in tests]
    fails = command("{python}", "-c", "raise SystemExit(74)", id="fails")
    evidence = machine.run(payload, python=lean, jobs=[*jobs, fails, command("true")])
    for name in tests:
        assert list(evidence.outcomes(name).values()) == ["crashed", "passed"], name
    for name in CLOSES:
        assert "must not close files" in crash_in(evidence, name)["longrepr"], name
    assert evidence.finished("fails")["cause"] is None, "a demo's 74 is its own"
    assert evidence.finished("demo")["exit_code"] == 0
    assert evidence.end["outcome"] == "completed"


def test_last_test_crashes(ran: Evidence) -> None:
    assert list(ran.outcomes("last").values()) == ["passed", "crashed"]
    finished = ran.finished("last")
    ended = {key: finished[key] for key in ("cause", "signal", "exit_code", "restarts")}
    assert ended == {"cause": None, "signal": None, "exit_code": 1, "restarts": 0}


def test_poisoned_device(ran: Evidence) -> None:
    assert {name.rpartition("::")[2]: word for name, word in ran.outcomes("poisoned").items()} == {
        "test_before": "passed",
        "test_bad_kernel": "crashed",
        "test_after": "passed",
        "test_only_talks_about_it": "failed",
    }
    crash = crash_in(ran, "poisoned")
    assert "device-side assert" in crash["longrepr"]
    assert crash["sections"] == [["Captured stdout call", "launching the bad kernel\n"]]
    assert ran.finished("poisoned")["restarts"] == 1


@pytest.mark.parametrize("name", OUTSIDE)
def test_crash_outside_any_test(ran: Evidence, name: str) -> None:
    _, code, number = OUTSIDE[name]
    finished = ran.finished(name)
    assert (finished["exit_code"], finished["signal"]) == (code, number)
    assert (finished["cause"], finished["restarts"]) == (None, 0)


def test_pytest_exit_is_no_crash(ran: Evidence) -> None:
    assert ran.finished("exits")["restarts"] == 0
    assert ran.finished("exits")["exit_code"] == 2
    assert [one for one in ran.reports("exits") if "cause" in one] == []


def test_timeout_ends_the_whole_family(ran: Evidence) -> None:
    """Children in the group, in sessions of their own, orphaned, and deaf to SIGTERM."""
    finished = ran.finished("family")
    assert finished["cause"] == "timeout"
    assert "not done after 9 s" in finished["detail"]
    assert b"family of five" in ran.log
    assert b"of the family 0\n" in ran.log


def test_what_a_job_leaves_behind_is_ended(ran: Evidence) -> None:
    """A pipe that is held open does not hold up the job."""
    finished = ran.finished("leaves")
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    assert any("leaves left 2 processes behind" in text for text in ran.messages("warning"))


def test_silent_demo_is_hung(ran: Evidence) -> None:
    silent = ran.finished("silent")
    assert (silent["cause"], silent["signal"]) == ("hung", 6)
    assert ran.finished("talks")["exit_code"] == 0


def test_start_failed(ran: Evidence) -> None:
    finished = {name: ran.finished(name) for name in ("absent", "gpus", "secret", "fine")}
    causes = {name: one["cause"] for name, one in finished.items()}
    assert causes == {
        "absent": "start_failed",
        "gpus": "wrong_hardware",
        "secret": "config",
        "fine": None,
    }
    assert "./no-such-program cannot be started" in finished["absent"]["detail"]
    assert finished["gpus"]["detail"].startswith("needs 4000 gpus, found ")
    assert finished["secret"]["detail"] == "secret TOKEN was not handed over"


def test_whatever_jobs_come_to_an_attempt_is_completed(ran: Evidence) -> None:
    assert [end["outcome"] for end in ran.of("end")] == ["completed", "completed"]


def test_nothing_of_an_attempt_runs_after_close(machine: Machine, lean: str, payload: Path) -> None:
    (payload / "test_it.py").write_text(
        "import subprocess, time\n"
        "def test_it():\n"
        "    subprocess.Popen(['setsid', 'sleep', '603'])\n"
        "    time.sleep(600)\n"
    )
    folder = machine.prepare(payload, python=lean)
    machine.start(folder)
    machine.follow(folder, until='"when":"setup"')
    until(lambda: len(processes_of(folder)) == 2)
    machine.verb("close", "--attempt", folder)
    assert processes_of(folder) == {}
    assert not folder.exists()
    machine.verb("close", "--attempt", folder)
