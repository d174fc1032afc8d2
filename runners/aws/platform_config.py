"""Platform configuration of the provider ``aws``, checked against the shipped table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import cast

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.prices import Price

DEFAULT_REGIONS = 3
MARKETS = ("on-demand", "spot")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What an instance of a type has."""

    name: str
    vcpus: int
    architecture: str
    """``x86_64`` or ``arm64``."""
    vendor: str = ""
    """Of its GPUs, in lower case; empty where it has none."""
    gpu: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Everything that is shipped."""

    as_of: datetime
    types: Mapping[str, InstanceType]
    prices: tuple[Price, ...]
    regions: tuple[str, ...]
    """Those with an on-demand price, the usual ones first."""
    disk_usd_per_gb_hour: Decimal
    address_usd_per_hour: Decimal

    @property
    def default_regions(self) -> tuple[str, ...]:
        """Where to look for a platform that names no location."""
        return self.regions[:DEFAULT_REGIONS]


@cache
def shipped() -> Table:
    """Read the table that lies beside this module."""
    text = Path(__file__).with_name("prices.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    as_of = datetime.combine(cast("date", read["as_of"]), datetime.min.time(), UTC)
    return Table(
        as_of=as_of,
        types={name: InstanceType(name=name, **facts) for name, facts in read["types"].items()},
        prices=tuple(
            Price("aws", item, region, market, Decimal(usd), as_of, "table")
            for market in MARKETS
            for region, items in read[market].items()
            for item, usd in items.items()
        ),
        regions=tuple(read["on-demand"]),
        disk_usd_per_gb_hour=Decimal(read["disk_usd_per_gb_month"]) / read["hours_per_month"],
        address_usd_per_hour=Decimal(read["address_usd_per_hour"]),
    )


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
class PlatformConfig:
    """What a platform asks of EC2."""

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


def parse_platform(platform: Platform) -> PlatformConfig:
    """Return what the platform asks of EC2. Raises ConfigError, naming the key."""
    types, device = _texts(platform.instance_type, "instance_type"), _device(platform.accelerator)
    if not types and device is None:
        raise ConfigError("instance_type: name one, or an accelerator to choose it by")
    cheapest = platform.locations == CHEAPEST
    return PlatformConfig(
        instance_types=types,
        device=device,
        locations=_everywhere() if cheapest else _locations(platform),
        cheapest=cheapest,
        markets=tuple(dict.fromkeys(platform.market or ("on-demand",))),
        image=_image(platform.image or {}),
        public=platform.connect != "private",
        disk_gb=_disk_gb(platform.disk_gb),
        subnets=_subnets(platform.options or {}),
    )


def _texts(given: str | tuple[str, ...] | None, key: str) -> tuple[str, ...]:
    if given is None:
        return ()
    texts = (given,) if isinstance(given, str) else given
    if not texts:
        raise ConfigError(f"{key}: the list is empty")
    if not all(text.strip() for text in texts):
        raise ConfigError(f"{key}: {texts!r} holds an empty text")
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _device(asked: Accelerator | None) -> Device | None:
    if asked is None:
        return None
    if asked.count < 1:
        raise ConfigError(f"accelerator.count: {asked.count!r} is no number of devices")
    return Device(vendor=asked.vendor, name=asked.name, count=asked.count)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s_/-]+", name.casefold().strip())) - _NOT_A_NAME - {""}


def _everywhere() -> tuple[Location, ...]:
    return tuple(Location(region) for region in shipped().regions)


def _locations(platform: Platform) -> tuple[Location, ...]:
    listed = _texts(platform.locations, "locations")
    return tuple(map(_location, listed or shipped().default_regions))


def _location(text: str) -> Location:
    parts = _LOCATION.fullmatch(text)
    if parts is None:
        raise ConfigError(
            f"locations: {text!r} is neither a region (us-east-1) nor a zone (us-east-1a) of AWS"
        )
    return Location(parts["region"], text if parts["letter"] else "")


def _image(asked: Mapping[str, str | tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    unknown = sorted(asked.keys() - IMAGE_KEYS)
    if unknown:
        raise ConfigError(
            f"image.{unknown[0]}: not for aws, where an image has {', '.join(sorted(IMAGE_KEYS))}"
        )
    found = {key: _texts(value, f"image.{key}") for key, value in asked.items()}
    if len(found.keys() & {"ssm", "ami", "name"}) > 1:
        raise ConfigError("image: one of ssm, ami and name, not several")
    return found


def _disk_gb(size: int | None) -> int:
    if size is None:
        return DISK_GB
    if not 1 <= size <= 16384:
        raise ConfigError(f"disk_gb: {size!r} is no size from 1 to 16384")
    return size


def _subnets(options: Mapping[str, str]) -> tuple[str, ...]:
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise ConfigError(f"options.{unknown[0]}: aws knows {', '.join(sorted(OPTIONS))} only")
    parts = options.get("subnet", "").split(",")
    return tuple(part.strip() for part in parts if part.strip())
