"""Settings of NVIDIA's devices."""

from __future__ import annotations

from dataclasses import dataclass

from torchbridge.config.enums import NVIDIAArchitecture
from torchbridge.config.settings import Settings
from torchbridge.hardware import Hardware, nvidia_architecture_has, probe


def detect_architecture(hardware: Hardware | None = None) -> NVIDIAArchitecture:
    """By compute capability; `auto` where the hardware (this machine's) is not NVIDIA's.

    Raises:
        ValueError: an NVIDIA device older than Pascal.
    """
    hardware = hardware or probe()
    if hardware.vendor != "nvidia":
        return NVIDIAArchitecture.AUTO
    if hardware.architecture == "unsupported":
        raise ValueError(f"{hardware.target} is older than Pascal (sm_60), the oldest supported")
    return NVIDIAArchitecture(hardware.architecture)


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
        fraction = self.memory_fraction
        self.require(0 < fraction <= 1, "memory_fraction must be in (0, 1]", fraction)
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
