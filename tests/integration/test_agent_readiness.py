"""torch and its device are tried before the first job; a sick machine fails no test."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import Evidence, Machine, command, lean_python, machine_at

BROKEN = {
    "raises": ("raise OSError('libcudart.so.12: cannot open shared object file')", "libcudart"),
    "dies": ("import os; print('about to', flush=True); os.abort()", "signal 6): about to"),
    "hangs": ("import time; time.sleep(600)", "no answer within 3 s"),
}
PIECES = """
__version__ = "9.9"
class version: cuda = "12"; hip = None
float32 = int32 = None
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda d: "Fake")
class backends:
    class cuda:
        class matmul: allow_tf32 = True
def device(*words): return words
def manual_seed(n): pass
def randn(*size): raise RuntimeError("CUDA error: an illegal memory access")
"""


@pytest.fixture
def machine(tmp_path: Path):
    with machine_at(tmp_path / "base") as machine:
        yield machine


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    folder = tmp_path / "payload"
    folder.mkdir()
    return folder


def fake_torch(folder: Path, text: str) -> dict[str, Any]:
    """An environment whose torch is this text."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(text)
    return {"variables": {"PYTHONPATH": str(folder)}}


def run(machine: Machine, payload: Path, *, python: str = sys.executable, **more: Any) -> Evidence:
    return machine.run(payload, python=python, jobs=[command("echo", "ran")], **more)


def readiness_of(evidence: Evidence) -> dict[str, Any]:
    (environment,) = evidence.of("environment")
    return environment["readiness"]


def checks_of(evidence: Evidence) -> dict[str, bool]:
    return {one["check"]: one["ok"] for one in readiness_of(evidence)["checks"]}


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_cpu_multiplies_rightly(machine: Machine, payload: Path, device: str | None) -> None:
    asked = {"device": device, "enforce": True, "timeout_s": 60}
    evidence = run(machine, payload, readiness=asked)
    found = readiness_of(evidence)
    assert (found["device"], found["ok"]) == (device, True)
    assert checks_of(evidence) == {"torch_import": True, "device_seen": True, "matmul": True}
    assert "tolerance 0.0001" in found["checks"][2]["detail"]
    assert all(one["seconds"] >= 0 for one in found["checks"])
    assert evidence.end["outcome"] == "completed"


def test_nothing_is_said_where_nothing_was_asked(machine: Machine, payload: Path, tmp_path) -> None:
    evidence = run(machine, payload, python=lean_python(tmp_path / "lean"))
    assert "readiness" not in evidence.of("environment")[0]


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="a device is there")
@pytest.mark.parametrize("enforce", [True, False])
def test_a_promised_device_that_torch_does_not_see(machine, payload: Path, enforce: bool) -> None:
    asked = {"device": "cuda", "enforce": enforce, "timeout_s": 60}
    evidence = run(machine, payload, readiness=asked)
    assert readiness_of(evidence)["ok"] is False
    assert checks_of(evidence) == {"torch_import": True, "device_seen": False}
    if not enforce:
        assert evidence.end["outcome"] == "completed"
        assert evidence.finished("demo")["exit_code"] == 0
        return
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "torch_device")
    assert (
        "not ready for device cuda: device_seen failed: torch sees no cuda"
        in evidence.end["detail"]
    )
    assert evidence.of("phase", "demo") == []


@pytest.mark.parametrize("how", sorted(BROKEN))
def test_a_torch_that_does_not_import(machine, payload: Path, tmp_path: Path, how: str) -> None:
    text, says = BROKEN[how]
    environment = fake_torch(tmp_path / "fake", text)
    asked = {"device": "cpu", "enforce": True, "timeout_s": 3}
    python = lean_python(tmp_path / "lean")
    evidence = run(machine, payload, python=python, readiness=asked, environment=environment)
    assert checks_of(evidence) == {"torch_import": False}
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "torch_device")
    assert says in evidence.end["detail"]
    assert evidence.of("phase", "demo") == []


def test_a_device_that_computes_wrongly(machine: Machine, payload: Path, tmp_path: Path) -> None:
    environment = fake_torch(tmp_path / "fake", PIECES)
    asked = {"device": "cuda", "enforce": True, "timeout_s": 30}
    python = lean_python(tmp_path / "lean")
    evidence = run(machine, payload, python=python, readiness=asked, environment=environment)
    assert checks_of(evidence) == {"torch_import": True, "device_seen": True, "matmul": False}
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "device_check")
    assert "matmul failed: RuntimeError: CUDA error: an illegal memory" in evidence.end["detail"]


