"""An emulated Compute Engine on the loopback, for the real google-cloud-compute clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from google.cloud import compute_v1

from tests.lab.cloud_facts import durations, rows
from tests.lab.faults import Fault
from tests.lab.google.codes import gce_fault
from tests.lab.google.compute_calls import ROUTES, Handler, handlers
from tests.lab.google.compute_state import ComputeState
from tests.lab.google.descriptors import check_query
from tests.lab.google.fleet import DEATH
from tests.lab.google.front import Json, Request, RestFront, utc_now
from tests.lab.google.images import Images
from tests.lab.google.meter import Metered
from tests.lab.google.orders import market_of
from tests.lab.google.places import region_of
from tests.lab.google.quotas import ComputeQuotas
from tests.lab.google.rates import RateQuotas
from tests.lab.machines import Machines, NoMachines

_TICK_S = 0.1
_WAIT_LIMIT_S = 5.0  # GCE's own is two minutes; a client has to ask again in any case


class ComputeCloud(RestFront):
    """Compute Engine, every project and zone, at `endpoint_url`.

    Attributes:
        images, quotas, network, disks: What a test changes, or sees, of them.
        operations: `change_s`, by the cloud's clock.
        fleet: `operation_s`, `stopping_s`, `staging_limit_s`, `addresses`, by the cloud's clock.
        devices: Machine type to what its machines show, where that is to be a wrong one.
        dry: Zones, or (zone, market) pairs, that have no capacity.
        gaps: Zones that aggregated lists warn of instead of listing.
        hides_from_changes: Whether what cannot be seen yet cannot be deleted either.
    """

    begins_operations = frozenset(
        {"instances.insert", "instances.delete", "firewalls.insert", "firewalls.delete",
         "disks.delete", "instances.reset"}
    )  # fmt: skip

    def __init__(
        self, *, machines: Machines | None = None, clock: Callable[[], datetime] = utc_now
    ) -> None:
        super().__init__(ROUTES, clock)
        self.machines: Machines = NoMachines() if machines is None else machines
        self._lock = threading.RLock()
        self._state = ComputeState(self.machines, self.faults, lambda: self.clock())
        self._handlers: dict[str, Handler] = handlers(self._state)
        self.fleet = self._state.fleet
        self.network, self.disks = self._state.network, self._state.disks
        self.operations = self._state.operations
        self.images: Images = self._state.images
        self.quotas: ComputeQuotas = self._state.quotas
        self.dry: set[str | tuple[str, str]] = self._state.dry
        self.gaps = self._state.gaps
        self.devices = self.fleet.devices
        self.rates = RateQuotas(lambda: self.clock())

    @property
    def invisible_for_looks(self) -> int:
        """For how many gets and lists a new instance is not there yet."""
        return self.fleet.looks

    @invisible_for_looks.setter
    def invisible_for_looks(self, looks: int) -> None:
        self.fleet.looks = looks

    @property
    def lag_s(self) -> float:
        """For how long, by the cloud's clock, a new instance is not there yet."""
        return self.fleet.lag_s

    @lag_s.setter
    def lag_s(self, lag_s: float) -> None:
        self.fleet.lag_s = lag_s

    @property
    def hides_from_changes(self) -> bool:
        """Whether an invisible instance cannot be deleted either (404, and it lives on)."""
        return self._state.hides_from_changes

    @hides_from_changes.setter
    def hides_from_changes(self, hides: bool) -> None:
        self._state.hides_from_changes = hides

    def follow_facts(self) -> None:
        """Be as slow, as late in showing what is new, and as silent as the table of facts says."""
        takes = durations("gcp")
        self.lag_s = takes["visible"]
        self.gaps.sometimes |= rows("gcp", "silent").keys()
        self.fleet.operation_s, self.fleet.stopping_s = takes["insert"], takes["STOPPING"]

    def refuse(
        self, name: str, *codes: str, where: str | Iterable[str] | None = None, after: bool = False
    ) -> None:
        """The next calls of this name are refused with these codes, one each (`gce_fault`)."""
        self.faults.script(name, [gce_fault(code, after=after) for code in codes], where=where)

    def die_in_staging(
        self, *kinds: str, where: str | Iterable[str] | None = None, after_s: float = 0.0
    ) -> None:
        """The next instances never run: these system operations end them, one each."""
        self.faults.script(DEATH, [Fault(code=k, delay_s=after_s) for k in kinds], where=where)

    def give_next_external_address(self, address: str) -> None:
        """The next instance gets this address: addresses come back to strangers."""
        self.fleet.addresses.next_external = address

    def preempt(self, machine_id: str, *, notice_s: float = 30.0) -> None:
        """Take a spot instance, by machine id or name: STOPPING now, the end after the notice."""
        with self._lock:
            self.fleet.tick()
            self.fleet.preempt(self.fleet.by_id(machine_id), notice_s)
            self.fleet.tick()

    def state(self, machine_id: str) -> str:
        """An instance's status at this moment, without a call; "" once it is gone."""
        with self._lock:
            self.fleet.tick()
            known = (each.number for each in self.fleet.instances.values())
            names = (each.order.name for each in self.fleet.instances.values())
            return self.fleet.by_id(machine_id).state if machine_id in (*known, *names) else ""

    def alive(self) -> list[tuple[str, str]]:
        """Every resource of a client that costs money or lingers, as (kind, id)."""
        with self._lock:
            self.fleet.tick()
            return self._state.leftovers()

    def billing(self) -> list[Metered]:
        """The cloud's own metering: instances from RUNNING to their end, disks and addresses."""
        with self._lock:
            self.fleet.tick()
            return self._state.meter.lines()

    def stop(self) -> None:
        """Close it; the machines that still run are the lab's to remove.

        Raises:
            RuntimeError: The lab itself broke.
        """
        self._stopping.set()
        self.fleet.removals.wait(60)
        self.crashes += self.fleet.removals.broken
        super().stop()

    def background(self) -> tuple[Callable[[], None], ...]:
        return (self._tick_on,)

    def places(self, request: Request) -> tuple[str, ...]:
        zone = request.path.get("zone", "")
        found = [*request.path.values(), *([region_of(zone)] if zone else [])]
        if request.name == "instances.insert":
            found.append(market_of(request.body))
        elif "instance" in request.path:
            with self._lock:
                instance = self.fleet.instances.get((zone, request.path["instance"]))
            found += [instance.order.market] if instance else []
        return tuple(found)

    def answer(self, request: Request) -> Json:
        check_query(request, compute_v1)
        with self._lock:
            zone = request.path.get("zone", "")
            self.rates.take(request, region_of(zone) if zone else request.path.get("region", ""))
        if request.name.endswith("Operations.wait"):
            return self._wait(request)
        with self._lock:
            self.fleet.tick()
            body = self._handlers[request.name](request)
            self.fleet.tick()
            return body

    def _wait(self, request: Request) -> Json:
        until = time.monotonic() + _WAIT_LIMIT_S
        while True:
            with self._lock:
                self.fleet.tick()
                body = self._handlers[request.name](request)
            over = time.monotonic() > until or self._stopping.is_set()
            if body["status"] == "DONE" or over:
                return body
            time.sleep(0.02)

    def _tick_on(self) -> None:
        while not self._stopping.wait(_TICK_S):
            with self._lock:
                self.fleet.tick()
