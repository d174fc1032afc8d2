"""Check by three checks whether this machine can do what a configuration requests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchbridge.config import Config
from torchbridge.hardware import VENDORS, Hardware
from torchbridge.validation.findings import Check, Finding, failed, passed, warned


@dataclass(frozen=True, slots=True)
class RequestedConfiguration:
    """A configuration with the machine to check it on."""

    config: Config
    device: torch.device
    hardware: Hardware


def precision(request: RequestedConfiguration) -> Finding:
    """Check that the device has the TF32 that the settings allow."""
    if request.config.precision.allow_tf32 and not request.hardware.has("tf32"):
        return warned(f"{request.hardware.target} has no TF32", "leave allow_tf32 off")
    text = "TF32" if request.config.precision.allow_tf32 else "float32"
    return passed(f"products of float32 are made in {text}")


def memory(request: RequestedConfiguration) -> Finding:
    """Check that the fraction and the margin leave 256 MiB."""
    share = _fraction(request)
    room = request.hardware.memory_bytes * share / request.config.memory.safety_margin
    details = {"room_bytes": room, "fraction": share}
    if 0 < room < 2**28:
        message = f"{room / 2**20:.0f} MiB are left by fraction and margin"
        return failed(message, "raise memory_fraction", **details)
    text = f"{room / 2**30:.1f} GiB" if room else "an unknown size"
    return passed(f"{text} to plan with", **details)


def _fraction(request: RequestedConfiguration) -> float:
    group = getattr(request.config.hardware, VENDORS[request.hardware.vendor].backend, None)
    return 1.0 if group is None else group.memory_fraction


def hardware(request: RequestedConfiguration) -> Finding:
    """Check that the requested backend is this machine's and supports its settings."""
    asked, found = request.config.hardware, request.hardware
    chosen, own = asked.chosen(found), asked.update(backend=None).chosen(found)
    if chosen not in (own, "cpu"):
        message = f"asked for {chosen.value}, this is {found.vendor} ({found.target})"
        return failed(message, "leave backend open, or use such a machine")
    nvidia, *_ = (one.on(found) for one in (asked.nvidia, asked.amd, asked.intel))  # may refuse
    count = torch.cuda.device_count() if request.device.type == "cuda" else 1
    if (asked.device_id or 0) >= count:
        return failed(f"device_id {asked.device_id} of {count} devices", "use a smaller one")
    details = {"backend": chosen.value, "fp8": nvidia.fp8_enabled, "devices": count}
    return passed(f"{chosen.value} on {found.name}", **details)


# By the group of settings that they are about.
CHECKS: tuple[Check, ...] = (precision, memory, hardware)
