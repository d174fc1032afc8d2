"""Settings per vendor, and their resolution by the hardware."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

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
from torchbridge.hardware import (
    TPU_CHIPS,
    Hardware,
    nvidia_architecture_has,
    probe,
    tpu_version,
)

INTEL_LEVELS = ("O0", "O1", "O2")
TPU_PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorConfig(Settings):
    """Settings common to all vendors; None and `auto` are resolved by `on`."""

    vendor: ClassVar[str]
    kind: ClassVar[type[Enum]]  # of its architectures
    units: ClassVar[dict[str, tuple[str, str]]] = {}  # setting: (required feature, its hardware)

    enabled: bool | None = None
    memory_fraction: float = 0.9

    def check(self) -> None:
        """Check the memory fraction."""
        share = self.memory_fraction
        self.require(0 < share <= 1, "memory_fraction must be in (0, 1]", share)

    @classmethod
    def detect(cls, hardware: Hardware | None = None) -> Enum:
        """Return the architecture; `auto` for another vendor's hardware or an unlisted
        architecture.

        Raises:
            ValueError: the chip is not supported.
        """
        hardware = hardware or probe()
        known = [one.value for one in cls.kind]
        if hardware.vendor == cls.vendor and hardware.architecture == "unsupported":
            named = ", ".join(known[1:])
            raise ValueError(f"{hardware.target} is none of the supported chips: {named}")
        ours = hardware.vendor == cls.vendor and hardware.architecture in known
        return cls.kind(hardware.architecture if ours else "auto")

    def on(self, hardware: Hardware | None = None) -> VendorConfig:
        """Return a copy with open values resolved by `hardware` (by default this machine's).

        Raises:
            ValueError: the hardware lacks what the settings require.
        """
        hardware = hardware or probe()
        present, found = hardware.vendor == self.vendor, self.detect(hardware)
        self.require(present or not self.enabled, f"enabled on {hardware.vendor}", self.enabled)
        if not present:
            return self.update(enabled=False, **dict.fromkeys(self.units, False))
        asked, auto = self.architecture, self.kind("auto")
        same = asked in (auto, found) or found is auto
        self.require(same, f"architecture is {found.value} ({hardware.target}) here", asked)
        narrow = getattr(self, "default_precision", None) is PrecisionFormat.BF16
        rule = f"default_precision: {hardware.target} has no native bf16"
        self.require(hardware.has("bf16") or not narrow, rule, "bf16")
        decided = {}
        for name, (feature, who) in self.units.items():
            wanted, has = getattr(self, name), hardware.has(feature)
            rule = f"{name} needs {who}, this is {found.value} ({hardware.target})"
            self.require(has or not wanted, rule, wanted)
            decided[name] = has if wanted is None else wanted
        named = asked if found is auto else found
        return self.update(enabled=self.enabled is not False, architecture=named, **decided)


@dataclass(frozen=True, slots=True, kw_only=True)
class NVIDIAConfig(VendorConfig):
    """Settings of NVIDIA GPUs; fp8_enabled: True requires FP8 units, None reports them."""

    vendor: ClassVar[str] = "nvidia"
    kind: ClassVar[type[Enum]] = NVIDIAArchitecture
    units: ClassVar[dict[str, tuple[str, str]]] = {"fp8_enabled": ("fp8", "sm_89 or later")}

    architecture: NVIDIAArchitecture = NVIDIAArchitecture.AUTO
    fp8_enabled: bool | None = None
    cudnn_benchmark: bool = True
    cuda_graphs: bool = False

    def check(self) -> None:
        """Check ranges, and that the architecture has FP8 if that is enabled."""
        VendorConfig.check(self)
        given = self.architecture is not NVIDIAArchitecture.AUTO
        lacking = given and not nvidia_architecture_has(self.architecture.value, "fp8")
        rule = "fp8_enabled needs ada (sm_89) or later"
        self.require(not (self.fp8_enabled and lacking), rule, self.architecture)


@dataclass(frozen=True, slots=True, kw_only=True)
class AMDConfig(VendorConfig):
    """Settings of AMD GPUs.

    `default_precision`: fp32 keeps models in float32 at every level, bf16 converts them at every
    level, None at the aggressive level. `matrix_cores`: True requires them. `optimization_level`:
    None means that of the whole config.
    """

    vendor: ClassVar[str] = "amd"
    kind: ClassVar[type[Enum]] = AMDArchitecture
    units: ClassVar[dict[str, tuple[str, str]]] = {"matrix_cores": ("matrix_cores", "CDNA")}

    architecture: AMDArchitecture = AMDArchitecture.AUTO
    optimization_level: OptimizationLevel | None = None
    default_precision: PrecisionFormat | None = None
    matrix_cores: bool | None = None
    kernel_cache_size: int = 100

    def check(self) -> None:
        """Check the ranges of the settings."""
        VendorConfig.check(self)
        size = self.kernel_cache_size
        self.require(size >= 1, "kernel_cache_size must be at least 1", size)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelConfig(VendorConfig):
    """Settings of Intel GPUs.

    `optimization_level`: O0, O1 and O2 are conservative, balanced and aggressive.
    `default_precision` is as in `AMDConfig`.
    """

    vendor: ClassVar[str] = "intel"
    kind: ClassVar[type[Enum]] = IntelArchitecture

    architecture: IntelArchitecture = IntelArchitecture.AUTO
    default_precision: PrecisionFormat | None = None
    optimization_level: str = "O1"

    def check(self) -> None:
        """Check ranges and the name of the level."""
        VendorConfig.check(self)
        level = self.optimization_level
        self.require(level in INTEL_LEVELS, "optimization_level must be O0, O1 or O2", level)


detect_architecture = NVIDIAConfig.detect
detect_amd_architecture = AMDConfig.detect


_SINGLE_HOST = 8  # the largest slice of one host, in chips, or in cores where the name counts those


def detect_tpu_version(accelerator: str | None = None) -> TPUVersion:
    """Return the version of an accelerator type (`v5litepod-8`) or PJRT device kind.

    The default is the environment's `TPU_ACCELERATOR_TYPE`; `auto` if that is not set.

    Raises:
        ValueError: the generation is unknown.
    """
    given = _accelerator_type(accelerator)
    version = tpu_version(given)
    if given and not version:
        raise ValueError(f"TPU {given!r} is not known; known: {', '.join(TPU_CHIPS)}")
    return TPUVersion(version or "auto")


def detect_tpu_topology(accelerator: str | None = None, *, slices: int = 1) -> TPUTopology:
    """Return the topology by the size in the accelerator type; `auto` if it has none.

    More than one of `slices` that compute together are a superpod.
    """
    found = re.fullmatch(r"[a-z0-9]+-(\d+)", _accelerator_type(accelerator))
    if slices > 1:
        return TPUTopology.SUPERPOD
    if found is None:
        return TPUTopology.AUTO
    return TPUTopology.SINGLE if int(found[1]) <= _SINGLE_HOST else TPUTopology.POD


def _accelerator_type(accelerator: str | None) -> str:
    return os.environ.get("TPU_ACCELERATOR_TYPE", "") if accelerator is None else accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class TPUConfig(Settings):
    """Settings of TPUs; None and `auto` are resolved by the chip. Times are in seconds.

    `xla_optimization_level` sets the precision of float32 products: 0 by six passes of bfloat16
    (exact), 1 by three, 2 by one.
    """

    enabled: bool | None = None
    memory_fraction: float = 0.9
    version: TPUVersion = TPUVersion.AUTO
    topology: TPUTopology = TPUTopology.AUTO
    compilation_mode: TPUCompilationMode = TPUCompilationMode.TORCH_XLA
    precision: str = "bfloat16"
    memory_gb: float | None = None  # of one chip; None: that of the version
    xla_optimization_level: int = 2
    dynamic_shapes: bool = False
    cache_size: int = 100  # compiled models
    compile_timeout_s: float = 300.0
    history_retention_s: float = 3600.0
    strict_validation: bool = False  # warnings are errors

    def check(self) -> None:
        """Check the ranges and names of all settings."""
        share = self.memory_fraction
        self.require(0 < share <= 1, "memory_fraction must be in (0, 1]", share)
        level = self.xla_optimization_level
        self.require(0 <= level <= 2, "xla_optimization_level must be in 0..2", level)
        known = self.precision in TPU_PRECISIONS
        self.require(known, f"precision must be one of {', '.join(TPU_PRECISIONS)}", self.precision)
        self.require(self.cache_size >= 1, "cache_size must be at least 1", self.cache_size)
        for name in ("memory_gb", "compile_timeout_s", "history_retention_s"):
            value = getattr(self, name)
            self.require(value is None or value > 0, f"{name} must be positive", value)

    @property
    def memory_bytes(self) -> int | None:
        """Memory of one chip in bytes: the setting, else that of the version; None if unknown."""
        chip = TPU_CHIPS.get(self.version.value)
        gib = self.memory_gb or (chip.gib if chip else None)
        return None if gib is None else int(gib * 2**30)
