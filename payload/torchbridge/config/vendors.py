"""Settings of each vendor's devices, and what the hardware decides of what they leave open."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from torchbridge.config.enums import (
    AMDArchitecture,
    IntelArchitecture,
    NVIDIAArchitecture,
    OptimizationLevel,
    PrecisionFormat,
    TPUCompilationMode,
    TPUTopology,
    TPUVersion,
)
from torchbridge.config.settings import Settings
from torchbridge.hardware import Hardware, nvidia_architecture_has, probe

PRECISIONS = (PrecisionFormat.FP32, PrecisionFormat.BF16)  # of AMD's and Intel's models
Architecture = TypeVar("Architecture", bound=Enum)


def _architecture(
    vendor: str, kind: type[Architecture], hardware: Hardware | None, refusal: str
) -> Architecture:
    """The hardware's (this machine's); `auto` where it is another vendor's."""
    hardware = hardware or probe()
    if hardware.vendor != vendor:
        return kind("auto")
    if hardware.architecture == "unsupported":
        raise ValueError(refusal.format(hardware.target))
    return kind(hardware.architecture)


def _check_share(settings: Settings) -> None:
    """The ranges that all vendors' settings have."""
    fraction, index = settings.memory_fraction, getattr(settings, "device_id", 0)
    settings.require(0 < fraction <= 1, "memory_fraction must be in (0, 1]", fraction)
    settings.require(index >= 0, "device_id must not be negative", index)


def detect_architecture(hardware: Hardware | None = None) -> NVIDIAArchitecture:
    """By compute capability; `auto` where the hardware (this machine's) is not NVIDIA's.

    Raises:
        ValueError: an NVIDIA device older than Pascal.
    """
    old = "{} is older than Pascal (sm_60), the oldest supported"
    return _architecture("nvidia", NVIDIAArchitecture, hardware, old)


@dataclass(frozen=True, slots=True, kw_only=True)
class NVIDIAConfig(Settings):
    """None and `auto` leave it to the device: see `on`."""

    enabled: bool | None = None
    architecture: NVIDIAArchitecture = NVIDIAArchitecture.AUTO
    fp8_enabled: bool | None = None
    cudnn_benchmark: bool = True
    cuda_graphs: bool = False
    memory_fraction: float = 0.9

    def check(self) -> None:
        """Ranges, and FP8 only where the architecture has it."""
        _check_share(self)
        told = self.architecture is not NVIDIAArchitecture.AUTO
        lacking = told and not nvidia_architecture_has(self.architecture.value, "fp8")
        rule = "fp8_enabled needs ada (sm_89) or later"
        self.require(not (self.fp8_enabled and lacking), rule, self.architecture)

    def on(self, hardware: Hardware | None = None) -> NVIDIAConfig:
        """With everything that was left open decided by the hardware (this machine's).

        Raises:
            ValueError: the hardware has not what was asked for.
        """
        hardware = hardware or probe()
        present, found = hardware.vendor == "nvidia", detect_architecture(hardware)
        self.require(present or not self.enabled, f"enabled on {hardware.vendor}", self.enabled)
        asked = self.architecture
        same = not present or asked in (NVIDIAArchitecture.AUTO, found)
        self.require(same, f"architecture is {found.value} ({hardware.target}) here", asked)
        fp8 = hardware.has("fp8") if self.fp8_enabled is None else self.fp8_enabled
        rule = f"fp8_enabled needs sm_89 or later, this is {hardware.target}"
        self.require(not (present and fp8) or hardware.has("fp8"), rule, fp8)
        if not present:
            return self.update(enabled=False, fp8_enabled=False)
        return self.update(enabled=self.enabled is not False, architecture=found, fp8_enabled=fp8)


