"""The verb `ready`: asked at any time, answered at once, by whatever programs the machine has."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.integration.agent_machine import Machine, machine_at


@pytest.fixture
def machine(tmp_path: Path):
    with machine_at(tmp_path / "base") as machine:
        yield machine


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def ask(machine: Machine, tools: Path) -> dict[str, tuple[str, str]]:
    tools.mkdir(exist_ok=True)
    path = f"{tools}:/usr/bin:/bin"
    said = json.loads(machine.verb("ready", env={**os.environ, "PATH": path}).stdout)
    assert said["v"] == 1
    assert [one["check"] for one in said["checks"]] == ["cloud_init", "apt", "driver"]
    return {one["check"]: (one["state"], one["detail"]) for one in said["checks"]}


@pytest.mark.parametrize(
    ("says", "code", "state"),
    [
        ("status: done", 0, "ok"),
        ("status: disabled", 0, "ok"),
        ("status: done\nextended_status: degraded done\nrecoverable_errors: WARNING", 2, "ok"),
        ("status: running", 0, "waiting"),
        ("status: running\nextended_status: degraded running", 2, "waiting"),
        ("status: not started", 0, "waiting"),
        ("status: not run", 0, "waiting"),
        ("status: error\ndetail:\nno such module: gpu", 1, "failed"),
        ("Traceback: it broke", 1, "failed"),
    ],
)
def test_cloud_init(machine: Machine, tmp_path: Path, says: str, code: int, state: str) -> None:
    program(tmp_path / "tools", "cloud-init", f"cat <<'END'\n{says}\nEND\nexit {code}")
    found, detail = ask(machine, tmp_path / "tools")["cloud_init"]
    assert found == state
    assert detail
    if state == "failed":
        assert detail == f"exit code 1: {says}"


@pytest.mark.parametrize(
    ("script", "state", "says"),
    [
        ("echo 'NVIDIA A10G, 580.1'", "ok", "NVIDIA A10G, 580.1"),
        ("echo 'could not communicate with the driver'; exit 9", "waiting", "communicate with"),
        ("exit 9", "waiting", "nvidia-smi: exit code 9"),
    ],
)
def test_nvidia(machine: Machine, tmp_path: Path, script: str, state: str, says: str) -> None:
    program(tmp_path / "tools", "nvidia-smi", script)
    found, detail = ask(machine, tmp_path / "tools")["driver"]
    assert found == state
    assert says in detail


def test_rocm(machine: Machine, tmp_path: Path) -> None:
    program(tmp_path / "tools", "rocm-smi", "echo 'card0: MI300X'")
    assert ask(machine, tmp_path / "tools")["driver"] == ("ok", "card0: MI300X")


@pytest.mark.slow
def test_a_tool_that_hangs_is_not_waited_for(machine: Machine, tmp_path: Path) -> None:
    program(tmp_path / "tools", "cloud-init", "exec sleep 600")
    began = time.monotonic()
    found = ask(machine, tmp_path / "tools")
    assert found["cloud_init"] == ("waiting", "no answer within 10 s: ")
    assert time.monotonic() - began < 20
