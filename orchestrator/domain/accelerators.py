"""Models of accelerators, and the devices of the clouds' instance types, as far as verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ARCHITECTURES = {
    "7.0": "Volta",
    "7.5": "Turing",
    "8.0": "Ampere",
    "8.6": "Ampere",
    "8.7": "Ampere",
    "8.9": "Ada Lovelace",
    "9.0": "Hopper",
    "10.0": "Blackwell",
    "10.3": "Blackwell",
    "12.0": "Blackwell",
}
"""NVIDIA's architectures by compute capability."""


def architecture(capability: str) -> str:
    """Return NVIDIA's architecture of a compute capability; empty if none is recorded."""
    return _ARCHITECTURES.get(capability, "")


@dataclass(frozen=True, slots=True)
class AcceleratorModel:
    """A model of accelerator."""

    name: str
    capability: str = ""
    """NVIDIA's compute capability; empty for other vendors."""
    memory_gb: int = 0
    """Marketed memory; 0 if it is not recorded."""
    instances: tuple[str, ...] = ()
    """Prefixes of its instance types."""

    @property
    def architecture(self) -> str:
        """Return the architecture of the accelerator's compute capability."""
        return architecture(self.capability)


MODELS = (
    AcceleratorModel("A10G", "8.6", 24, ("g5.",)),
    AcceleratorModel("L4", "8.9", 24, ("g2-standard-", "g6.", "gr6.")),
    AcceleratorModel("L40S", "8.9", 48, ("g6e.",)),
    AcceleratorModel("T4", "7.5", 16, ("g4dn.",)),
    AcceleratorModel("V100", "7.0", 16, ("p3.",)),
    AcceleratorModel("A100", "8.0", 40, ("p4d.", "a2-highgpu-")),
    AcceleratorModel("H100", "9.0", 80, ("p5.", "a3-highgpu-")),
    AcceleratorModel("H200", "9.0", 141, ("p5e.", "p5en.", "a3-ultragpu-")),
    AcceleratorModel("B200", "10.0"),
    AcceleratorModel("MI250"),
    AcceleratorModel("MI300X"),
    AcceleratorModel("TPU v5e"),
    AcceleratorModel("TPU v5p"),
    AcceleratorModel("TPU v6e"),
)
"""Every known model."""
NAMES: Mapping[str, str] = {model.name.lower().removeprefix("tpu "): model.name for model in MODELS}
"""Models by the word of a platform's id: ``h100``, ``v5e``."""


@dataclass(frozen=True, slots=True)
class InstanceDevice:
    """The accelerators of an instance type, as far as they were verified."""

    name: str
    compute_capability: str = ""


INSTANCE_DEVICES: Mapping[str, InstanceDevice] = {
    "g4dn.xlarge": InstanceDevice("Tesla T4", "7.5"),
    "g5.xlarge": InstanceDevice("NVIDIA A10G", "8.6"),
    "g6.xlarge": InstanceDevice("NVIDIA L4", "8.9"),
    "g6e.xlarge": InstanceDevice("NVIDIA L40S", "8.9"),
    "p4d.24xlarge": InstanceDevice("NVIDIA A100-SXM4-40GB", "8.0"),
    "p4de.24xlarge": InstanceDevice("NVIDIA A100-SXM4-80GB", "8.0"),
    "p5.4xlarge": InstanceDevice("NVIDIA H100 80GB HBM3", "9.0"),
    "p5.48xlarge": InstanceDevice("NVIDIA H100 80GB HBM3", "9.0"),
    "g2-standard-4": InstanceDevice("NVIDIA L4", "8.9"),
    "g2-standard-8": InstanceDevice("NVIDIA L4", "8.9"),
    "g2-standard-12": InstanceDevice("NVIDIA L4", "8.9"),
    "v5litepod-1": InstanceDevice("TPU v5e"),
    "v5litepod-4": InstanceDevice("TPU v5e"),
    "v5litepod-8": InstanceDevice("TPU v5e"),
}
"""Devices by instance type (for TPUs: accelerator type)."""