REAL = """
import sys
here = sys.path.index({folder!r})
del sys.path[here], sys.modules["torch"]
import torch
class Properties: total_memory = 640 * 1024 * 1024
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.get_device_name = lambda device: "Stand-in"
torch.cuda.get_device_properties = lambda device: Properties
def to(self, device):
    sick = str(device) == "cuda:1"
    got = self.clone()
    if sick and {sick!r} == "product" and got.is_floating_point():
        got[7, 7] += 0.5
    if sick and {sick!r} == "memory" and not got.is_floating_point():
        got[12345] ^= 1024
    return got
torch.Tensor.to = to
"""


@pytest.mark.parametrize(
    ("sick", "says"),
    [
        ("nothing", ""),
        ("product", "matmul failed: cuda:1: error "),
        ("memory", "memory failed: cuda:1: other bytes were read than had been written"),
    ],
)
def test_every_device_is_tried(
    machine, payload: Path, tmp_path: Path, sick: str, says: str
) -> None:
    """The real torch, with its devices played by the CPU."""
    text = REAL.format(folder=str(tmp_path / "fake"), sick=sick)
    environment = fake_torch(tmp_path / "fake", text)
    asked = {"device": "cuda", "enforce": True, "timeout_s": 60}
    evidence = run(machine, payload, readiness=asked, environment=environment)
    checks = readiness_of(evidence)["checks"]
    assert checks[1]["detail"] == "Stand-in, Stand-in"
    if not says:
        assert [one["ok"] for one in checks] == [True] * 4
        assert checks[3]["detail"] == "67108864, 67108864 bytes written and read back"
        assert evidence.end["outcome"] == "completed"
        return
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "device_check")
    assert says in evidence.end["detail"]


@pytest.mark.parametrize(("kind", "ok"), [("TPU", True), ("CPU", False)])
def test_a_tpu_is_not_a_cpu(machine, payload: Path, tmp_path: Path, kind: str, ok: bool) -> None:
    xla = tmp_path / "fake" / "torch_xla"
    xla.mkdir(parents=True)
    (xla / "__init__.py").write_text(
        "import torch\n__version__ = '2.9'\ndef device(): return torch.device('cpu')\n"
    )
    (xla / "runtime.py").write_text(f"def device_type(): return {kind!r}\n")
    environment = {"variables": {"PYTHONPATH": str(tmp_path / "fake")}}
    asked = {"device": "xla", "enforce": True, "timeout_s": 60}
    evidence = run(machine, payload, readiness=asked, environment=environment)
    assert readiness_of(evidence)["ok"] is ok
    assert evidence.end["reason"] == (None if ok else "torch_device")
    if ok:
        assert "tolerance 0.02" in readiness_of(evidence)["checks"][2]["detail"]


@pytest.mark.parametrize(("device", "reason"), [(None, None), ("cpu", "torch_device")])
def test_a_payload_without_torch(machine, payload: Path, tmp_path: Path, device, reason) -> None:
    asked = {"device": device, "enforce": True, "timeout_s": 30}
    evidence = run(machine, payload, python=lean_python(tmp_path / "lean"), readiness=asked)
    assert readiness_of(evidence)["ok"] is (reason is None)
    assert evidence.end["reason"] == reason


LEAVES = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(607)"]
subprocess.Popen(sleep, start_new_session=True)
raise OSError("no")
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


def test_the_device_is_free_when_the_first_job_starts(machine, payload: Path, tmp_path) -> None:
    """One process may hold a TPU; what a check leaves running is gone before the job."""
    (payload / "counts.py").write_text(COUNTS)
    evidence = machine.run(
        payload,
        python=lean_python(tmp_path / "lean"),
        readiness={"device": "xla", "enforce": False, "timeout_s": 30},
        environment=fake_torch(tmp_path / "fake", LEAVES),
        jobs=[command("{python}", "counts.py")],
    )
    assert checks_of(evidence) == {"torch_import": False}
    assert b"left 0\n" in evidence.log
