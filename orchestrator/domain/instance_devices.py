"""The devices of the clouds' instance types, as far as they were verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
