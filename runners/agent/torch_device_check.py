"""Checks in the overlay that torch can be imported, finds its device, and computes correctly.

Sent as text to the overlay's Python with the device's name (cuda, xla, cpu, or none). Prints the
results after every check, so that the name of a check that hangs or crashes is known.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List

ANSWER = "SEATRIAL-ANSWER:"
NO_TORCH = "torch is not installed, and no device was asked for"
SIZE = 512
TOLERANCES = {"xla": 2e-2}
"""Maximum error of a float32 product by device, relative to its largest element.

A TPU multiplies in bfloat16 by default.
"""

TOLERANCE = 1e-4
MEMORY_SHARE = 10
MEMORY_BYTES = 256 * 1024 * 1024

Found = Dict[str, Any]
checks: List[Found] = []


class DeviceFault(Exception):  # noqa: N818 - what was found, for a person
    """A failed check; the text is the reason."""


def say(at: str) -> None:
    """Print the results so far, and the name of the next check."""
    print(ANSWER + json.dumps({"at": at, "checks": checks}), flush=True)


def check(name: str, ask: Callable[[], str]) -> bool:
    """Run one check; return whether the next one can be run."""
    say(name)
    began = time.monotonic()
    try:
        ok, detail = True, ask()
    except Exception as error:  # noqa: BLE001 - whatever the device says is the answer
        own = isinstance(error, DeviceFault)
        ok, detail = False, str(error) if own else f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 3)
    checks.append({"check": name, "ok": ok, "detail": detail[:2000], "seconds": seconds})
    return ok


class DeviceChecks:
    """torch, and the devices of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.torch: Any = None
        self.devices: List[Any] = []

    def load(self) -> str:
        """Import torch, for TPUs torch_xla too; return their versions."""
        self.torch = importlib.import_module("torch")
        said = f"torch {self.torch.__version__}"
        if self.kind != "xla":
            return said
        return f"{said}, torch_xla {importlib.import_module('torch_xla').__version__}"

    def see(self) -> str:
        """Find torch's devices; return a description. Raises DeviceFault without devices."""
        if self.kind == "cuda":
            return self._cuda()
        if self.kind == "xla":
            return self._xla()
        self.devices = [self.torch.device("cpu")]
        return "cpu"

    def _cuda(self) -> str:
        cuda = self.torch.cuda
        if not cuda.is_available():
            built = self.torch.version.cuda or getattr(self.torch.version, "hip", None)
            why = "its driver does not answer torch" if built else "this torch is built without it"
            raise DeviceFault(f"torch sees no cuda device: {why}")
        # TF32 would multiply with 10-bit mantissas.
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.devices = [self.torch.device("cuda", n) for n in range(cuda.device_count())]
        return ", ".join(cuda.get_device_name(device) for device in self.devices)

    def _xla(self) -> str:
        runtime = importlib.import_module("torch_xla.runtime")
        self.devices = [importlib.import_module("torch_xla").device()]
        kind = str(runtime.device_type())
        if kind == "CPU" and os.environ.get("PJRT_DEVICE") != "CPU":
            raise DeviceFault("XLA has no device of its own and would compute on the CPU")
        return f"{self.devices[0]} ({kind})"

    def multiply(self) -> str:
        """Compare a product with the CPU's in float64. Raises DeviceFault."""
        torch = self.torch
        torch.manual_seed(0)
        left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
        wanted = left.double() @ right.double()
        tolerance = TOLERANCES.get(self.kind, TOLERANCE)
        worst = 0.0
        for device in self.devices:
            got = (left.to(device) @ right.to(device)).cpu().double()
            error = float((got - wanted).abs().max() / wanted.abs().max())
            if not error <= tolerance:  # NaN is not, either
                raise DeviceFault(f"{device}: error {error:.2e}, tolerance {tolerance:g}")
            worst = max(worst, error)
        return f"{SIZE}x{SIZE} float32: error {worst:.2e}, tolerance {tolerance:g}"

    def remember(self) -> str:
        """Fill a part of each device's memory, and read it back."""
        sizes = [self._fill(device) for device in self.devices]
        return f"{', '.join(str(size) for size in sizes)} bytes written and read back"

    def _fill(self, device: object) -> int:
        torch, size = self.torch, MEMORY_BYTES
        if self.kind == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            size = min(size, total // MEMORY_SHARE)
        pattern = torch.arange(size // 4, dtype=torch.int32)
        held = pattern.to(device)
        for turn, expected in ((held, pattern), (-held - 1, -pattern - 1)):  # every bit, both ways
            if not torch.equal(turn.cpu(), expected):
                raise DeviceFault(f"{device}: other bytes were read than had been written")
        return size


def main(kind: str) -> None:
    """Run the checks until one fails."""
    if kind == "none" and importlib.util.find_spec("torch") is None:
        check("torch_import", lambda: NO_TORCH)
        say("end")
        return
    device_checks = DeviceChecks(kind)
    steps = [
        ("torch_import", device_checks.load),
        ("device_seen", device_checks.see),
        ("matmul", device_checks.multiply),
    ]
    if kind in ("cuda", "xla"):
        steps.append(("memory", device_checks.remember))
    for name, step in steps:
        if not check(name, step):
            break
    say("end")


if __name__ == "__main__":
    main(sys.argv[1])
