"""Everything that the lab's Compute Engine remembers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tests.lab.faults import Fault, Faults
from tests.lab.google.codes import gce_fault
from tests.lab.google.disks import Disks
from tests.lab.google.fleet import Fleet
from tests.lab.google.images import Images
from tests.lab.google.meter import Meter
from tests.lab.google.network import Network
from tests.lab.google.operations import Operations
from tests.lab.google.orders import Order
from tests.lab.google.places import Gaps
from tests.lab.google.quotas import ComputeQuotas
from tests.lab.machines import Machines


class ComputeState:
    """Instances, disks, operations and what orders are held against."""

    def __init__(self, machines: Machines, faults: Faults, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self.machines = machines
        self.images = Images()
        self.quotas = ComputeQuotas()
        self.meter = Meter()
        self.network = Network()
        self.operations = Operations()
        self.disks = Disks(self.meter)
        self.fleet = Fleet(machines, self.operations, self.disks, self.meter, faults, clock)
        self.dry: set[str | tuple[str, str]] = set()
        self.gaps = Gaps()
        self.hides_from_changes = False

    def doom_of(self, order: Order, scripted: Fault) -> Fault | None:
        """Why the operation of a call that is accepted will fail, or None."""
        if scripted.in_operation:
            return scripted
        if {order.zone, (order.zone, order.market)} & self.dry:
            return gce_fault("ZONE_RESOURCE_POOL_EXHAUSTED")
        return self.quotas.refusal(order, self.orders())

    def orders(self) -> list[Order]:
        """What counts against the quotas: a stopped instance does not."""
        rented = self.fleet.instances.values()
        return [each.order for each in rented if each.state != "TERMINATED" and not each.doom]

    def leftovers(self) -> list[tuple[str, str]]:
        """Whatever a client made that costs money or lingers."""
        found = [("instance", each.number) for each in self.fleet.instances.values()]
        found += [("disk", name) for _, name in self.disks.known]
        found += [("firewall", name) for name in self.network.made_firewalls()]
        return found + [("address", name) for _, name in self.network.addresses]
