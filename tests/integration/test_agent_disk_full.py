"""A disk that fills up under the agent: it says so, and what is finished is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.agent_machine import Machine, command, machine_at

pytestmark = pytest.mark.needs_root

FILLS = """
import os, time
def test_before(): pass
def test_fills():
    with open("filler", "wb", buffering=0) as stream:
        try:
            while True: stream.write(bytes(65536))
        except OSError:
            pass
        try:
            while True: stream.write(b"x")
        except OSError:
            pass
    {then}
def test_after(): pass
"""


@pytest.fixture
def machine(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.decode().strip()}")
    try:
        with machine_at(disk / "base") as machine:
            yield machine
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    "then",
    ["print('the log goes on', flush=True); time.sleep(0.3)", "os.write(2, b'y' * 3_000_000)"],
    ids=["quiet", "loud"],
)
def test_a_test_that_fills_the_disk(machine: Machine, lean: str, payload: Path, then: str) -> None:
    (payload / "test_fills.py").write_text(FILLS.format(then=then))
    jobs = [{"pytest": ["-s", "."]}, command("true")]
    evidence = machine.run(payload, python=lean, jobs=jobs)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "disk_full")
    assert evidence.finished()["cause"] == "disk_full"
    assert evidence.outcomes()["test_fills.py::test_before"] == "passed"
    assert evidence.events[-1]["seq"] == len(evidence.events)
    assert evidence.of("phase", "demo") == []
    assert any("the disk is full" in message for message in evidence.messages("error"))


def test_a_log_that_fills_the_disk(machine: Machine, lean: str, payload: Path) -> None:
    job = command("{python}", "-c", "while True: print('x' * 1000)")
    evidence = machine.run(payload, python=lean, jobs=[job, command("true", id="second")])
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "disk_full")
    assert evidence.finished("demo")["cause"] == "disk_full"
    assert evidence.of("phase", "second") == []
