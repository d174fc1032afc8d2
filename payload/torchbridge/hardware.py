"""Identify an accelerator and the features it computes natively.

Features follow from compute capability and device properties, never from the marketing name. Tests
and dispatchers take a `Hardware`, so that every rule can be tested without the device.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchbridge.device import pick_device

# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
_NVIDIA = (
    ((6, 0), "pascal"),
    ((7, 0), "volta"),
    ((7, 5), "turing"),
    ((8, 0), "ampere"),
    ((8, 9), "ada"),
    ((9, 0), "hopper"),
    ((10, 0), "blackwell"),
)
_NVIDIA_FEATURES = (
    ((5, 3), "fp16"),
    ((7, 0), "tensor_cores"),
    ((7, 5), "int8"),
    ((8, 0), "bf16"),
    ((8, 0), "tf32"),
    ((8, 9), "fp8"),
    ((9, 0), "tma"),
    ((10, 0), "fp4"),
)

# https://llvm.org/docs/AMDGPUUsage.html#processors
_AMD = (
    ("gfx908", "cdna", {"fp16", "bf16", "matrix_cores"}),
    ("gfx90a", "cdna2", {"fp16", "bf16", "matrix_cores"}),
    ("gfx942", "cdna3", {"fp16", "bf16", "matrix_cores", "fp8"}),
    ("gfx950", "cdna4", {"fp16", "bf16", "matrix_cores", "fp8", "fp4"}),
    ("gfx103", "rdna2", {"fp16"}),
    ("gfx110", "rdna3", {"fp16", "bf16"}),
    ("gfx115", "rdna3", {"fp16", "bf16"}),
    ("gfx120", "rdna4", {"fp16", "bf16", "fp8"}),
)


@dataclass(frozen=True, slots=True)
class TPUChip:
    """One TPU generation: its names, memory and peak rates per chip.

    https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
    """

    names: tuple[str, ...]  # before the size of an accelerator type: v5litepod-8
    kinds: tuple[str, ...]  # behind PJRT's "TPU": TPU v5 lite
    gib: int  # of memory, and how many bytes of it move per second
    bytes_per_s: float
    flops: dict[str, float]  # per second, by the numbers that are multiplied


TPU_CHIPS = {
    "v4": TPUChip(("v4",), ("v4",), 32, 1.2e12, {"bf16": 275e12}),
    "v5e": TPUChip(("v5litepod", "v5e"), ("v5 lite", "v5e"), 16, 0.819e12, {"bf16": 197e12}),
    "v5p": TPUChip(("v5p",), ("v5", "v5p"), 95, 2.765e12, {"bf16": 459e12}),
    "v6e": TPUChip(("v6e",), ("v6 lite", "v6e"), 32, 1.64e12, {"bf16": 918e12}),
    "v7": TPUChip(("tpu7x", "v7"), ("7x",), 192, 7.37e12, {"bf16": 2307e12, "fp8": 4614e12}),
}

# /proc/cpuinfo, which names them the same on all kernels: x86's flags, Arm's Features
_CPU_FEATURES = {
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "int8": {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"},
    "matrix_cores": {"amx_tile", "sme"},
}


@dataclass(frozen=True, slots=True)
class Vendor:
    """Names of a vendor: in a Config, in `torchbridge.backends`, as torch device type.

    `kind` is the backend's class. `build` is the attribute of `torch.version` that is set if torch
    is built for this vendor; empty if no special build is needed.
    """

    choice: str
    backend: str
    device: str
    kind: str
    build: str = ""


VENDORS = {
    "nvidia": Vendor("cuda", "nvidia", "cuda", "NVIDIABackend", "cuda"),
    "amd": Vendor("amd", "amd", "cuda", "AMDBackend", "hip"),  # it answers by CUDA's interface
    "google": Vendor("tpu", "tpu", "xla", "TPUBackend"),
    "intel": Vendor("intel", "intel", "xpu", "IntelBackend", "xpu"),
    "cpu": Vendor("cpu", "cpu", "cpu", "CPUBackend"),
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Properties of an accelerator or CPU.

    `capability` is CUDA's compute capability; `target` the compiler's name of the chip (`sm_89`,
    `gfx942`); `features` what it computes natively: fp16, bf16, tf32, int8, fp8, fp4, tensor_cores,
    matrix_cores, tma. `clock_hz` and `memory_bytes_per_s` are maxima, 0 if unknown.
    """

    vendor: str  # of VENDORS
    name: str
    architecture: str
    target: str = ""
    capability: tuple[int, int] | None = None
    memory_bytes: int = 0
    units: int = 0  # SMs, compute units, Xe cores, CPU cores
    features: frozenset[str] = frozenset()
    clock_hz: float = 0.0
    memory_bytes_per_s: float = 0.0

    def has(self, feature: str) -> bool:
        """Return whether `feature` is computed natively."""
        return feature in self.features

    @classmethod
    def nvidia(cls, capability: tuple[int, int], *, name: str = "", **facts: float) -> Hardware:
        """Build an NVIDIA GPU from a compute capability, e.g. (8, 9); `facts` set other fields."""
        target = f"sm_{capability[0]}{capability[1]}"
        known = [architecture for least, architecture in _NVIDIA if capability >= least]
        features = frozenset(feature for least, feature in _NVIDIA_FEATURES if capability >= least)
        architecture = known[-1] if known else "unsupported"
        values = {"target": target, "capability": capability, "features": features}
        return cls("nvidia", name or target, architecture, **values, **facts)

    @classmethod
    def amd(cls, gcn_arch: str, *, name: str = "", **facts: float) -> Hardware:
        """Build an AMD GPU from a gcnArchName, e.g. `gfx942:sramecc+`; `facts` set other fields."""
        target = gcn_arch.split(":")[0]
        rows = [row for row in _AMD if target.startswith(row[0])]
        _, architecture, features = rows[0] if rows else (target, "unsupported", set())
        values = {"target": target, "features": frozenset(features)}
        return cls("amd", name or target, architecture, **values, **facts)

    @classmethod
    def tpu(cls, accelerator: str, *, name: str = "", **facts: float) -> Hardware:
        """Build a TPU from an accelerator type (`v5litepod-8`) or PJRT device kind."""
        version = tpu_version(accelerator)
        values = {"target": "tpu", "features": frozenset({"bf16", "matrix_cores"})}
        if version:
            chip = TPU_CHIPS[version]
            values |= {"memory_bytes": chip.gib * 2**30, "memory_bytes_per_s": chip.bytes_per_s}
        version = version or "unknown"
        return cls("google", name or f"TPU {version}", version, **values | facts)

    @classmethod
    def cpu(cls, flags: Iterable[str] = (), *, name: str = "", **facts: float) -> Hardware:
        """Build a CPU from the feature flags in /proc/cpuinfo."""
        flags = set(flags)
        features = frozenset(one for one, any_of in _CPU_FEATURES.items() if flags & any_of)
        machine, target = platform.machine(), torch.backends.cpu.get_cpu_capability().lower()
        values = {"target": target, "features": features}
        return cls("cpu", name or platform.processor() or machine, machine, **values, **facts)


