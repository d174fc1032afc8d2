"""Everything that can be set, in one tree, and the three presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torchbridge.config.amd import AMDConfig
from torchbridge.config.enums import HardwareBackend, OptimizationLevel
from torchbridge.config.intel import IntelConfig
from torchbridge.config.nvidia import NVIDIAConfig
from torchbridge.config.sections import (
    AttentionConfig,
    DistributedConfig,
    KernelConfig,
    MemoryConfig,
    PrecisionConfig,
    ValidationConfig,
)
from torchbridge.config.settings import Settings
from torchbridge.config.tpu import TPUConfig
from torchbridge.hardware import Hardware, probe

if TYPE_CHECKING:
    from typing_extensions import Self

_BACKENDS = {"nvidia": "cuda", "amd": "amd", "intel": "intel", "google": "tpu", "cpu": "cpu"}
_DEVICES = {"cuda": "cuda", "amd": "cuda", "intel": "xpu", "tpu": "xla", "cpu": "cpu"}


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
        return HardwareBackend(_BACKENDS[(hardware or probe()).vendor])


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
    debug: bool = False
    profile: bool = False

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
        """Memory goes to the batch: activations are computed again, optimizer states offloaded."""
        memory = {"gradient_checkpointing": True, "deep_optimizer_states": True}
        return cls().update(memory=memory).update(**changes)

    @classmethod
    def for_development(cls, **changes: Any) -> Self:
        """Nothing between a person and the model: no compilation, strict checks, profiles."""
        preset = cls(optimization_level=OptimizationLevel.CONSERVATIVE, debug=True, profile=True)
        careful = {"validation": {"level": "strict"}, "kernels": {"compile": False}}
        return preset.update(**careful).update(**changes)
