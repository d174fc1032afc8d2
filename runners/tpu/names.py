"""Names of resources: ids from the launch token, labels from tags, and machine ids."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from hashlib import sha256

from runners.google.names import PREFIX, named

QUEUED = "queuedResources"
NODES = "nodes"
_TOKEN = re.compile(r"[a-z0-9-]{0,31}[a-z0-9]")
_REQUESTS = uuid.UUID("5f7a5c36-2c1e-5d0b-9c5e-6d2f0a5f7d11")


@dataclass(frozen=True, slots=True)
class Handle:
    """A node or a queued resource, with its zone."""

    zone: str
    collection: str
    """``nodes`` or ``queuedResources``."""
    id: str

    @property
    def machine_id(self) -> str:
        """The machine's id, ``us-west4-a/nodes/x``."""
        return f"{self.zone}/{self.collection}/{self.id}"

    def path(self, project: str) -> str:
        """Return the resource's name in the API."""
        return f"{location(project, self.zone)}/{self.collection}/{self.id}"

    def beside(self, collection: str) -> Handle:
        """Return the node of a queued resource, or the other way round; both have one id."""
        return Handle(self.zone, collection, self.id)


def parse(machine_id: str) -> Handle | None:
    """Return the handle in a machine's id; None for other ids."""
    parts = machine_id.split("/")
    if len(parts) != 3 or parts[1] not in (NODES, QUEUED) or not all(parts):
        return None
    return Handle(*parts)


def handle_of(path: str) -> Handle:
    """Return the handle in the API's full name, ``projects/p/locations/z/nodes/x``."""
    parts = path.split("/")
    return Handle(parts[3], parts[4], parts[5])


def location(project: str, zone: str) -> str:
    """Return the parent of a zone's resources; the zone ``-`` means every zone."""
    return f"projects/{project}/locations/{zone}"


def resource_id(project: str, token: str) -> str:
    """Return a token's resource id (RFC 1035), which prevents a second creation in the zone."""
    short = token if _TOKEN.fullmatch(token) else sha256(token.encode()).hexdigest()[:26]
    return f"{PREFIX}{project[:20].strip('-')}-{short}"


def token_in(resource: str, project: str) -> str | None:
    """Return the token in a resource id that `resource_id` made for the project; else None."""
    start = resource_id(project, "").rpartition("-")[0]
    found = re.fullmatch(rf"{re.escape(start)}-([0-9a-z]{{26}}(?:-\d+){{0,2}})", resource)
    return found[1] if found else None


def request_id(project: str, token: str, zone: str) -> str:
    """Return the request id by which the API recognises a repeated creation for a while."""
    return str(uuid.uuid5(_REQUESTS, f"{project}/{zone}/{token}"))


def network_tag(project: str) -> str:
    """Return the network tag that applies only Seatrial's firewall rules to its machines."""
    # With a digest, since another project may be called "<project>-tpu": its virtual machines
    # would carry this tag, and its rules would have the names of ours.
    return named(f"{project}-tpu-{sha256(project.encode()).hexdigest()[:8]}")
