"""torch and its device are tried before the first job; a sick machine fails no test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import Evidence, Machine, command

HANGS = "import time; time.sleep(600)"
LEAVES = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(607)"]
subprocess.Popen(sleep, start_new_session=True)
raise OSError("libcudart.so.12: cannot open shared object file")
"""
COUNTS = """
import glob
def line(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""  # gone meanwhile
found = [line(path) for path in glob.glob("/proc/[0-9]*/cmdline")]
print("left", sum(b"sleep(60" + b"7)" in one for one in found))
"""


def run(machine: Machine, python: str, payload: Path, torch: str, **asked: Any) -> Evidence:
    """A job on a machine whose torch is this text."""
    (payload / "fake" / "torch").mkdir(parents=True)
    (payload / "fake" / "torch" / "__init__.py").write_text(torch)
    (payload / "counts.py").write_text(COUNTS)
    return machine.run(
        payload,
        python=python,
        readiness={"device": "cuda", **asked},
        environment={"variables": {"PYTHONPATH": str(payload / "fake")}},
        jobs=[command("{python}", "counts.py")],
    )


def readiness_of(evidence: Evidence) -> dict[str, Any]:
    (environment,) = evidence.of("environment")
    return environment["readiness"]


def test_a_sick_device_ends_an_attempt_that_asks_for_it(
    machine: Machine, lean: str, payload: Path
) -> None:
    evidence = run(machine, lean, payload, HANGS, enforce=True, timeout_s=2)
    assert readiness_of(evidence)["ok"] is False
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "torch_device")
    assert "torch_import failed: no answer within 2 s" in evidence.end["detail"]
    assert evidence.of("phase", "demo") == []


def test_a_device_that_nobody_insists_on_is_free_when_the_first_job_starts(
    machine: Machine, lean: str, payload: Path
) -> None:
    """One process may hold it; what a check leaves running is gone before the job."""
    evidence = run(machine, lean, payload, LEAVES, enforce=False, timeout_s=60)
    (check,) = readiness_of(evidence)["checks"]
    assert (check["check"], check["ok"]) == ("torch_import", False)
    assert "OSError: libcudart" in check["detail"]
    assert evidence.end["outcome"] == "completed"
    assert b"left 0\n" in evidence.log


@pytest.mark.slow
def test_the_real_torch_on_a_cpu(machine: Machine, payload: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed beside the tests")
    asked = {"device": "cpu", "enforce": True, "timeout_s": 120}
    evidence = machine.run(
        payload, python=sys.executable, readiness=asked, jobs=[command("true")], timeout_s=200
    )
    assert evidence.end["outcome"] == "completed"
    found = readiness_of(evidence)
    assert {one["check"]: one["ok"] for one in found["checks"]} == {
        "torch_import": True, "device_seen": True, "matmul": True,
    }  # fmt: skip
    (environment,) = evidence.of("environment")
    assert environment["torch"] == str(torch.__version__)
    assert environment["cuda"] == torch.version.cuda
    assert len(environment["torch_devices"]) == torch.cuda.device_count()
    assert not [text for text in evidence.messages() if "Seatrial itself" not in text]
