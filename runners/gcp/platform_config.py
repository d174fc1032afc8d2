"""Platform configuration of the provider ``gcp``, checked without asking Google."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Accelerator, Platform
from runners.gcp.machines import KNOWN, plain, types_with
from runners.google.metadata import DEFAULT_USER
from runners.google.names import is_region, is_zone

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
