"""Compute Engine's instances from the order to the end, following the machines behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab.faults import Fault, Faults
from tests.lab.google.disks import Disks
from tests.lab.google.front import ApiError, Json
from tests.lab.google.meter import Meter, Metered
from tests.lab.google.operations import Operation, Operations
from tests.lab.google.orders import Order
from tests.lab.google.places import Addresses, compute_addresses
from tests.lab.google.removals import Removals
from tests.lab.machines import Machines, MachineSpec

# Scripted under this name, a fault's code is the system operation that ends an instance that
# never ran: "compute.instances.hostError" and the like.
DEATH = "death"
PREEMPTED = "compute.instances.preempted"
# What Google calls the end at maxRunDuration is not known here: this name is the lab's own.
RUN_DURATION_OVER = "compute.instances.runDurationOver"
GUEST_SHUTDOWN = "compute.instances.guestTerminate"
_ROOT = "https://www.googleapis.com/compute/v1/projects/"
_CANCELLED = Fault(
    "OPERATION_CANCELED_BY_USER", "The operation was cancelled.", 409, in_operation=True
)
_PREEMPTED_EARLY = Fault(
    "UNSUPPORTED_OPERATION", "Instance was preempted during creation.", 400, in_operation=True
)


@dataclass(slots=True)
class Instance:
    """One instance; `state` is what GCE calls its status."""

    order: Order
    number: str
    inserted: Operation
    began_at: datetime
    doom: Fault | None  # its insert operation ends with this
    internal: str
    external: str
    looks_left: int
    hidden_until: datetime
    state: str = "PROVISIONING"
    staged_at: datetime | None = None
    running_at: datetime | None = None
    ends_at: datetime | None = None
    stopping_until: datetime | None = None
    death: Fault | None = None
    vanishes: bool = False
    waiting: list[Operation] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.order.zone, self.order.name

    @property
    def over_at(self) -> datetime | None:
        """When its maximum run duration is over; it counts from RUNNING."""
        if self.running_at is None or self.order.max_run_s is None:
            return None
        return self.running_at + timedelta(seconds=self.order.max_run_s)

    def end(self, at: datetime, operation: Operation, *, vanishes: bool) -> None:
        """On its way out at that time; what is to vanish stays so."""
        self.state = "STOPPING"
        self.vanishes = self.vanishes or vanishes
        self.stopping_until = max(self.stopping_until or at, at)
        self.waiting.append(operation)


class Fleet:
    """All instances of all projects. Nothing here waits; `tick` looks at everything once."""

    def __init__(
        self,
        machines: Machines,
        operations: Operations,
        disks: Disks,
        meter: Meter,
        faults: Faults,
        clock: Callable[[], datetime],
    ) -> None:
        self.operation_s = self.stopping_s = self.lag_s = 0.0
        # GCE says RUNNING whether or not the guest ever gets that far.
        self.staging_limit_s = 30.0
        self.looks = 0
        self.devices: dict[str, str] = {}
        self.addresses: Addresses = compute_addresses()
        self.instances: dict[tuple[str, str], Instance] = {}
        self.removals = Removals(machines)
        self._machines, self._operations, self._disks = machines, operations, disks
        self._meter, self._faults, self._clock = meter, faults, clock
        self._number = 4_000_000_000_000_000_000

    def insert(self, order: Order, operation: Operation, doom: Fault | None) -> Instance:
        """A new instance, PROVISIONING; `doom` is what its operation is to end with."""
        now = self._clock()
        self._number += 1
        instance = Instance(
            order=order,
            number=str(self._number),
            inserted=operation,
            began_at=now,
            doom=doom,
            internal=self.addresses.take_internal(),
            external=self.addresses.take_external() if order.external else "",
            looks_left=self.looks,
            hidden_until=now + timedelta(seconds=self.lag_s),
        )
        operation.target_id = instance.number
        self.instances[instance.key] = instance
        return instance

    def refuse_taken(self, order: Order) -> None:
        """Raises ApiError, 409, where the name is taken by an instance or a disk."""
        root = f"projects/{order.project}/zones/{order.zone}"
        taken = [f"instances/{order.name}"] if (order.zone, order.name) in self.instances else []
        taken += [f"disks/{disk.name}" for disk in order.disks
                  if (order.zone, disk.name) in self._disks.known]  # fmt: skip
        if taken:
            why = f"The resource '{root}/{taken[0]}' already exists"
            raise ApiError("alreadyExists", why, 409)

    def find(self, zone: str, name: str, *, looks: bool = True) -> Instance:
        """The instance, or 404 where there is none or it is not to be seen yet."""
        instance = self.instances.get((zone, name))
        if instance is None or (looks and self._is_hidden(instance)):
            what = f"zones/{zone}/instances/{name}"
            raise ApiError("notFound", f"The resource '{what}' was not found", 404)
        return instance

    def visible(self, zones: Callable[[str], bool]) -> list[Instance]:
        """Those of these zones that can be seen, by name."""
        found = [each for _, each in sorted(self.instances.items()) if zones(each.order.zone)]
        return [each for each in found if not self._is_hidden(each)]

    def by_id(self, machine_id: str) -> Instance:
        """By the machine's id, or by name."""
        for instance in self.instances.values():
            if machine_id in (instance.number, instance.order.name):
                return instance
        raise KeyError(f"no instance {machine_id}; there are {self.instances}")

    def delete(self, instance: Instance, operation: Operation) -> None:
        """Begin its end, whatever state it is in."""
        now = self._clock()
        if instance.state == "PROVISIONING":
            instance.inserted.finish(now, _CANCELLED)
            operation.finish(now)
            self._forget(instance)
            return
        # Asked for again, or while it stops anyway, it ends no later than it would have.
        ends_at = now
        if instance.state != "STOPPING":
            self.removals.start(instance.number)
            ends_at = now + timedelta(seconds=self.stopping_s)
        instance.end(ends_at, operation, vanishes=True)

    def preempt(self, instance: Instance, notice_s: float) -> None:
        """Announce it, and take it when the notice is over."""
        now = self._clock()
        if instance.state == "PROVISIONING":
            instance.inserted.finish(now, _PREEMPTED_EARLY)
            self._forget(instance)
            return
        at = now + timedelta(seconds=notice_s)
        self._machines.announce_preemption(instance.number, at)
        self._end_by_system(instance, PREEMPTED, at)

    def tick(self) -> None:
        """Look at everything once."""
        now = self._clock()
        for instance in list(self.instances.values()):
            if instance.state == "PROVISIONING":
                self._settle(instance, now)
            if instance.state == "STAGING":
                self._look_at_boot(instance, now)
            if instance.state == "RUNNING":
                self._look_at_run(instance, now)
            if instance.state == "STOPPING":
                self._look_at_end(instance, now)

    def _is_hidden(self, instance: Instance) -> bool:
        if instance.looks_left > 0:
            instance.looks_left -= 1
            return True
        return self._clock() < instance.hidden_until

    def _settle(self, instance: Instance, now: datetime) -> None:
        if now < instance.began_at + timedelta(seconds=self.operation_s):
            return
        instance.inserted.finish(now, instance.doom)
        if instance.doom is not None:
            self._forget(instance)
            return
        order = instance.order
        for disk in order.disks:
            self._disks.create(order, disk, now)
        if instance.external:
            line = (instance.external, "address", "external-ipv4", order.market, order.zone, now)
            self._meter.open(Metered(*line))
        instance.state, instance.staged_at = "STAGING", now
        instance.death = self._faults.take(DEATH, (order.zone, order.region), is_call=False)
        self._machines.boot(self._spec(instance))

    def _spec(self, instance: Instance) -> MachineSpec:
        order = instance.order
        kind = order.machine_type
        return MachineSpec(
            id=instance.number,
            cloud="gcp",
            addresses=tuple(filter(None, (instance.internal, instance.external))),
            hostname=order.name,
            user_data=order.metadata.get("user-data", ""),
            attributes=dict(order.metadata),
            device=self.devices.get(kind.name, kind.device),
            max_run_s=order.max_run_s,
        )

    def _look_at_boot(self, instance: Instance, now: datetime) -> None:
        assert instance.staged_at is not None
        waited_s = (now - instance.staged_at).total_seconds()
        if instance.death is not None:
            if waited_s >= instance.death.delay_s:
                self._end_by_system(instance, instance.death.code, now)
            return
        up = self._machines.is_up(instance.number) or self._machines.has_ended(instance.number)
        if up or waited_s >= self.staging_limit_s:
            order = instance.order
            instance.state, instance.running_at = "RUNNING", now
            line = (instance.number, "instance", order.machine_type.name, order.market)
            self._meter.open(Metered(*line, order.zone, now))

    def _look_at_run(self, instance: Instance, now: datetime) -> None:
        if instance.over_at is not None and now >= instance.over_at:
            self._end_by_system(instance, RUN_DURATION_OVER, now)
        elif self._machines.has_ended(instance.number):
            # The guest's own end leaves the disk: the instance stays, whatever its market.
            operation = self._system_operation(instance, GUEST_SHUTDOWN, now)
            instance.end(now, operation, vanishes=False)

    def _end_by_system(self, instance: Instance, kind: str, at: datetime) -> None:
        vanishes = instance.order.termination_action == "DELETE"
        operation = self._system_operation(instance, kind, self._clock())
        instance.end(at, operation, vanishes=vanishes)

    def _system_operation(self, instance: Instance, kind: str, now: datetime) -> Operation:
        order = instance.order
        zone = f"zones/{order.zone}"
        operation = self._operations.begin(
            kind, order.project, f"{zone}/instances/{order.name}", now, scope=zone, user="system"
        )
        operation.target_id = instance.number
        return operation

    def _look_at_end(self, instance: Instance, now: datetime) -> None:
        if instance.stopping_until is not None and now < instance.stopping_until:
            return
        powered_off = self._machines.has_ended(instance.number) and not instance.vanishes
        if not powered_off:
            self.removals.start(instance.number)
        if not powered_off and not self.removals.gone(instance.number):
            return
        self._stop_paying(instance, now)
        for operation in instance.waiting:
            operation.finish(now)
        instance.waiting, instance.stopping_until = [], None
        if instance.vanishes:
            self._disks.detach(instance.order, now)
            self._forget(instance)
        else:
            instance.state = "TERMINATED"

    def _stop_paying(self, instance: Instance, now: datetime) -> None:
        self._meter.close("instance", instance.number, now)
        self._meter.close("address", instance.external, now)
        self.addresses.give_back(instance.external)
        instance.external = ""

    def _forget(self, instance: Instance) -> None:
        self.addresses.give_back(instance.internal, instance.external)
        del self.instances[instance.key]


