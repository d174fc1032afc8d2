"""Names, labels and ids: deterministic, and within what Compute Engine allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID, uuid5

_REQUESTS = UUID("6f0c3c5e-9f0d-5d0b-8f0e-2b7a4a1d9c11")
"""Namespace of our request ids; fixed for ever."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
KINDS: Mapping[str, str] = {
    "instances": "machine",
    "disks": "disk",
    "firewalls": "firewall",
    "addresses": "address",
}
"""Collection of the API -> `Machine.kind`."""


@dataclass(frozen=True, slots=True)
class ResourceId:
    """A machine's id, or another resource's: ``us-central1-a/instances/name``."""

    scope: str
    """A zone, a region, or ``global``."""
    collection: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.collection}/{self.name}"

    @property
    def kind(self) -> str:
        """As `Machine.kind` has it."""
        return KINDS[self.collection]


def parse_id(machine_id: str) -> ResourceId | None:
    """The parts of an id; None for what can be none of ours."""
    parts = machine_id.split("/")
    if len(parts) != len(("scope", "collection", "name")) or parts[1] not in KINDS:
        return None
    scope, collection, name = parts
    return ResourceId(scope, collection, name) if _NAME.fullmatch(name) else None


def instance_name(token: str) -> str:
    """The name of the one machine of a token, in whatever zone."""
    return named(token)


def named(word: str) -> str:
    """``seatrial-<word>`` where that is allowed, else with what makes it so and unambiguous."""
    plain = f"seatrial-{word}"
    if _NAME.fullmatch(plain):
        return plain
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:32]
    digest = sha256(word.encode()).hexdigest()[:16]
    return "-".join(part for part in ("seatrial", slug, digest) if part)


def request_id(token: str, zone: str) -> str:
    """The same for every repetition of one launch."""
    return str(uuid5(_REQUESTS, f"{token}|{zone}"))


def network_tag(project: str) -> str:
    """What our machines carry so that our firewall rules, and no others, are for them."""
    return named(project)


def firewall_name(project: str, cidr: str) -> str:
    """The rule that lets one network in; another network has another rule."""
    suffix = sha256(cidr.encode()).hexdigest()[:8]
    plain = f"{named(project)}-{suffix}"
    return plain if len(plain) <= 58 else f"{plain[:49].rstrip('-')}-{suffix}"


def label(value: str) -> str:
    """A label's value: the value itself, or a digest of what labels cannot carry."""
    return value if _LABEL.fullmatch(value) else sha256(value.encode()).hexdigest()[:32]


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as labels, whose keys are allowed already."""
    return {key: label(value) for key, value in tags.items()}


def tags(found: Mapping[str, str]) -> dict[str, str]:
    """Ours among the labels of a resource."""
    return {key: value for key, value in found.items() if key.startswith("seatrial-")}


def last(link: str) -> str:
    """The last part of a resource's link."""
    return link.rpartition("/")[2]


def is_zone(location: str) -> bool:
    """Whether it is written like ``us-central1-a``."""
    return _ZONE.fullmatch(location) is not None


def is_region(location: str) -> bool:
    """Whether it is written like ``us-central1``."""
    return _REGION.fullmatch(location) is not None


def region_of(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]