def detect_amd_architecture(hardware: Hardware | None = None) -> AMDArchitecture:
    """By ROCm's gcnArchName; `auto` where the hardware (this machine's) is not AMD's.

    Raises:
        ValueError: a chip that is not known here.
    """
    known = ", ".join(one.value for one in AMDArchitecture if one is not AMDArchitecture.AUTO)
    return _architecture("amd", AMDArchitecture, hardware, f"{{}} is none of the known: {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AMDConfig(Settings):
    """None and `auto` leave it to the device: see `on`.

    `default_precision` fp32 keeps a model as it is at every level, bf16 narrows it at every level;
    None narrows it at the aggressive level. `matrix_cores` True insists on them.
    `optimization_level` None: that of the whole config.
    """

    enabled: bool | None = None
    architecture: AMDArchitecture = AMDArchitecture.AUTO
    optimization_level: OptimizationLevel | None = None
    default_precision: PrecisionFormat | None = None
    matrix_cores: bool | None = None
    memory_fraction: float = 0.9
    device_id: int = 0
    kernel_cache_size: int = 100

    def check(self) -> None:
        """Ranges."""
        _check_share(self)
        precision = self.default_precision
        size = self.kernel_cache_size
        self.require(size >= 1, "kernel_cache_size must be at least 1", size)
        known = precision is None or precision in PRECISIONS
        self.require(known, "default_precision must be fp32 or bf16", precision)

    def on(self, hardware: Hardware | None = None) -> AMDConfig:
        """With everything that was left open decided by the hardware (this machine's).

        Raises:
            ValueError: the hardware has not what was asked for.
        """
        hardware = hardware or probe()
        present, found = hardware.vendor == "amd", detect_amd_architecture(hardware)
        self.require(present or not self.enabled, f"enabled on {hardware.vendor}", self.enabled)
        if not present:
            return self.update(enabled=False, matrix_cores=False)
        asked, here = self.architecture, hardware.target
        same = asked in (AMDArchitecture.AUTO, found)
        self.require(same, f"architecture is {found.value} ({here}) here", asked)
        cores = hardware.has("matrix_cores") if self.matrix_cores is None else self.matrix_cores
        good = not cores or hardware.has("matrix_cores")
        self.require(good, f"matrix_cores need CDNA, this is {found.value} ({here})", cores)
        return self.update(
            enabled=self.enabled is not False, architecture=found, matrix_cores=cores
        )


INTEL_LEVELS = ("O0", "O1", "O2")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelConfig(Settings):
    """None and `auto` leave it to the device.

    `optimization_level`: O0 the same numbers, O1 the same within float32's rounding, O2 within
    bfloat16's. `default_precision` fp32 keeps O2 from narrowing the model where bf16 is native.
    """

    enabled: bool | None = None
    architecture: IntelArchitecture = IntelArchitecture.AUTO
    default_precision: PrecisionFormat = PrecisionFormat.BF16
    optimization_level: str = "O1"
    memory_fraction: float = 0.9
    device_id: int = 0

    def check(self) -> None:
        """Ranges."""
        _check_share(self)
        level = self.optimization_level
        self.require(level in INTEL_LEVELS, "optimization_level must be O0, O1 or O2", level)
        precision = self.default_precision
        known = precision in PRECISIONS
        self.require(known, "default_precision must be fp32 or bf16", precision)


TPU_PRECISIONS = ("float32", "bfloat16")
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm: memory of one chip, in GiB
MEMORY_GB = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7": 192}
_VERSIONS = {
    "v4": "v4",
    "v5litepod": "v5e",
    "v5e": "v5e",
    "v5p": "v5p",
    "v6e": "v6e",
    "tpu7x": "v7",
}
_KINDS = {"v4": "v4", "v5 lite": "v5e", "v5e": "v5e", "v5": "v5p", "v5p": "v5p"}
_KINDS |= {"v6 lite": "v6e", "v6e": "v6e", "7x": "v7"}
_ACCELERATOR = re.compile(r"(?P<version>[a-z0-9]+)-(?P<size>\d+)")
_KIND = re.compile(r"TPU ?(?P<kind>.+)")
_SINGLE_HOST = 8  # the largest slice of one host, in chips, or in cores where the name counts those


def detect_tpu_version(accelerator: str | None = None) -> TPUVersion:
    """From an accelerator type (`v5litepod-8`) or PJRT's kind of device (`TPU v5 lite`).

    By default the environment's `TPU_ACCELERATOR_TYPE`; `auto` where nothing is told.

    Raises:
        ValueError: a generation that is not known here.
    """
    told = _told(accelerator)
    if not told:
        return TPUVersion.AUTO
    kind, slice_ = _KIND.fullmatch(told), _ACCELERATOR.fullmatch(told)
    known = _KINDS if kind else _VERSIONS
    name = kind["kind"] if kind else slice_["version"] if slice_ else told
    if name not in known:
        raise ValueError(f"TPU {told!r} is not known; known: {', '.join(known)}")
    return TPUVersion(known[name])


def detect_tpu_topology(accelerator: str | None = None, *, slices: int = 1) -> TPUTopology:
    """From the size in the accelerator type; `auto` where nothing is told.

    `slices` is how many slices compute together: more than one are a superpod.
    """
    found = _ACCELERATOR.fullmatch(_told(accelerator))
    if slices > 1:
        return TPUTopology.SUPERPOD
    if found is None:
        return TPUTopology.AUTO
    return TPUTopology.SINGLE if int(found["size"]) <= _SINGLE_HOST else TPUTopology.POD


def _told(accelerator: str | None) -> str:
    return os.environ.get("TPU_ACCELERATOR_TYPE", "") if accelerator is None else accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class TPUConfig(Settings):
    """None and `auto` leave it to the device.

    `xla_optimization_level` is what a product of float32 numbers may lose: 0 nothing (six passes of
    bfloat16), 1 little (three), 2 what bfloat16 loses (one). Times are seconds.
    """

    enabled: bool | None = None
    version: TPUVersion = TPUVersion.AUTO
    topology: TPUTopology = TPUTopology.AUTO
    compilation_mode: TPUCompilationMode = TPUCompilationMode.TORCH_XLA
    precision: str = "bfloat16"
    memory_fraction: float = 0.9
    memory_gb: float | None = None  # of one chip; None: that of the version
    xla_optimization_level: int = 2
    dynamic_shapes: bool = False
    cache_size: int = 100  # compiled models
    compile_timeout_s: float = 300.0
    history_retention_s: float = 3600.0
    strict_validation: bool = False  # warnings are errors

    def check(self) -> None:
        """Ranges."""
        _check_share(self)
        level = self.xla_optimization_level
        self.require(0 <= level <= 2, "xla_optimization_level must be in 0..2", level)
        known = self.precision in TPU_PRECISIONS
        self.require(known, f"precision must be one of {', '.join(TPU_PRECISIONS)}", self.precision)
        self.require(self.cache_size >= 1, "cache_size must be at least 1", self.cache_size)
        some = self.memory_gb is None or self.memory_gb > 0
        self.require(some, "memory_gb must be positive", self.memory_gb)
        for name in ("compile_timeout_s", "history_retention_s"):
            self.require(getattr(self, name) > 0, f"{name} must be positive", getattr(self, name))

    @property
    def memory_bytes(self) -> int | None:
        """Of one chip: as set, else that of the version; None where neither tells."""
        gib = self.memory_gb or MEMORY_GB.get(self.version.value)
        return None if gib is None else int(gib * 2**30)
