"""Platform configuration of the provider ``aws``, checked against the shipped table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.domain.document_problems import Problem, nearest
from orchestrator.domain.machine import ConfigError, PlatformError, platform_problems
from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.prices import CATALOGUE, Price

if TYPE_CHECKING:
    from botocore.loaders import Loader

DEFAULT_REGIONS = 3
MARKETS = ("on-demand", "spot")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """The properties of an instance type."""

    name: str
    vcpus: int
    architecture: str
    """``x86_64`` or ``arm64``."""
    vendor: str = ""
    """Vendor of its GPUs, in lower case; empty without GPUs."""
    gpu: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class InstanceTable:
    """The shipped table of types and prices."""

    as_of: datetime
    types: Mapping[str, InstanceType]
    prices: tuple[Price, ...]
    regions: tuple[str, ...]
    """Regions with an on-demand price, the usual ones first."""
    disk_usd_per_gb_hour: Decimal
    address_usd_per_hour: Decimal

    @property
    def default_regions(self) -> tuple[str, ...]:
        """Regions of a platform that names no location."""
        return self.regions[:DEFAULT_REGIONS]


@cache
def shipped() -> InstanceTable:
    """Read the shipped table, once."""
    text = Path(__file__).with_name("prices.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    as_of = datetime.combine(cast("date", read["read_on"]), datetime.min.time(), UTC)
    return InstanceTable(
        as_of=as_of,
        types={name: InstanceType(name=name, **facts) for name, facts in read["types"].items()},
        prices=tuple(
            Price("aws", item, region, market, Decimal(usd), as_of, CATALOGUE)
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
OPTIONS = frozenset({"subnet", "security_group", "kms_key", "tags", "instance_profile"})
_PROFILE = re.compile(r"[\w+=,.@-]{1,128}|arn:aws[\w-]*:iam::\d{12}:instance-profile/[\w+=,.@/-]+")
_GROUP = re.compile(r"sg-[0-9a-f]{8}([0-9a-f]{9})?")
_TAG = re.compile(r"(?P<key>[\w .:/+@-]{1,128})=(?P<value>[\w .:/+@-]{0,256})")
_AMI = re.compile(r"ami-[0-9a-f]{8}([0-9a-f]{9})?")
_LOCATION = re.compile(r"(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)(?P<letter>[a-z]?)")
# Words that vendors put before a device's name and that do not identify it.
_NOT_A_NAME = frozenset({"nvidia", "amd", "intel", "tesla", "instinct", "geforce", "gpu"})


@dataclass(frozen=True, slots=True)
class Location:
    """A region, or one zone of it."""

    region: str
    zone: str = ""


def is_called(device: Accelerator, name: str) -> bool:
    """Return whether the API's name of a GPU is the accelerator's: `L4` is not `L40S`."""
    words = _words(name)
    return bool(words) and words <= _words(device.name)


def may_match(device: Accelerator, name: str) -> bool:
    """Return whether the API's name may be the accelerator's: `is_called`, or only a vendor."""
    return is_called(device, name) or (bool(name) and not _words(name))


@dataclass(frozen=True, slots=True)
class Ec2PlatformConfig:
    """A platform's requirements of EC2."""

    instance_types: tuple[str, ...]
    device: Accelerator | None
    locations: tuple[Location, ...]
    cheapest: bool
    markets: tuple[str, ...]
    image: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    connect: str = "public"
    disk_gb: int = DISK_GB
    subnets: tuple[str, ...] = ()
    security_group: str = ""
    """Id of the user's security group; empty for the project's own group."""
    kms_key: str = ""
    """The key of the disk's encryption; empty for the account's default."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the account requires, in addition to Seatrial's."""
    instance_profile: str = ""
    """Name or ARN of the IAM instance profile; empty for none."""

    @property
    def public(self) -> bool:
        """Whether instances get a public address."""
        return self.connect == "public"

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of the locations, each once, in their order."""
        return tuple(dict.fromkeys(location.region for location in self.locations))


def parse_platform(platform: Platform) -> Ec2PlatformConfig:
    """Parse and check a platform for EC2. Raises PlatformError, ConfigError."""
    types, device = _instance_types(platform), _device(platform)
    if not types and device is None:
        raise ConfigError("instance_type: name one, or an accelerator to choose it by")
    return Ec2PlatformConfig(
        instance_types=types,
        device=device,
        locations=_locations(platform),
        cheapest=platform.locations == CHEAPEST,
        markets=tuple(dict.fromkeys(platform.market or ("on-demand",))),
        image=_image(platform),
        connect=platform.connect or "public",
        disk_gb=_disk_gb(platform),
        subnets=_listed(platform, "subnet"),
        security_group=_security_group(platform),
        kms_key=(platform.options or {}).get("kms_key", "").strip(),
        tags=_tags(platform),
        instance_profile=_instance_profile(platform),
    )


def check_platform(platform: Platform) -> tuple[Problem, ...]:
    """Return the problems of a platform, by the shipped table and botocore's service model."""
    readers = (
        _instance_types,
        _device,
        _locations,
        _image,
        _disk_gb,
        _options,
        _tags,
        _security_group,
        _instance_profile,
    )
    return platform_problems(platform, readers)


