"""Platform configuration of the provider ``gcp``: its machine types, checked without a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.document_problems import Path, Problem, nearest
from orchestrator.domain.machine import ConfigError, PlatformError, platform_problems
from orchestrator.domain.matrix import Platform, has_public_address
from runners.google.names import DEFAULT_USER, known_location, own_labels


@dataclass(frozen=True, slots=True)
class MachineShape:
    """The properties of a machine type; its GPUs are included and never requested separately."""

    accelerator: str
    """Name in the API, ``nvidia-l4``."""
    count: int
    cpus: int
    memory_gib: int

    @property
    def family(self) -> str:
        """The machine family as price lists and quotas name it: ``g2``."""
        return _FAMILY.get(self.accelerator, "")

    @property
    def accelerator_sku(self) -> str:
        """Name in the price catalogue."""
        return self.accelerator.replace("-", " ")

    @property
    def quota(self) -> str:
        """Quota metric that an on-demand machine's GPUs use."""
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
    """Return the known types with exactly `count` of an accelerator (``L4``), smallest first."""
    wanted = plain(accelerator)
    return tuple(
        name
        for name, shape in sorted(KNOWN.items(), key=lambda each: each[1].cpus)
        if shape.count == count and plain(shape.accelerator) == wanted
    )


def plain(accelerator: str) -> str:
    """Return a normal spelling: the same for ``NVIDIA L4``, ``nvidia-l4`` and ``L4``."""
    words = re.sub(r"[^a-z0-9]+", "-", accelerator.lower()).strip("-")
    return words.removeprefix("nvidia-").removeprefix("tesla-")


