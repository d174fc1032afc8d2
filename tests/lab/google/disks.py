"""Compute Engine's disks: they come with instances, and stay where nobody said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.google.front import ApiError, Json
from tests.lab.google.meter import Meter, Metered
from tests.lab.google.orders import DiskOrder, Order

_ROOT = "https://www.googleapis.com/compute/v1/"


@dataclass(slots=True)
class Disk:
    """One disk; `user` is the instance that it is attached to, or empty."""

    project: str
    zone: str
    order: DiskOrder
    made_at: datetime
    user: str

    def as_json(self) -> Json:
        root = f"{_ROOT}projects/{self.project}/zones/{self.zone}"
        return {
            "kind": "compute#disk", "id": str(sum(self.order.name.encode()) * 104_729),
            "name": self.order.name, "zone": root, "status": "READY",
            "sizeGb": str(self.order.size_gb), "type": f"{root}/diskTypes/{self.order.kind}",
            "labels": dict(self.order.labels), "creationTimestamp": self.made_at.isoformat(),
            "selfLink": f"{root}/disks/{self.order.name}",
            "sourceImage": _ROOT + self.order.image if self.order.image else "",
            "users": [f"{root}/instances/{self.user}"] if self.user else [],
        }  # fmt: skip


@dataclass(slots=True)
class Disks:
    """All disks, by zone and name."""

    meter: Meter
    known: dict[tuple[str, str], Disk] = field(default_factory=dict)

    def create(self, instance: Order, order: DiskOrder, now: datetime) -> None:
        """The disk of a new instance."""
        disk = Disk(instance.project, instance.zone, order, now, instance.name)
        self.known[instance.zone, order.name] = disk
        item = f"{order.kind}:{order.size_gb}"
        self.meter.open(Metered(order.name, "disk", item, "on-demand", instance.zone, now))

    def detach(self, instance: Order, now: datetime) -> None:
        """Its instance is gone: the disk too, where it was told so."""
        for key, disk in list(self.known.items()):
            if key[0] == instance.zone and disk.user == instance.name:
                disk.user = ""
                if disk.order.auto_delete:
                    self._drop(key, now)

    def find(self, zone: str, name: str) -> Disk:
        """The disk, or 404."""
        if (zone, name) not in self.known:
            what = f"zones/{zone}/disks/{name}"
            raise ApiError("notFound", f"The resource '{what}' was not found", 404)
        return self.known[zone, name]

    def delete(self, disk: Disk, now: datetime) -> None:
        """Raises ApiError, 400, while it is in use."""
        if disk.user:
            why = f"The disk resource '{disk.order.name}' is already being used by '{disk.user}'"
            raise ApiError("resourceInUseByAnotherResource", why, 400)
        self._drop((disk.zone, disk.order.name), now)

    def rows(self, zone: str = "") -> list[Json]:
        """Those of a zone, or all."""
        return [disk.as_json() for (where, _), disk in sorted(self.known.items())
                if zone in ("", where)]  # fmt: skip

    def _drop(self, key: tuple[str, str], now: datetime) -> None:
        del self.known[key]
        self.meter.close("disk", key[1], now)