def tpu_version(values: str) -> str:
    """Return the `TPU_CHIPS` key of an accelerator type or PJRT device kind; "" if unknown."""
    kind, slice_ = re.fullmatch(r"TPU ?(.+)", values), re.fullmatch(r"([a-z0-9]+)-\d+", values)
    name = kind[1] if kind else slice_[1] if slice_ else values
    known = (v for v, chip in TPU_CHIPS.items() if name in (chip.kinds if kind else chip.names))
    return next(known, "")


def nvidia_architecture_has(architecture: str, feature: str) -> bool:
    """Return whether all chips of an architecture, e.g. "ada", have a feature."""
    least = {name: capability for capability, name in _NVIDIA}[architecture]
    return Hardware.nvidia(least).has(feature)


def probe(device: torch.device | None = None) -> Hardware:
    """Return the hardware behind `device`, by default of `pick_device()`."""
    device = device or pick_device()
    if device.type == "cuda":
        return _probe_cuda(device)
    if device.type == "xpu":
        return _probe_xpu(device)
    if device.type == "xla":
        return Hardware.tpu(os.environ.get("TPU_ACCELERATOR_TYPE", ""))
    return _probe_cpu()


def _probe_cuda(device: torch.device) -> Hardware:
    properties = torch.cuda.get_device_properties(device)
    facts = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "units": properties.multi_processor_count,
        **speeds(properties),
    }
    if torch.version.hip:  # ROCm answers by CUDA's interface
        return Hardware.amd(properties.gcnArchName, **facts)
    return Hardware.nvidia((properties.major, properties.minor), **facts)


def speeds(properties: Any) -> dict[str, float]:
    """Return maximum clock (Hz) and memory bandwidth (bytes/s), 0 where torch has no value."""
    clock, memory = (getattr(properties, n, 0) for n in ("clock_rate", "memory_clock_rate"))
    width = getattr(properties, "memory_bus_width", 0)
    # two transfers per cycle; ROCm's clock of HBM3 is a quarter of its rate, so it is not told
    moved = 0.0 if torch.version.hip else memory * 1e3 * 2 * width / 8
    return {"clock_hz": clock * 1e3, "memory_bytes_per_s": moved}


def _probe_xpu(device: torch.device) -> Hardware:
    properties = torch.xpu.get_device_properties(device)
    features = {"fp16"}
    if getattr(properties, "has_bfloat16_conversions", False):
        features.add("bf16")
    if getattr(properties, "has_subgroup_matrix_multiply_accumulate", False):
        features.add("matrix_cores")
    architecture = str(getattr(properties, "architecture", "xe"))
    facts = {
        "target": "xpu",
        "memory_bytes": properties.total_memory,
        "units": getattr(properties, "max_compute_units", 0),
        "features": frozenset(features),
    }
    return Hardware("intel", properties.name, architecture, **facts)


def _probe_cpu() -> Hardware:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    facts = {"memory_bytes": pages * size, "units": os.cpu_count() or 1}
    return Hardware.cpu(_cpu_flags(), **facts)


def _cpu_flags() -> list[str]:
    """Return the feature flags of the first processor, on Linux; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return next((x.split(":")[1].split() for x in lines if x.startswith(("flags", "Features"))), [])