DEFAULT_LOCATIONS = ("us-central1", "us-east1", "us-west1")
DEFAULT_DISK_GB = 150
SMALLEST_DISK_GB, LARGEST_DISK_GB = 10, 65_536
"""Limits of a balanced persistent disk: cloud.google.com/compute/docs/disks."""
# cloud.google.com/compute/docs/machine-resource, of 2026-11.
_FAMILIES = frozenset(
    {
        *("a2", "a3", "a4", "a4x", "c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "e2", "f1", "g1"),
        *("g2", "g4", "h3", "h4d", "m1", "m2", "m3", "m4", "n1", "n2", "n2d", "n4", "n4a", "n4d"),
        *("t2a", "t2d", "x4", "z3"),
    }
)
_IMAGE_KEYS = frozenset({"family", "name", "project", "user"})
_WHOLE_FAMILIES = frozenset({"g2"})
"""Families of which `KNOWN` has every machine type."""


@dataclass(frozen=True, slots=True)
class GcpPlatformConfig:
    """A platform's requirements of Compute Engine."""

    types: tuple[str, ...]
    """Machine types; empty if only an accelerator is named, and no known type has it."""
    accelerator: str
    """Vendor and name of the accelerator; empty without one."""
    count: int
    locations: tuple[str, ...]
    """Zones and regions; empty for `cheapest`."""
    markets: tuple[str, ...]
    disk_gb: int
    is_public: bool
    has_tunnel: bool
    """Whether connections go through Google's Identity-Aware Proxy."""
    image: Mapping[str, str | tuple[str, ...]]
    network: str = ""
    """``global/networks/NAME``, or the full path of a shared network; empty for `default`."""
    subnetwork: str = ""
    """Name or full path; empty for the region's subnetwork of an auto-mode network."""
    kms_key: str = ""
    """Key of the disk's encryption, ``projects/P/locations/L/keyRings/R/cryptoKeys/K``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the project requires, in addition to Seatrial's."""

    @property
    def has_own_network(self) -> bool:
        """Whether the user's network is used, with the user's firewall rules."""
        return bool(self.network or self.subnetwork)

    @property
    def user(self) -> str:
        """The login user."""
        return "".join(texts(self.image.get("user"))) or DEFAULT_USER


def parse_platform(platform: Platform) -> GcpPlatformConfig:
    """Parse and check a platform for Compute Engine. Raises PlatformError, ConfigError."""
    types, device = _instance_types(platform), platform.accelerator
    if not types and device is None:
        raise ConfigError("platform: name an instance_type (g2-standard-4) or an accelerator (L4)")
    if not types and device is not None and device.vendor == "nvidia":
        types = types_with(device.name, device.count)
    return GcpPlatformConfig(
        types=types,
        accelerator=f"{device.vendor} {device.name}" if device else "",
        count=device.count if device else 1,
        locations=_locations(platform),
        markets=platform.market or ("on-demand",),
        disk_gb=_disk_gb(platform),
        is_public=has_public_address(platform),
        has_tunnel=platform.connect == "iap",
        image=_image(platform),
        network=_network(platform),
        subnetwork=_named(platform, "subnetwork", _SUBNETWORK),
        kms_key=_named(platform, "kms_key", _KEY),
        labels=own_labels(platform),
    )


def check_platform(platform: Platform) -> tuple[Problem, ...]:
    """Return the problems of a platform, by the tables of types, regions and disks."""
    return platform_problems(platform, (_instance_types, _locations, _image, _disk_gb, _options))


def texts(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return one text or several as a tuple; empty for None."""
    return (given,) if isinstance(given, str) else given or ()


def _image(platform: Platform) -> Mapping[str, str | tuple[str, ...]]:
    image = platform.image or {}
    for key in sorted(image.keys() - _IMAGE_KEYS):
        raise PlatformError(("image", key), f"gcp has no such key{nearest(key, _IMAGE_KEYS)}")
    return image


def _instance_types(platform: Platform) -> tuple[str, ...]:
    types, device = texts(platform.instance_type), platform.accelerator
    for index, name in enumerate(types):
        path: Path = ("instance_type", index) if len(types) > 1 else ("instance_type",)
        family = name.partition("-")[0]
        if family not in _FAMILIES or (family in _WHOLE_FAMILIES and name not in KNOWN):
            raise PlatformError(
                path, f"Compute Engine has no machine type {name!r}{nearest(name, KNOWN)}"
            )
        shape = KNOWN.get(name)
        if shape is None or device is None:
            continue
        if (plain(device.name), device.count) != (plain(shape.accelerator), shape.count):
            raise PlatformError(
                path,
                f"{name} has {shape.count} x {shape.accelerator}, "
                f"and the accelerator asked for is {device.count} x {device.name}",
            )
    return types


def _locations(platform: Platform) -> tuple[str, ...]:
    if platform.locations == "cheapest":
        return ()
    asked = texts(platform.locations) or DEFAULT_LOCATIONS
    return tuple(known_location(text, ("locations", index)) for index, text in enumerate(asked))


def _disk_gb(platform: Platform) -> int:
    size = DEFAULT_DISK_GB if platform.disk_gb is None else platform.disk_gb
    if not SMALLEST_DISK_GB <= size <= LARGEST_DISK_GB:
        raise PlatformError(
            ("disk_gb",), f"{size} is no size from {SMALLEST_DISK_GB} to {LARGEST_DISK_GB}"
        )
    return size


_OPTIONS = ("network", "subnetwork", "kms_key", "labels")
_NETWORK = re.compile(r"(projects/[a-z0-9:.-]+/global/networks/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBNETWORK = re.compile(
    r"(projects/[a-z0-9:.-]+/regions/[a-z0-9-]+/subnetworks/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
)
_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")


def _options(platform: Platform) -> None:
    for name in platform.options or {}:
        if name not in _OPTIONS:
            raise PlatformError(
                ("options", name), f"gcp has no option {name!r}{nearest(name, _OPTIONS)}"
            )
    _network(platform)
    _named(platform, "subnetwork", _SUBNETWORK)
    _named(platform, "kms_key", _KEY)
    own_labels(platform)


def _network(platform: Platform) -> str:
    named = _named(platform, "network", _NETWORK)
    return named if "/" in named or not named else f"global/networks/{named}"


def _named(platform: Platform, option: str, form: re.Pattern[str]) -> str:
    text = (platform.options or {}).get(option, "").strip()
    if text and not form.fullmatch(text):
        raise PlatformError(
            ("options", option), f"{text!r} is neither a name nor a path of Google Cloud"
        )
    return text