def _texts(given: str | tuple[str, ...] | None, *path: str) -> tuple[str, ...]:
    if given is None:
        return ()
    texts = (given,) if isinstance(given, str) else given
    if not texts:
        raise PlatformError(path, "the list is empty")
    if not all(text.strip() for text in texts):
        raise PlatformError(path, f"{texts!r} holds an empty text")
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _instance_types(platform: Platform) -> tuple[str, ...]:
    types = _texts(platform.instance_type, "instance_type")
    for index, name in enumerate(types):
        if name not in shipped().types and name not in _service_types():
            hint = nearest(name, _alike(name, {*shipped().types, *_service_types()}))
            raise PlatformError(
                ("instance_type", index) if len(types) > 1 else ("instance_type",),
                f"boto3 {version('boto3')} knows no EC2 instance type {name!r}{hint}",
            )
    return types


def _alike(name: str, types: Iterable[str]) -> tuple[str, ...]:
    """Return types of the same family or size, as suggestions for a wrong name."""
    family, _, size = name.partition(".")
    same = tuple(one for one in types if one.startswith(f"{family}.") or one.endswith(f".{size}"))
    return same or tuple(shipped().types)


def _device(platform: Platform) -> Accelerator | None:
    asked = platform.accelerator
    if asked is not None and asked.count < 1:
        raise PlatformError(("accelerator", "count"), f"{asked.count!r} is no number of devices")
    return asked


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s_/-]+", name.casefold().strip())) - _NOT_A_NAME - {""}


def _locations(platform: Platform) -> tuple[Location, ...]:
    if platform.locations == CHEAPEST:
        return tuple(Location(region) for region in shipped().regions)
    listed = _texts(platform.locations, "locations") or shipped().default_regions
    return tuple(_location(text, index) for index, text in enumerate(listed))


def _location(text: str, index: int) -> Location:
    parts = _LOCATION.fullmatch(text)
    region = parts["region"] if parts else text
    if parts is None or (region not in shipped().regions and region not in _service_regions()):
        hint = nearest(region, {*shipped().regions, *_service_regions()})
        raise PlatformError(
            ("locations", index),
            f"{text!r} is neither a region (us-east-1) nor a zone (us-east-1a) of AWS{hint}",
        )
    return Location(region, text if parts["letter"] else "")


@cache
def _service_types() -> frozenset[str]:
    """Return every instance type in the service model of the installed botocore."""
    model = _loader().load_service_model("ec2", "service-2")
    return frozenset(model["shapes"]["InstanceType"]["enum"])


@cache
def _service_regions() -> frozenset[str]:
    """Return every region of the public partition, from the endpoints of the installed botocore."""
    partitions = _loader().load_data("endpoints")["partitions"]
    return frozenset(
        region for one in partitions if one["partition"] == "aws" for region in one["regions"]
    )


def _loader() -> Loader:
    # botocore takes a while to load; values of the shipped table do not need it.
    found: Loader = import_module("botocore.loaders").create_loader()
    return found


def _image(platform: Platform) -> dict[str, tuple[str, ...]]:
    asked = platform.image or {}
    unknown = sorted(asked.keys() - IMAGE_KEYS)
    if unknown:
        raise PlatformError(
            ("image", unknown[0]),
            f"not for aws, where an image has {', '.join(sorted(IMAGE_KEYS))}",
        )
    found = {key: _texts(value, "image", key) for key, value in asked.items()}
    if len(found.keys() & {"ssm", "ami", "name"}) > 1:
        raise PlatformError(("image",), "one of ssm, ami and name, not several")
    for ami in found.get("ami", ()):
        if not _AMI.fullmatch(ami):
            raise PlatformError(("image", "ami"), f"{ami!r} is no AMI id (ami-0123456789abcdef0)")
    return found


def _disk_gb(platform: Platform) -> int:
    size = DISK_GB if platform.disk_gb is None else platform.disk_gb
    if not 1 <= size <= 16384:
        raise PlatformError(("disk_gb",), f"{size!r} is no size from 1 to 16384")
    return size


def _options(platform: Platform) -> None:
    for name in (platform.options or {}).keys() - OPTIONS:
        raise PlatformError(
            ("options", name), f"aws has no option {name!r}{nearest(name, OPTIONS)}"
        )


def _listed(platform: Platform, option: str) -> tuple[str, ...]:
    """Return the values of a comma-separated option."""
    _options(platform)
    parts = (platform.options or {}).get(option, "").split(",")
    return tuple(part.strip() for part in parts if part.strip())


def _security_group(platform: Platform) -> str:
    named = (platform.options or {}).get("security_group", "").strip()
    if named and not _GROUP.fullmatch(named):
        raise PlatformError(
            ("options", "security_group"), f"{named!r} is no id (sg-0123456789abcdef0)"
        )
    if named and not _listed(platform, "subnet"):
        raise PlatformError(
            ("options", "security_group"), "a group belongs to a VPC: name options.subnet too"
        )
    return named


def _tags(platform: Platform) -> dict[str, str]:
    found = {}
    for text in _listed(platform, "tags"):
        parts = _TAG.fullmatch(text)
        if parts is None or parts["key"].startswith(("seatrial-", "aws:")):
            raise PlatformError(
                ("options", "tags"), f"{text!r} is no tag of yours: KEY=VALUE, KEY=VALUE"
            )
        found[parts["key"]] = parts["value"]
    return found


def _instance_profile(platform: Platform) -> str:
    named = (platform.options or {}).get("instance_profile", "").strip()
    if named and not _PROFILE.fullmatch(named):
        raise PlatformError(
            ("options", "instance_profile"),
            f"{named!r} is neither the name nor the ARN of an instance profile",
        )
    return named
