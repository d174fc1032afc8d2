"""torch and its device, tried with a torch made of numpy; and what becomes of the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from runners.agent import device_check, processes, torch_device_check
from runners.agent.attempt_errors import NotReady
from runners.agent.bounded_process import ProgramOutput
from runners.agent.environment_facts import Asker
from runners.agent.layout import AttemptFolder
from runners.agent.plan import Readiness


class Tensor:
    """So much of a tensor as the checks need; `spoil` is what its device does to it."""

    def __init__(self, values: Any, spoil: Any = None) -> None:
        self.values = np.asarray(values)
        self.spoil = spoil

    def double(self) -> Tensor:
        return Tensor(self.values.astype(np.float64))

    def cpu(self) -> Tensor:
        return Tensor(self.values if self.spoil is None else self.spoil(self.values.copy()))

    def to(self, device: Device) -> Tensor:
        return Tensor(self.values, device.spoil)

    def abs(self) -> Tensor:
        return Tensor(np.abs(self.values))

    def max(self) -> float:
        return float(self.values.max())

    def __matmul__(self, other: Tensor) -> Tensor:
        return Tensor(self.values @ other.values, self.spoil)

    def __sub__(self, other: Any) -> Tensor:
        return Tensor(self.values - getattr(other, "values", other), self.spoil)

    def __neg__(self) -> Tensor:
        return Tensor(-self.values, self.spoil)


class Device:
    """A device by its name, and what it does wrong."""

    def __init__(self, name: str, spoil: Any = None) -> None:
        self.name, self.spoil = name, spoil

    def __str__(self) -> str:
        return self.name


def torch(*, sick: Any = None, seen: bool = True, cuda: str | None = "12.8") -> ModuleType:
    """A torch with two cuda devices, of which the second may be sick."""
    module = ModuleType("torch")
    sizes = SimpleNamespace(total_memory=20_000)
    parts: dict[str, Any] = {
        "__version__": "9.9",
        "version": SimpleNamespace(cuda=cuda, hip=None),
        "int32": np.int32,
        "cuda": SimpleNamespace(
            is_available=lambda: seen,
            device_count=lambda: 2,
            get_device_name=lambda device: f"Stand-in {device}",
            get_device_properties=lambda device: sizes,
        ),
        "backends": SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True))
        ),
        "device": lambda kind, n=0: Device(f"{kind}:{n}", sick if n == 1 else None),
        "manual_seed": lambda n: None,
        "randn": lambda *size: Tensor(np.random.default_rng(0).normal(size=size).astype("f4")),
        "arange": lambda n, dtype: Tensor(np.arange(n, dtype=dtype)),
        "equal": lambda one, other: bool((one.values == other.values).all()),
    }  # fmt: skip
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def wrong_product(values: Any) -> Any:
    if values.dtype.kind == "f":
        values[7, 7] += 0.5
    return values


def nan(values: Any) -> Any:
    return values * float("nan") if values.dtype.kind == "f" else values


def wrong_memory(values: Any) -> Any:
    if values.dtype.kind == "i":
        values[123] ^= 1024
    return values


def raises(values: Any) -> Any:
    raise RuntimeError("CUDA error: an illegal memory access")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Try a device with a stand-in for torch; return the checks that were made."""

    def see(kind: str, **modules: ModuleType) -> list[dict[str, Any]]:
        monkeypatch.setattr(torch_device_check, "checks", [])
        monkeypatch.setattr(torch_device_check, "SIZE", 16)
        monkeypatch.setattr(torch_device_check, "MEMORY_BYTES", 4_000)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name.replace("__", "."), module)
        torch_device_check.main(kind)
        said = [
            json.loads(line.removeprefix(torch_device_check.ANSWER))
            for line in capsys.readouterr().out.splitlines()
        ]
        checks = said[-1]["checks"]
        # After every check the next one's name is known, should it hang.
        assert [one["at"] for one in said] == [*(one["check"] for one in checks), "end"]
        assert all(one["seconds"] >= 0 for one in checks)
        return checks

    return see


def words(checks: list[dict[str, Any]]) -> dict[str, bool]:
    return {one["check"]: one["ok"] for one in checks}


def test_a_cpu_multiplies_rightly(tried: Any) -> None:
    checks = tried("cpu", torch=torch())
    assert words(checks) == {"torch_import": True, "device_seen": True, "matmul": True}
    assert checks[0]["detail"] == "torch 9.9"
    assert "tolerance 0.0001" in checks[2]["detail"]


@pytest.mark.parametrize(
    ("sick", "says"),
    [
        (None, ""),
        (wrong_product, "matmul: cuda:1: error "),
        (nan, "matmul: cuda:1: error nan"),
        (raises, "matmul: RuntimeError: CUDA error: an illegal memory"),
        (wrong_memory, "memory: cuda:1: other bytes were read than had been written"),
    ],
)
def test_every_device_is_tried(tried: Any, sick: Any, says: str) -> None:
    module = torch(sick=sick)
    checks = tried("cuda", torch=module)
    assert module.backends.cuda.matmul.allow_tf32 is False
    assert checks[1]["detail"] == "Stand-in cuda:0, Stand-in cuda:1"
    last = checks[-1]
    if not says:
        assert [one["ok"] for one in checks] == [True] * 4
        assert last["detail"] == "2000, 2000 bytes written and read back", "a tenth of the memory"
        return
    assert (last["ok"], f"{last['check']}: {last['detail']}".startswith(says)) == (False, True)


