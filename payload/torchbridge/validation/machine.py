"""Check a device: 3 checks of any device, 5 of a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.hardware import VENDORS, Hardware
from torchbridge.numbers import TOLERANCE, relative_error, whole_float32
from torchbridge.timing import Spread, timed, warm_up
from torchbridge.validation.findings import Check, Finding, failed, passed, warned

LEAST_MEMORY = 2**30  # bytes
PATTERN_NUMBERS = 2**22  # int32 numbers written and read back: 16 MiB
FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
LEAST_GAIN = 1.5  # of 16-bit products over float32 ones, which may be TF32 on the same cores

Multiply = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, its expected hardware, and the matrix product used to test it."""

    device: torch.device
    hardware: Hardware
    multiply: Multiply = torch.mm

    def product_error(self, dtype: torch.dtype, size: int = 100) -> float:
        """Return the relative error of a product [size, size] in `dtype` against float64."""
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(size, size, generator=generator).to(dtype) for _ in "ab")
        with whole_float32():
            actual = self.multiply(a.to(self.device), b.to(self.device))
        return relative_error(actual, a.double() @ b.double())


def device_available(machine: Machine) -> Finding:
    """Check that the device adds numbers and belongs to the expected vendor."""
    device, hardware = machine.device, machine.hardware
    total = (torch.ones(1000, device=device) + 1).sum()
    if total.device.type != device.type or total.item() != 2000:
        return failed(f"1000 times 1 + 1 is {total.item()} on {total.device}", "replace the device")
    if device.type != VENDORS[hardware.vendor].device:
        advice = "give the hardware of this device"
        return failed(f"{device} is no device of {hardware.vendor}", advice)
    return passed(f"{device}: {hardware.name} ({hardware.target})", name=hardware.name)


def memory(machine: Machine) -> Finding:
    """Check that the device has 1 GiB (if known) and keeps 16 MiB of written numbers."""
    size = machine.hardware.memory_bytes
    if 0 < size < LEAST_MEMORY:
        advice = "use a device with more memory"
        return failed(f"{size / 2**30:.2f} GiB is less than 1 GiB", advice, memory_bytes=size)
    written = torch.arange(PATTERN_NUMBERS, dtype=torch.int32)
    read = written.to(machine.device).clone().cpu()
    wrong = int((read != written).sum())
    if wrong:
        return failed(f"{wrong} numbers came back changed", "test the memory", wrong=wrong)
    text = f"{size / 2**30:.1f} GiB" if size else "of unknown size"
    return passed(text, memory_bytes=size, checked_bytes=read.nbytes)


def compute(machine: Machine) -> Finding:
    """Check a float32 product [100, 100]."""
    error, limit = machine.product_error(torch.float32), 1e-5
    return _compared("float32 product", error, limit)


def capabilities(machine: Machine) -> Finding:
    """Check that torch is built for the device, and products in its native 16-bit formats."""
    capability = machine.hardware.capability
    if capability is not None and not _built_for(capability):
        built = ", ".join(torch.cuda.get_arch_list())
        advice = "install a build of torch for this device"
        return failed(f"torch is built for {built}, not for {machine.hardware.target}", advice)
    named = {name: dtype for name, dtype in FORMATS.items() if machine.hardware.has(name)}
    errors = {name: machine.product_error(dtype) for name, dtype in named.items()}
    bad = {name: e for name, e in errors.items() if e > TOLERANCE[named[name]]}
    if bad:
        return failed(f"wrong products in {', '.join(bad)}", "update driver and torch", **errors)
    features = sorted(machine.hardware.features)
    return passed(f"{machine.hardware.target}: {', '.join(features)}", errors=errors)


def _built_for(capability: tuple[int, int]) -> bool:
    """Return whether torch has code for the capability: its major version, or older PTX."""
    for name in torch.cuda.get_arch_list():
        kind, _, digits = name.rstrip("af").partition("_")
        built = int(digits[:-1]), int(digits[-1])
        same = built[0] == capability[0] or kind == "compute"
        if same and built <= capability:
            return True
    return False


def tensor_cores(machine: Machine) -> Finding:
    """Check that 16-bit products are correct and 1.5 times as fast as float32."""
    if not machine.hardware.has("tensor_cores"):
        return warned(f"{machine.hardware.target} has none", "use sm_70 or later for 16 bit")
    dtype = torch.bfloat16 if machine.hardware.has("bf16") else torch.float16
    error = machine.product_error(dtype, 256)
    if error > TOLERANCE[dtype]:
        return _compared(f"{dtype} product", error, TOLERANCE[dtype])
    gain = _seconds(machine, torch.float32) / _seconds(machine, dtype)
    details = {"error": error, "gain": gain}
    message = f"{dtype} products take 1/{gain:.1f} of float32's time"
    if gain < LEAST_GAIN:
        return warned(message, "look what else runs on the device, and at its clocks", **details)
    return passed(message, **details)


def _seconds(machine: Machine, dtype: torch.dtype, size: int = 4096) -> float:
    """Return the median seconds of a product that is large enough to outweigh the launch."""
    a, b = (torch.randn(size, size, device=machine.device).to(dtype) for _ in "ab")
    warm_up(lambda: machine.multiply(a, b), machine.device, budget_s=1.0)
    work = [timed(lambda: machine.multiply(a, b), machine.device) for _ in range(5)]
    return Spread.from_samples(work).median


def _compared(what: str, error: float, limit: float) -> Finding:
    message = f"{what}: relative error {error:.1e} against float64, tolerance {limit:.0e}"
    if error > limit:
        return failed(message, "update driver and torch", error=error, tolerance=limit)
    return passed(message, error=error, tolerance=limit)


def checks_of(machine: Machine) -> list[Check]:
    """Return the checks of a machine: three, and two more for CUDA on NVIDIA hardware."""
    checks = [device_available, memory, compute]
    if machine.device.type == "cuda" and machine.hardware.vendor == "nvidia":
        checks += [capabilities, tensor_cores]
    return checks
