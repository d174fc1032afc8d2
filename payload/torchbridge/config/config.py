"""Everything that can be set, in one tree of groups, and the three presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torchbridge.config.enums import (
    AttentionPatterns,
    HardwareBackend,
    OptimizationLevel,
    PrecisionFormat,
    ValidationLevel,
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
    """What models are stored and computed in. `mixed_precision`: fp32 weights, 16-bit products."""

    default_format: PrecisionFormat = PrecisionFormat.FP32
    mixed_precision: bool = False
    allow_tf32: bool = False

    def check(self) -> None:
        """Mixed precision is about fp32 weights."""
        whole = not self.mixed_precision or self.default_format is PrecisionFormat.FP32
        self.require(whole, "default_format must be fp32 with mixed_precision", self.default_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig(Settings):
    """What may be computed again; an estimate counts `safety_margin` times."""

    gradient_checkpointing: bool = False
    safety_margin: float = 1.2

    def check(self) -> None:
        """An estimate is never made smaller."""
        good = self.safety_margin >= 1
        self.require(good, "safety_margin must be at least 1", self.safety_margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig(Settings):
    """`window_size`: a query sees the keys less than this far away; 1 is the query itself."""

    pattern: AttentionPatterns = AttentionPatterns.FULL
    window_size: int | None = None
    dropout: float = 0.0

    def check(self) -> None:
        """A window is given exactly where the pattern has one."""
        window, windowed = self.window_size, self.pattern in WINDOWED
        self.require(0 <= self.dropout < 1, "dropout must be in [0, 1)", self.dropout)
        self.require(
            not windowed or window is not None, f"{self.pattern.value} needs a window_size", window
        )
        self.require(windowed or window is None, f"{self.pattern.value} has no window_size", window)
        self.require(window is None or window >= 1, "window_size must be at least 1", window)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedConfig(Settings):
    """How many processes compute together; `backend` None: the device's own collectives."""

    world_size: int = 1
    backend: str | None = None

    def check(self) -> None:
        """Ranges and the collectives that torch knows."""
        self.require(self.world_size >= 1, "world_size must be at least 1", self.world_size)
        names = COLLECTIVES.values()
        known = self.backend is None or self.backend in names
        self.require(known, f"backend must be one of {', '.join(names)}", self.backend)

    def collectives(self, device_type: str) -> str:
        """As asked for, else those of the type of device ("cuda", say); gloo for others."""
        return self.backend or COLLECTIVES.get(device_type, "gloo")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationConfig(Settings):
    """Whether models are checked after their preparation, and how much."""

    enabled: bool = True
    level: ValidationLevel = ValidationLevel.STANDARD


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig(Settings):
    """What may be done to a model's operations: folded and fused ones, torch.compile."""

    fusion: bool = True
    compile: bool = True
    compile_mode: str = "default"

    def check(self) -> None:
        """The modes that torch.compile knows."""
        known = self.compile_mode in COMPILE_MODES
        rule = f"compile_mode must be one of {', '.join(COMPILE_MODES)}"
        self.require(known, rule, self.compile_mode)


_DEVICES = {one.choice: one.device for one in VENDORS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfig(Settings):
    """Whose device to use, None for this machine's best, and each vendor's own settings."""

    backend: HardwareBackend | None = None
    device_id: int | None = None
    nvidia: NVIDIAConfig = field(default_factory=NVIDIAConfig)
    tpu: TPUConfig = field(default_factory=TPUConfig)
    amd: AMDConfig = field(default_factory=AMDConfig)
    intel: IntelConfig = field(default_factory=IntelConfig)

    def check(self) -> None:
        """Ranges."""
        good = self.device_id is None or self.device_id >= 0
        self.require(good, "device_id must not be negative", self.device_id)

    def chosen(self, hardware: Hardware | None = None) -> HardwareBackend:
        """The backend asked for, or that of the hardware (this machine's)."""
        if self.backend is not None:
            return self.backend
        return HardwareBackend(VENDORS[(hardware or probe()).vendor].choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Settings):
    """All settings; `Config.from_dict(config.to_dict()) == config`."""

    optimization_level: OptimizationLevel = OptimizationLevel.BALANCED
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    kernels: KernelConfig = field(default_factory=KernelConfig)

    @property
    def device(self) -> torch.device:
        """Where to compute: as `hardware` asks, else this machine's best.

        Raises:
            ValueError: the backend is `custom`, whose device torch cannot tell.
        """
        backend = self.hardware.chosen().value
        self.hardware.require(backend in _DEVICES, "backend must be a known one", backend)
        return torch.device(_DEVICES[backend], self.hardware.device_id)

    @classmethod
    def for_inference(cls, **changes: Any) -> Self:
        """As fast as it gets, nothing kept for a backward pass, no checks on the way."""
        preset = cls(optimization_level=OptimizationLevel.AGGRESSIVE)
        return preset.update(validation={"enabled": False}).update(**changes)

    @classmethod
    def for_training(cls, **changes: Any) -> Self:
        """Memory goes to the batch: activations are computed again."""
        return cls().update(memory={"gradient_checkpointing": True}).update(**changes)

    @classmethod
    def for_development(cls, **changes: Any) -> Self:
        """Nothing between a person and the model: no compilation, strict checks."""
        preset = cls(optimization_level=OptimizationLevel.CONSERVATIVE)
        careful = {"validation": {"level": "strict"}, "kernels": {"compile": False}}
        return preset.update(**careful).update(**changes)
