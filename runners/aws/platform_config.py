"""Reads a platform's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.machine import ConfigError
from runners.aws.shipped_table import MARKETS, shipped

CHEAPEST = "cheapest"
DISK_GB = 150
IMAGE_KEYS = frozenset({"ssm", "ami", "name", "owner", "user"})
OPTIONS = frozenset({"subnet"})
_LOCATION = re.compile(r"(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)(?P<letter>[a-z]?)")
# What vendors put before the name of a device, and says nothing about which one it is.
_NOT_A_NAME = frozenset({"nvidia", "amd", "intel", "tesla", "instinct", "geforce", "gpu"})


@dataclass(frozen=True, slots=True)
class Location:
    """A region, or one zone of it."""

    region: str
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerator that a platform asks for."""

    vendor: str
    name: str
    count: int

    def is_called(self, name: str) -> bool:
        """Whether the API's name of a GPU means this one: `L4` is not `L40S`."""
        words = _words(name)
        return bool(words) and words <= _words(self.name)

    def may_be(self, name: str) -> bool:
        """As `is_called`; true where the API knows no name but the vendor's."""
        return self.is_called(name) or (bool(name) and not _words(name))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A platform, as far as AWS is concerned."""

    instance_types: tuple[str, ...]
    device: Device | None
    locations: tuple[Location, ...]
    cheapest: bool
    markets: tuple[str, ...]
    image: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    public: bool = True
    disk_gb: int = DISK_GB
    subnets: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[str, ...]:
        """Each once, in the order of the locations."""
        return tuple(dict.fromkeys(location.region for location in self.locations))


def read(platform: Mapping[str, object]) -> Wanted:
    """What the platform asks for. Raises ConfigError, naming the key."""
    types, device = _texts(platform, "instance_type"), _device(platform)
    if not types and device is None:
        raise ConfigError("instance_type: name one, or an accelerator to choose it by")
    cheapest = platform.get("locations") == CHEAPEST
    return Wanted(
        instance_types=types,
        device=device,
        locations=_everywhere() if cheapest else _locations(platform),
        cheapest=cheapest,
        markets=_markets(platform),
        image=_image(platform),
        public=_public(platform),
        disk_gb=_disk_gb(platform),
        subnets=_subnets(platform),
    )


def _texts(entry: Mapping[str, object], key: str, *, at: str = "") -> tuple[str, ...]:
    value = entry.get(key)
    if value is None:
        return ()
    listed = (value,) if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed:
        raise ConfigError(f"{at}{key}: neither text nor a list of texts")
    if not all(isinstance(text, str) and text.strip() for text in listed):
        raise ConfigError(f"{at}{key}: {listed!r} holds something that is no text")
    return tuple(dict.fromkeys(text.strip() for text in listed))


def _device(platform: Mapping[str, object]) -> Device | None:
    entry = platform.get("accelerator")
    if entry is None:
        return None
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ConfigError("accelerator: a mapping with vendor and name")
    count = entry.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"accelerator.count: {count!r} is no number of devices")
    vendor = str(entry.get("vendor", "")).casefold()
    return Device(vendor=vendor, name=str(entry["name"]), count=count)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s_/-]+", name.casefold().strip())) - _NOT_A_NAME - {""}


def _everywhere() -> tuple[Location, ...]:
    return tuple(Location(region) for region in shipped().regions)


def _locations(platform: Mapping[str, object]) -> tuple[Location, ...]:
    listed = _texts(platform, "locations")
    return tuple(map(_location, listed or shipped().default_regions))


def _location(text: str) -> Location:
    parts = _LOCATION.fullmatch(text)
    if parts is None:
        raise ConfigError(
            f"locations: {text!r} is neither a region (us-east-1) nor a zone (us-east-1a) of AWS"
        )
    return Location(parts["region"], text if parts["letter"] else "")


def _markets(platform: Mapping[str, object]) -> tuple[str, ...]:
    listed = _texts(platform, "market") or ("on-demand",)
    for market in listed:
        if market not in MARKETS:
            raise ConfigError(f"market: {market!r} is none of {', '.join(MARKETS)}")
    return listed


def _image(platform: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    entry = platform.get("image")
    if entry is None:
        return {}
    if not isinstance(entry, Mapping):
        raise ConfigError("image: a mapping with ssm, ami or name")
    unknown = sorted(str(key) for key in entry if key not in IMAGE_KEYS)
    if unknown:
        raise ConfigError(
            f"image.{unknown[0]}: not for aws, where an image has {', '.join(sorted(IMAGE_KEYS))}"
        )
    found = {str(key): _texts(entry, str(key), at="image.") for key in entry}
    if len(found.keys() & {"ssm", "ami", "name"}) > 1:
        raise ConfigError("image: one of ssm, ami and name, not several")
    return found


def _public(platform: Mapping[str, object]) -> bool:
    connect = platform.get("connect") or "public"
    if connect not in ("public", "private"):
        raise ConfigError(f"connect: {connect!r} is neither public nor private")
    return connect == "public"


def _disk_gb(platform: Mapping[str, object]) -> int:
    size = platform.get("disk_gb")
    if size is None:
        return DISK_GB
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 16384:
        raise ConfigError(f"disk_gb: {size!r} is no size from 1 to 16384")
    return size


def _subnets(platform: Mapping[str, object]) -> tuple[str, ...]:
    options = platform.get("options") or {}
    if not isinstance(options, Mapping):
        raise ConfigError("options: not a mapping")
    unknown = sorted(str(key) for key in options if key not in OPTIONS)
    if unknown:
        raise ConfigError(f"options.{unknown[0]}: aws knows {', '.join(sorted(OPTIONS))} only")
    text = str(options.get("subnet", ""))
    return tuple(part.strip() for part in text.split(",") if part.strip())
