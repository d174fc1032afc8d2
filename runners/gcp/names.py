"""Names and ids: deterministic, and within what Compute Engine allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid5

from runners.google.names import NAME, named

_REQUESTS = UUID("6f0c3c5e-9f0d-5d0b-8f0e-2b7a4a1d9c11")
"""Namespace of our request ids; fixed for ever."""
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
    return ResourceId(scope, collection, name) if NAME.fullmatch(name) else None


def instance_name(token: str) -> str:
    """The name of the one machine of a token, in whatever zone."""
    return named(token)


def request_id(token: str, zone: str) -> str:
    """The same for every repetition of one launch."""
    return str(uuid5(_REQUESTS, f"{token}|{zone}"))


def network_tag(project: str) -> str:
    """What our machines carry so that our firewall rules, and no others, are for them."""
    return named(project)


def last(link: str) -> str:
    """The last part of a resource's link."""
    return link.rpartition("/")[2]
