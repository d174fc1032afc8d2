"""Settings of Intel's GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from torchbridge.config.enums import IntelArchitecture, PrecisionFormat
from torchbridge.config.settings import Settings

LEVELS = ("O0", "O1", "O2")
PRECISIONS = (PrecisionFormat.FP32, PrecisionFormat.BF16)


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
        fraction, level = self.memory_fraction, self.optimization_level
        self.require(0 < fraction <= 1, "memory_fraction must be in (0, 1]", fraction)
        self.require(level in LEVELS, "optimization_level must be O0, O1 or O2", level)
        self.require(self.device_id >= 0, "device_id must not be negative", self.device_id)
        precision = self.default_precision
        known = precision in PRECISIONS
        self.require(known, "default_precision must be fp32 or bf16", precision)
