"""What an attempt costs its host: interpreters that the agent and the login look start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.domain.machine import LocalEndpoint
from runners.shell import open_shell
from runners.shell.work_folder import look
from tests.integration.agent_machine import Machine, command

COUNTED = """
import sys
from pathlib import Path

def note(event, details):
    if event == "subprocess.Popen":
        with open(sys.argv[2], "a") as told:
            told.write(" ".join(map(str, details[1])).replace("\\n", " ") + "\\n")

from seatrial_agent import agent_process
from seatrial_agent.layout import AttemptFolder
sys.addaudithook(note)
agent_process.start(AttemptFolder(Path(sys.argv[1])), {})
"""


@pytest.mark.parametrize(
    ("device", "starts"),
    [
        pytest.param(None, 4, id="its environment, its files, its facts, and the job"),
        pytest.param("cpu", 5, id="and the check of a device that was asked for"),
    ],
)
def test_the_interpreters_that_an_attempt_starts(
    machine: Machine, payload: Path, lean: str, tmp_path: Path, device: str | None, starts: int
) -> None:
    folder = machine.prepare(
        payload,
        python=lean,
        jobs=[command("{python}", "-c", "print('done')")],
        readiness={"device": device, "enforce": False, "timeout_s": 60},
    )
    told = tmp_path / "started"
    words = [sys.executable, "-E", "-s", "-c", COUNTED, str(folder), str(told)]
    subprocess.run(words, cwd=machine.home, check=True)
    evidence = machine.wait(folder)
    assert evidence.finished("demo")["exit_code"] == 0
    lines = told.read_text().splitlines()
    assert len(lines) == starts, "\n".join(line[:300] for line in lines)


def test_the_look_at_a_login_starts_each_interpreter_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".seatrial").mkdir(parents=True, mode=0o755)
    (home / ".seatrial" / "no-sudo").touch()
    monkeypatch.setenv("HOME", str(home))
    count = tmp_path / "count"
    programs = {"old": "exit 1", "new": f'exec {sys.executable} "$@"', "unused": "exit 1"}
    for name, ending in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {count}\necho noise\n{ending}\n")
        (tmp_path / name).chmod(0o755)
    shell = open_shell(LocalEndpoint("here"), keys_dir=tmp_path)
    candidates = [str(tmp_path / name) for name in ("missing", *programs)]
    ground = look(shell, base=None, candidates=candidates)
    assert (ground.base, ground.python) == (str(home / ".seatrial"), str(tmp_path / "new"))
    assert count.read_text().split() == ["old", "new"]
