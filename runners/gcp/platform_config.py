"""A platform of the matrix, read as Compute Engine needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.machine import ConfigError
from runners.gcp.machines import KNOWN, plain, types_with
from runners.gcp.prices import MARKETS
from runners.google.locations import is_region, is_zone
from runners.google.metadata import DEFAULT_USER

DEFAULT_LOCATIONS = ("us-central1", "us-east1", "us-west1")
DEFAULT_DISK_GB = 150


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a platform asks for."""

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
    image: Mapping[str, object]

    @property
    def user(self) -> str:
        """Who logs in."""
        return str(self.image.get("user", DEFAULT_USER))


def read_wishes(platform: Mapping[str, object]) -> Wishes:
    """Check a platform without asking anybody. Raises ConfigError."""
    accelerator = platform.get("accelerator")
    vendor, name, count = _accelerator(accelerator if isinstance(accelerator, Mapping) else {})
    types = _words(platform.get("instance_type"))
    if not types and not name:
        raise ConfigError("platform: name an instance_type (g2-standard-4) or an accelerator (L4)")
    for each in types:
        _agree(each, name, count)
    image = platform.get("image")
    return Wishes(
        types=types or (types_with(name, count) if vendor in ("", "nvidia") else ()),
        accelerator=f"{vendor} {name}".strip(),
        count=count,
        locations=_locations(platform.get("locations")),
        markets=_markets(platform.get("market")),
        disk_gb=int(str(platform.get("disk_gb") or DEFAULT_DISK_GB)),
        is_public=platform.get("connect", "public") != "private",
        image=image if isinstance(image, Mapping) else {},
    )


def _accelerator(said: Mapping[str, object]) -> tuple[str, str, int]:
    vendor, name = str(said.get("vendor") or ""), str(said.get("name") or "")
    return vendor, name, int(str(said.get("count") or 1))


def _agree(instance_type: str, accelerator: str, count: int) -> None:
    shape = KNOWN.get(instance_type)
    if shape is None or not accelerator:
        return
    if (plain(accelerator), count) != (plain(shape.accelerator), shape.count):
        raise ConfigError(
            f"instance_type: {instance_type} has {shape.count} x {shape.accelerator}, "
            f"and the accelerator asked for is {count} x {accelerator}"
        )


def _locations(said: object) -> tuple[str, ...]:
    if said == "cheapest":
        return ()
    locations = _words(said) or DEFAULT_LOCATIONS
    for location in locations:
        if not is_zone(location) and not is_region(location):
            raise ConfigError(
                f"locations: {location!r} is neither a region (us-central1) nor a zone "
                "(us-central1-a) of Google Cloud"
            )
    return locations


def _markets(said: object) -> tuple[str, ...]:
    markets = _words(said) or ("on-demand",)
    for market in markets:
        if market not in MARKETS:
            raise ConfigError(f"market: {market!r} is none of {', '.join(MARKETS)}")
    return markets


def _words(said: object) -> tuple[str, ...]:
    if isinstance(said, str):
        return (said,)
    return tuple(str(each) for each in said) if isinstance(said, list | tuple) else ()
