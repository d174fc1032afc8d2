"""The emulated AWS's own metering, which the product's bill is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tests.lab.aws.emulation import Emulation


@dataclass(frozen=True, slots=True)
class Metered:
    """One billable thing; `ended_at` None while it still costs.

    Attributes:
        resource_id: Instance id, volume id or the public address itself.
        kind: "instance", "volume" or "address".
        item: Instance type, "gp3:150" (type and GB) or "public-ipv4".
        market: "on-demand" or "spot"; "on-demand" for all but instances.
        zone: Where it is.
    """

    resource_id: str
    kind: str
    item: str
    market: str
    zone: str
    started_at: datetime
    ended_at: datetime | None = None


class Meter:
    """Opens and closes one line per thing."""

    def __init__(self) -> None:
        self._closed: list[Metered] = []
        self._open: dict[tuple[str, str], Metered] = {}

    def open(self, line: Metered) -> None:
        """From now on it costs; a line that is open already stays as it is."""
        self._open.setdefault((line.kind, line.resource_id), line)

    def close(self, kind: str, resource_id: str, at: datetime) -> None:
        """It costs no longer; what never did is no error."""
        line = self._open.pop((kind, resource_id), None)
        if line is not None:
            self._closed.append(replace(line, ended_at=at))

    def look(self, emulation: Emulation, now: datetime) -> None:
        """Open and close the lines of everything that comes and goes with others."""
        there = {(line.kind, line.resource_id): line for line in _standing(emulation, now)}
        for line in there.values():
            self.open(line)
        for kind, resource_id in list(self._open):
            if kind != "instance" and (kind, resource_id) not in there:
                self.close(kind, resource_id, now)

    def lines(self) -> list[Metered]:
        """All of it, in the order it began."""
        return sorted((*self._closed, *self._open.values()), key=lambda line: line.started_at)


def _standing(emulation: Emulation, now: datetime) -> Iterator[Metered]:
    for backend in emulation.regions():
        for volume in backend.volumes.values():
            yield _volume(volume, now)
        for eni in backend.enis.values():
            if eni.public_ip:
                yield Metered(
                    eni.public_ip, "address", "public-ipv4", "on-demand", eni.availability_zone, now
                )
        for address in backend.addresses:
            zone = backend.region_name
            yield Metered(address.public_ip, "address", "public-ipv4", "on-demand", zone, now)


def _volume(volume: Any, now: datetime) -> Metered:
    item = f"{volume.volume_type or 'gp2'}:{volume.size}"
    return Metered(volume.id, "volume", item, "on-demand", volume.availability_zone, now)


def leftovers(emulation: Emulation) -> Iterator[tuple[str, str]]:
    """Whatever a client made that costs money or lingers, of any kind, in any region."""
    for backend in emulation.regions():
        for instance in emulation.instances(backend.region_name).values():
            if instance.state != "terminated":
                yield "instance", instance.id
        for kind, things in (
            ("volume", backend.volumes.values()),
            ("network-interface", backend.enis.values()),
            ("key-pair", backend.key_pairs.values()),
            ("address", backend.addresses),
            ("launch-template", backend.launch_templates.values()),
        ):
            yield from ((kind, thing.id) for thing in things)
        yield from _networks(backend)
        for snapshot in backend.snapshots.values():
            if "Auto-created snapshot for AMI" not in snapshot.description:
                yield "snapshot", snapshot.id


def _networks(backend: Any) -> Iterator[tuple[str, str]]:
    for groups in backend.groups.values():
        yield from (("security-group", each.id) for each in groups.values() if _is_made(each))
    default = backend.default_vpc.id
    yield from (("vpc", each) for each in backend.vpcs if each != default)
    for subnets in backend.subnets.values():
        yield from (("subnet", each.id) for each in subnets.values() if not each.default_for_az)


def _is_made(group: Any) -> bool:
    return group.name != "default"
