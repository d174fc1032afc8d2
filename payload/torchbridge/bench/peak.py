"""Measure the peak memory of one call, in addition to the memory allocated before."""

from __future__ import annotations

import ctypes
import gc
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from torchbridge.bench.benchmark import Arm
from torchbridge.device import synchronise

_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs: the peak of the resident size
ALLOCATOR = "the device allocator's peak"
RESIDENT = "the process's resident peak"


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory in bytes, measured as `how` says; if None, `how` is the reason."""

    bytes: int | None
    how: str


def peak_of(arm: Arm, device: torch.device) -> Peak:
    """Measure one call without its `setup`; on the CPU by the process's resident size (Linux)."""
    if arm.setup is not None:
        arm.setup()
    if device.type in ("cuda", "xpu"):
        return _by_allocator(arm, device)
    if device.type == "cpu":
        return _by_process(arm, Path("/proc/self"))
    return Peak(None, f"{device.type} has no counter of peak memory")


def _by_allocator(arm: Arm, device: torch.device) -> Peak:
    module = getattr(torch, device.type)
    synchronise(device)
    gc.collect()
    module.reset_peak_memory_stats(device)
    before = module.memory_allocated(device)
    arm.work()
    synchronise(device)
    return Peak(module.max_memory_allocated(device) - before, ALLOCATOR)


def _by_process(arm: Arm, proc: Path) -> Peak:
    """Measure one call by the kernel's count of resident pages, after releasing cached memory.

    The memory of an arm that fits into pages which are resident already is not counted.
    """
    gc.collect()
    give_back()
    try:
        (proc / "clear_refs").write_text(_RESET_PEAK)
        before = _kilobytes(proc, "VmHWM")
        arm.work()
        return Peak(max(0, _kilobytes(proc, "VmHWM") - before) * 1024, RESIDENT)
    except (OSError, LookupError) as error:
        return Peak(None, f"the kernel does not tell: {error}")


def give_back() -> None:
    """Return freed memory that the C library holds to the kernel, if it can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _kilobytes(proc: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s*([0-9]+) kB", (proc / "status").read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"no {name} in {proc}/status")
    return int(found[1])
