"""The configuration as a tree of groups, with three presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torchbridge.config.enums import (
    HardwareBackend,
    OptimizationLevel,
)
from torchbridge.config.settings import Settings
from torchbridge.config.vendors import AMDConfig, IntelConfig, NVIDIAConfig, TPUConfig
from torchbridge.hardware import VENDORS, Hardware, probe

if TYPE_CHECKING:
    from typing_extensions import Self

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionConfig(Settings):
    """Whether float32 products may be rounded to TF32, where the hardware has it."""

    allow_tf32: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig(Settings):
    """Factor on memory estimates."""

    safety_margin: float = 1.2

    def check(self) -> None:
        """Require a safety margin of at least 1."""
        good = self.safety_margin >= 1
        self.require(good, "safety_margin must be at least 1", self.safety_margin)


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
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    kernels: KernelConfig = field(default_factory=KernelConfig)

    @property
    def device(self) -> torch.device:
        """The device to compute on, by `hardware`, else this machine's best."""
        return torch.device(_DEVICES[self.hardware.chosen().value], self.hardware.device_id)

    @classmethod
    def for_inference(cls, **changes: Any) -> Self:
        """Return a preset: level aggressive; `changes` override it."""
        return cls(optimization_level=OptimizationLevel.AGGRESSIVE).update(**changes)

    @classmethod
    def for_training(cls, **changes: Any) -> Self:
        """Return a preset: level balanced, which keeps numbers; `changes` override it."""
        return cls(optimization_level=OptimizationLevel.BALANCED).update(**changes)

    @classmethod
    def for_development(cls, **changes: Any) -> Self:
        """Return a preset: level conservative, no compilation; `changes` override it."""
        preset = cls(optimization_level=OptimizationLevel.CONSERVATIVE)
        return preset.update(kernels={"compile": False}).update(**changes)
