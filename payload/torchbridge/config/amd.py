"""Settings of AMD's devices."""

from __future__ import annotations

from dataclasses import dataclass

from torchbridge.config.enums import AMDArchitecture, OptimizationLevel, PrecisionFormat
from torchbridge.config.settings import Settings
from torchbridge.hardware import Hardware, probe

PRECISIONS = (PrecisionFormat.FP32, PrecisionFormat.BF16)


def detect_amd_architecture(hardware: Hardware | None = None) -> AMDArchitecture:
    """By ROCm's gcnArchName; `auto` where the hardware (this machine's) is not AMD's.

    Raises:
        ValueError: a chip that is not known here.
    """
    hardware = hardware or probe()
    if hardware.vendor != "amd":
        return AMDArchitecture.AUTO
    if hardware.architecture == "unsupported":
        raise ValueError(f"{hardware.target} is none of the known: {_known()}")
    return AMDArchitecture(hardware.architecture)


def _known() -> str:
    return ", ".join(one.value for one in AMDArchitecture if one is not AMDArchitecture.AUTO)


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
        fraction, precision = self.memory_fraction, self.default_precision
        self.require(0 < fraction <= 1, "memory_fraction must be in (0, 1]", fraction)
        self.require(self.device_id >= 0, "device_id must not be negative", self.device_id)
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