def as_json(instance: Instance) -> Json:
    """The instance as `instances.get` answers it."""
    order = instance.order
    root = f"{_ROOT}{order.project}/zones/{order.zone}"
    body: Json = {
        **order.body, "kind": "compute#instance", "id": instance.number, "zone": root,
        "status": instance.state, "selfLink": f"{root}/instances/{order.name}",
        "creationTimestamp": instance.began_at.isoformat(), "cpuPlatform": "Intel Cascade Lake",
        "machineType": f"{root}/machineTypes/{order.machine_type.name}",
        "networkInterfaces": [_interface(instance)],
        "disks": list(_attached(order, root)),
        "scheduling": {
            "automaticRestart": True, **order.body.get("scheduling", {}),
            "provisioningModel": order.model, "preemptible": order.spot,
        },
    }  # fmt: skip
    if instance.running_at is not None:
        body["lastStartTimestamp"] = instance.running_at.isoformat()
    if instance.over_at is not None and instance.state == "RUNNING":
        schedule = {"terminationTimestamp": instance.over_at.isoformat()}
        body["resourceStatus"] = {"scheduling": schedule}
    return body


def _interface(instance: Instance) -> Json:
    interface: Json = {"name": "nic0", "network": f"{_ROOT}lab/global/networks/default",
                       "networkIP": instance.internal}  # fmt: skip
    if instance.order.external:
        access = {"type": "ONE_TO_ONE_NAT", "name": "External NAT", "natIP": instance.external}
        interface["accessConfigs"] = [access]
    return interface


def _attached(order: Order, root: str) -> Iterator[Json]:
    for at, disk in enumerate(order.disks):
        yield {
            "kind": "compute#attachedDisk", "index": at, "boot": at == 0, "type": "PERSISTENT",
            "mode": "READ_WRITE", "autoDelete": disk.auto_delete, "deviceName": disk.name,
            "source": f"{root}/disks/{disk.name}", "diskSizeGb": str(disk.size_gb),
        }  # fmt: skip
