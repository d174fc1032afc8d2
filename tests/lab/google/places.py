"""Where the lab's Google is, what it has there, and the addresses that it hands out."""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from dataclasses import dataclass, field


def _zones(spelled: str) -> tuple[str, ...]:
    found = []
    for part in spelled.split():
        region, _, letters = part.rpartition("-")
        found += [f"{region}-{letter}" for letter in letters]
    return tuple(found)


G2_ZONES = _zones(
    "us-central1-abc us-east1-bcd us-east4-ac us-west1-abc us-west4-ac europe-west1-bc"
    " europe-west4-abc asia-southeast1-abc"
)
V5E_ZONES = _zones("us-central1-a us-south1-a us-west1-c us-west4-ab europe-west4-ab us-east1-c")
ZONES = tuple(sorted({*G2_ZONES, *V5E_ZONES, *_zones("us-central1-f us-west4-b")}))


def region_of(zone: str) -> str:
    """The region that a zone lies in."""
    return zone.rpartition("-")[0]


REGIONS = tuple(sorted({region_of(zone) for zone in ZONES}))


@dataclass(slots=True)
class Gaps:
    """Zones that are missing from lists of all zones."""

    always: set[str] = field(default_factory=set)
    sometimes: set[str] = field(default_factory=set)
    """From every third list of a kind, the first one included."""
    _asked: Counter[str] = field(default_factory=Counter)

    def of(self, what: str, *, is_new: bool) -> set[str]:
        """The zones that this list lacks; not every page is a new list."""
        self._asked[what] += is_new
        return self.always | (self.sometimes if self._asked[what] % 3 == 1 else set())


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type; `accelerator` is GCE's name of what comes with it."""

    name: str
    cpus: int
    memory_mb: int
    accelerator: str = ""
    device: str = ""  # what the machine behind it shows
    accelerators: int = 0
    zones: tuple[str, ...] = ZONES


MACHINE_TYPES = {
    each.name: each
    for each in (
        MachineType("e2-micro", 2, 1024),
        MachineType("e2-small", 2, 2048),
        MachineType("e2-standard-2", 2, 8192),
        MachineType("n1-standard-4", 4, 15360),
        MachineType("g2-standard-4", 4, 16384, "nvidia-l4", "L4", 1, G2_ZONES),
        MachineType("g2-standard-8", 8, 32768, "nvidia-l4", "L4", 1, G2_ZONES),
        MachineType("g2-standard-24", 24, 98304, "nvidia-l4", "L4", 2, G2_ZONES),
        MachineType("a3-highgpu-1g", 26, 239616, "nvidia-h100-80gb", "H100", 1, ("us-central1-a",)),
    )
}


class Addresses:
    """A pool that gives a freed address out again last, as clouds do with strangers' addresses."""

    def __init__(self, external: str, internal: str) -> None:
        self._external = deque(str(each) for each in ipaddress.ip_network(external).hosts())
        self._internal = deque(str(each) for each in ipaddress.ip_network(internal).hosts())
        self.next_external = ""

    def take_internal(self) -> str:
        """An address inside the network."""
        return self._internal.popleft()

    def take_external(self) -> str:
        """An address of the documentation range, or the one that a test asked for."""
        wanted, self.next_external = self.next_external, ""
        if not wanted:
            return self._external.popleft()
        if wanted in self._external:
            self._external.remove(wanted)
        return wanted

    def give_back(self, *addresses: str) -> None:
        """Free again."""
        for address in addresses:
            if address:
                pool = self._internal if address.startswith("10.") else self._external
                pool.append(address)


def compute_addresses() -> Addresses:
    """The instances' half of the lab's Google addresses."""
    return Addresses("203.0.113.0/25", "10.128.0.0/22")


def tpu_addresses() -> Addresses:
    """The TPU nodes' half: both clouds may stand in one lab."""
    return Addresses("203.0.113.128/25", "10.128.8.0/22")
