"""The configuration as a tree of groups, with three presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torchbridge.config.enums import (
    AttentionPatterns,
    HardwareBackend,
    OptimizationLevel,
    PrecisionFormat,
)
from torchbridge.config.settings import Settings
from torchbridge.config.vendors import AMDConfig, IntelConfig, NVIDIAConfig, TPUConfig
from torchbridge.hardware import VENDORS, Hardware, probe

if TYPE_CHECKING:
    from typing_extensions import Self

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
# what a device of a type talks to its like by
COLLECTIVES = {"cuda": "nccl", "xpu": "xccl", "xla": "xla", "cpu": "gloo"}
WINDOWED = (AttentionPatterns.SLIDING_WINDOW, AttentionPatterns.LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionConfig(Settings):
    """Number formats of a model; `mixed_precision` keeps fp32 weights and multiplies in 16 bits."""

    default_format: PrecisionFormat = PrecisionFormat.FP32
    mixed_precision: bool = False
    allow_tf32: bool = False

    def check(self) -> None:
        """Require fp32 as default format with mixed precision."""
        whole = not self.mixed_precision or self.default_format is PrecisionFormat.FP32
        self.require(whole, "default_format must be fp32 with mixed_precision", self.default_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig(Settings):
    """Gradient checkpointing, and the factor on memory estimates."""

    gradient_checkpointing: bool = False
    safety_margin: float = 1.2

    def check(self) -> None:
        """Require a safety margin of at least 1."""
        good = self.safety_margin >= 1
        self.require(good, "safety_margin must be at least 1", self.safety_margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig(Settings):
    """Attention pattern; with `window_size` a query sees keys less than this far away."""

    pattern: AttentionPatterns = AttentionPatterns.FULL
    window_size: int | None = None

    def check(self) -> None:
        """Require a window exactly for windowed patterns, and check its range."""
        window, windowed = self.window_size, self.pattern in WINDOWED
        self.require(
            not windowed or window is not None, f"{self.pattern.value} needs a window_size", window
        )
        self.require(windowed or window is None, f"{self.pattern.value} has no window_size", window)
        self.require(window is None or window >= 1, "window_size must be at least 1", window)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedConfig(Settings):
    """Number of processes; `backend` None means the device's default collectives."""

    world_size: int = 1
    backend: str | None = None

    def check(self) -> None:
        """Check the ranges and the name of the collectives."""
        self.require(self.world_size >= 1, "world_size must be at least 1", self.world_size)
        names = COLLECTIVES.values()
        known = self.backend is None or self.backend in names
        self.require(known, f"backend must be one of {', '.join(names)}", self.backend)

    def collectives(self, device_type: str) -> str:
        """Return `backend`, else the default of the device type, else gloo."""
        return self.backend or COLLECTIVES.get(device_type, "gloo")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig(Settings):
    """Whether layers may be fused, and whether and how torch.compile is used."""

    fusion: bool = True
    compile: bool = True
    compile_mode: str = "default"

    def check(self) -> None:
        """Check the name of the compile mode."""
        known = self.compile_mode in COMPILE_MODES
        rule = f"compile_mode must be one of {', '.join(COMPILE_MODES)}"
        self.require(known, rule, self.compile_mode)


_DEVICES = {one.choice: one.device for one in VENDORS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfig(Settings):
    """The backend to use, None for this machine's best, and the settings per vendor."""

    backend: HardwareBackend | None = None
    device_id: int | None = None
    nvidia: NVIDIAConfig = field(default_factory=NVIDIAConfig)
    tpu: TPUConfig = field(default_factory=TPUConfig)
    amd: AMDConfig = field(default_factory=AMDConfig)
    intel: IntelConfig = field(default_factory=IntelConfig)

    def check(self) -> None:
        """Check that the device index is not negative."""
        good = self.device_id is None or self.device_id >= 0
        self.require(good, "device_id must not be negative", self.device_id)

    def chosen(self, hardware: Hardware | None = None) -> HardwareBackend:
        """Return `backend`, or else the backend of `hardware` (by default this machine's)."""
        if self.backend is not None:
            return self.backend
        return HardwareBackend(VENDORS[(hardware or probe()).vendor].choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Settings):
    """The complete configuration; `Config.from_dict(config.to_dict()) == config`."""

    optimization_level: OptimizationLevel = OptimizationLevel.BALANCED
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    kernels: KernelConfig = field(default_factory=KernelConfig)

    @property
    def device(self) -> torch.device:
        """The device to compute on, by `hardware`, else this machine's best.

        Raises:
            ValueError: the backend is `custom`, for which torch has no device type.
        """
        backend = self.hardware.chosen().value
        self.hardware.require(backend in _DEVICES, "backend must be a known one", backend)
        return torch.device(_DEVICES[backend], self.hardware.device_id)

    @classmethod
    def for_inference(cls, **changes: Any) -> Self:
        """Return a preset: level aggressive; `changes` override it."""
        return cls(optimization_level=OptimizationLevel.AGGRESSIVE).update(**changes)

    @classmethod
    def for_training(cls, **changes: Any) -> Self:
        """Return a preset with gradient checkpointing; `changes` override it."""
        return cls().update(memory={"gradient_checkpointing": True}).update(**changes)

    @classmethod
    def for_development(cls, **changes: Any) -> Self:
        """Return a preset: level conservative, no compilation; `changes` override it."""
        preset = cls(optimization_level=OptimizationLevel.CONSERVATIVE)
        return preset.update(kernels={"compile": False}).update(**changes)