@pytest.mark.parametrize(
    ("cuda", "why"),
    [("12.8", "its driver does not answer torch"), (None, "this torch is built without it")],
)
def test_a_device_that_torch_does_not_see(tried: Any, cuda: str | None, why: str) -> None:
    checks = tried("cuda", torch=torch(seen=False, cuda=cuda))
    assert words(checks) == {"torch_import": True, "device_seen": False}
    assert checks[1]["detail"] == f"torch sees no cuda device: {why}"


@pytest.mark.parametrize(
    ("kind", "variable", "ok"), [("TPU", "", True), ("CPU", "", False), ("CPU", "CPU", True)]
)
def test_a_tpu_is_not_a_cpu(
    tried: Any, monkeypatch: pytest.MonkeyPatch, kind: str, variable: str, ok: bool
) -> None:
    monkeypatch.setenv("PJRT_DEVICE", variable)
    xla, runtime = ModuleType("torch_xla"), ModuleType("torch_xla.runtime")
    xla.__version__, xla.device = "2.9", lambda: Device("xla:0")  # type: ignore[attr-defined]
    runtime.device_type = lambda: kind  # type: ignore[attr-defined]
    checks = tried("xla", torch=torch(), torch_xla=xla, torch_xla__runtime=runtime)
    assert checks[0]["detail"] == "torch 9.9, torch_xla 2.9"
    assert checks[1]["ok"] is ok
    if ok:
        assert "tolerance 0.02" in checks[2]["detail"]
        assert checks[3]["detail"] == "4000 bytes written and read back"


def test_a_payload_without_torch(tried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_device_check.importlib.util, "find_spec", lambda name: None)
    assert words(tried("none")) == {"torch_import": True}
    monkeypatch.setitem(sys.modules, "torch", None)
    (check,) = tried("cpu")
    assert (check["ok"], check["detail"].startswith("ModuleNotFoundError: ")) == (False, True)


def answer(at: str, *checks: dict[str, Any], code: int = 0, said: str = "") -> ProgramOutput:
    line = torch_device_check.ANSWER + json.dumps({"at": at, "checks": checks})
    return ProgramOutput(code, f"{said}\n{line}\n".encode(), timed_out=False)


IMPORTED = {"check": "torch_import", "ok": True, "detail": "torch 9.9", "seconds": 1.0}
UNSEEN = {"check": "device_seen", "ok": False, "detail": "torch sees no cuda", "seconds": 0.1}
SICK = {"check": "matmul", "ok": False, "detail": "cuda:1: error", "seconds": 0.1}


@pytest.mark.parametrize(
    ("said", "reason", "says"),
    [
        (answer("end", IMPORTED), None, ""),
        (answer("end", IMPORTED, UNSEEN), "torch_device", "device_seen failed: torch sees no cuda"),
        (answer("end", IMPORTED, SICK), "device_check", "matmul failed: cuda:1: error"),
        (
            answer("torch_import", code=-6, said="about to"), "torch_device",
            "torch_import failed: its process ended (signal 6): about to",
        ),
        (
            answer("matmul", IMPORTED, code=3), "device_check",
            "matmul failed: its process ended (exit code 3)",
        ),
        (
            ProgramOutput(127, b"no python", timed_out=False), "torch_device",
            "(exit code 127): no python",
        ),
        (
            ProgramOutput(-9, answer("memory", IMPORTED).output, timed_out=True), "device_check",
            "memory failed: no answer within 3 s",
        ),
    ],
)  # fmt: skip
def test_what_becomes_of_the_answer(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    said: ProgramOutput,
    reason: str | None,
    says: str,
) -> None:
    cleared: list[Any] = []
    monkeypatch.setattr(processes, "kill_all", cleared.append)
    monkeypatch.setattr(Asker, "ask", lambda *_, **__: said)
    asked = Readiness("cuda", enforce=True, timeout_s=3)
    result = device_check.see(
        asked, Asker(AttemptFolder(tmp_path), {}, None, lambda: None), has_torch=False
    )
    assert len(cleared) == 1, "one process alone may hold the device"
    assert (result["device"], result["ok"]) == ("cuda", reason is None)
    assert result["checks"][-1]["seconds"] == (3 if said.timed_out else ANY)
    device_check.enforce(Readiness("cuda", enforce=False, timeout_s=3), result)
    if reason is None:
        device_check.enforce(asked, result)
        return
    with pytest.raises(NotReady) as caught:
        device_check.enforce(asked, result)
    assert caught.value.reason == reason
    assert caught.value.detail.startswith("the machine is not ready for device cuda: ")
    assert says in caught.value.detail
