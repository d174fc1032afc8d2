"""Platform configuration of the provider ``gcp``: its machine types, checked without a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Accelerator, Platform
from runners.google.account import DEFAULT_USER
from runners.google.names import is_region, is_zone


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What a machine type has; its GPUs come with it and are never asked for beside it."""

    accelerator: str
    """As the API calls it, ``nvidia-l4``."""
    count: int
    cpus: int
    memory_gib: int

    @property
    def family(self) -> str:
        """``g2``, as price lists and quotas have it."""
        return _FAMILY.get(self.accelerator, "")

    @property
    def accelerator_sku(self) -> str:
        """As the price catalogue calls it."""
        return self.accelerator.replace("-", " ")

    @property
    def quota(self) -> str:
        """The quota metric of its GPUs, as an on-demand machine takes it."""
        return f"{self.accelerator.replace('-', '_').upper()}_GPUS"


_FAMILY = {"nvidia-l4": "g2"}
KNOWN: Mapping[str, MachineShape] = {
    "g2-standard-4": MachineShape("nvidia-l4", 1, 4, 16),
    "g2-standard-8": MachineShape("nvidia-l4", 1, 8, 32),
    "g2-standard-12": MachineShape("nvidia-l4", 1, 12, 48),
    "g2-standard-16": MachineShape("nvidia-l4", 1, 16, 64),
    "g2-standard-32": MachineShape("nvidia-l4", 1, 32, 128),
    "g2-standard-24": MachineShape("nvidia-l4", 2, 24, 96),
    "g2-standard-48": MachineShape("nvidia-l4", 4, 48, 192),
    "g2-standard-96": MachineShape("nvidia-l4", 8, 96, 384),
}


def types_with(accelerator: str, count: int) -> tuple[str, ...]:
    """The known types with exactly so many of an accelerator (``L4``), smallest first."""
    wanted = plain(accelerator)
    return tuple(
        name
        for name, shape in sorted(KNOWN.items(), key=lambda each: each[1].cpus)
        if shape.count == count and plain(shape.accelerator) == wanted
    )


def plain(accelerator: str) -> str:
    """Spellings made alike: ``NVIDIA L4``, ``nvidia-l4`` and ``L4`` are one."""
    words = re.sub(r"[^a-z0-9]+", "-", accelerator.lower()).strip("-")
    return words.removeprefix("nvidia-").removeprefix("tesla-")


DEFAULT_LOCATIONS = ("us-central1", "us-east1", "us-west1")
DEFAULT_DISK_GB = 150


@dataclass(frozen=True, slots=True)
class PlatformConfig:
    """What a platform asks of Compute Engine."""

    types: tuple[str, ...]
    """Empty where only an accelerator is named, and no known type has it."""
    accelerator: str
    """Vendor and name; empty where none is named."""
    count: int
    locations: tuple[str, ...]
    """Empty for `cheapest`."""
    markets: tuple[str, ...]
    disk_gb: int
    is_public: bool
    image: Mapping[str, str | tuple[str, ...]]

    @property
    def user(self) -> str:
        """Who logs in."""
        return "".join(texts(self.image.get("user"))) or DEFAULT_USER


def parse_platform(platform: Platform) -> PlatformConfig:
    """Return what the platform asks of Compute Engine. Raises ConfigError, naming the key."""
    types, device = texts(platform.instance_type), platform.accelerator
    if not types and device is None:
        raise ConfigError("platform: name an instance_type (g2-standard-4) or an accelerator (L4)")
    if device is not None:
        for each in types:
            _require_device(each, device)
        types = types or (
            types_with(device.name, device.count) if device.vendor == "nvidia" else ()
        )
    return PlatformConfig(
        types=types,
        accelerator=f"{device.vendor} {device.name}" if device else "",
        count=device.count if device else 1,
        locations=_locations(platform.locations),
        markets=platform.market or ("on-demand",),
        disk_gb=platform.disk_gb or DEFAULT_DISK_GB,
        is_public=platform.connect != "private",
        image=platform.image or {},
    )


def texts(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return one text or several as a tuple; empty for None."""
    return (given,) if isinstance(given, str) else given or ()


def _require_device(instance_type: str, device: Accelerator) -> None:
    shape = KNOWN.get(instance_type)
    if shape is None:
        return
    if (plain(device.name), device.count) != (plain(shape.accelerator), shape.count):
        raise ConfigError(
            f"instance_type: {instance_type} has {shape.count} x {shape.accelerator}, "
            f"and the accelerator asked for is {device.count} x {device.name}"
        )


def _locations(asked: tuple[str, ...] | str | None) -> tuple[str, ...]:
    if asked == "cheapest":
        return ()
    locations = texts(asked) or DEFAULT_LOCATIONS
    for location in locations:
        if not is_zone(location) and not is_region(location):
            raise ConfigError(
                f"locations: {location!r} is neither a region (us-central1) nor a zone "
                "(us-central1-a) of Google Cloud"
            )
    return locations
