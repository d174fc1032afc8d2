"""The life of an emulated instance: pending until its machine is up, and every way it can end."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from moto.ec2.models.instances import InstanceState, StateReason

from tests.lab.aws.emulation import Emulation, device_of
from tests.lab.aws.meter import Meter, Metered
from tests.lab.faults import Fault
from tests.lab.machines import Machines, MachineSpec

PENDING, RUNNING, SHUTTING_DOWN = (0, "pending"), (16, "running"), (32, "shutting-down")
TERMINATED, STOPPED = (48, "terminated"), (80, "stopped")
USER = "Client.UserInitiatedShutdown"
GUEST = "Client.InstanceInitiatedShutdown"
INTERRUPTED = "Server.SpotInstanceTermination"
_WORDS = {
    USER: "User initiated shutdown",
    GUEST: "Instance initiated shutdown",
    INTERRUPTED: "Spot instance termination",
    "Server.SpotInstanceShutdown": "Spot instance shutdown",
    "Server.InsufficientInstanceCapacity": "Insufficient capacity to satisfy instance request",
    "Server.InternalError": "Internal error on launch",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Client.InternalError": "Client error on launch",
    "Client.InvalidSnapshot.NotFound": "The specified snapshot was not found",
}


@dataclass(slots=True)
class SpotRequest:
    """The one-time request behind a spot instance."""

    id: str
    instance_id: str
    instance_type: str
    zone: str
    made_at: datetime
    tags: dict[str, str]
    state: str = "active"
    status: str = "fulfilled"
    status_at: datetime | None = None

    def become(self, status: str, at: datetime) -> None:
        """Take a status, from then on."""
        self.status, self.status_at = status, at


@dataclass(slots=True)
class Rented:
    """One instance as the lab follows it."""

    instance: Any
    region: str
    market: str
    launched_at: datetime
    looks_left: int = 0
    visible_at: datetime | None = None
    dies_of: str = ""
    dies_at: datetime | None = None
    taken_at: datetime | None = None
    has_machine: bool = False
    removal: threading.Thread | None = None
    gone_at: datetime | None = None

    @property
    def id(self) -> str:
        return str(self.instance.id)

    @property
    def zone(self) -> str:
        return str(self.instance.placement.zone)

    @property
    def state(self) -> str:
        return str(self.instance.state)

    def become(self, state: tuple[int, str]) -> None:
        # A new object each time: moto shares the old one with answers under way.
        self.instance._state = InstanceState(state[1], state[0])

    def hide_for(self, lag_s: float) -> None:
        """Keep it out of every answer for so long."""
        if lag_s > 0:
            self.visible_at = self.launched_at + timedelta(seconds=lag_s)

    def is_hidden(self, now: datetime) -> bool:
        """Whether a look at this moment does not see it yet."""
        return self.looks_left > 0 or (self.visible_at is not None and now < self.visible_at)


@dataclass(slots=True)
class Lifecycle:
    """Every instance there ever was; `tick` moves them on. The caller holds the cloud's lock."""

    emulation: Emulation
    machines: Machines
    meter: Meter
    clock: Callable[[], datetime]
    devices: dict[str, str]
    pending_s: float = 0.0
    shutting_down_s: float = 0.0
    rented: dict[str, Rented] = field(default_factory=dict)
    spot_requests: dict[str, SpotRequest] = field(default_factory=dict)

    def admit(
        self,
        instance: Any,
        region: str,
        *,
        market: str,
        user: str,
        death: Fault | None,
        spot_tags: dict[str, str],
    ) -> Rented:
        """Take a fresh instance over from moto: it is pending, and its machine boots."""
        now = self.clock()
        rented = Rented(instance, region, market, now)
        self.rented[rented.id] = rented
        rented.become(PENDING)
        instance.launch_time = now.replace(tzinfo=None)
        instance.spot_instance_request_id = None
        if market == "spot":
            self._ask_for_spot(rented, spot_tags)
        if death is not None:
            rented.dies_of = death.code
            rented.dies_at = now + timedelta(seconds=death.delay_s)
            return rented
        self.machines.boot(self._spec(rented, user))
        rented.has_machine = True
        return rented

    def tick(self) -> None:
        """Bring every instance to where it is at this moment."""
        now = self.clock()
        for rented in self.rented.values():
            _STEPS.get(rented.state, _stay)(self, rented, now)
        self.meter.look(self.emulation, now)

    def end(self, rented: Rented, reason: str) -> None:
        """Shut one down for good; its volumes, interfaces and addresses go as they were told."""
        if rented.state in (SHUTTING_DOWN[1], TERMINATED[1]):
            return
        now = self.clock()
        self.meter.close("instance", rented.id, now)
        rented.instance.terminate()
        rented.become(SHUTTING_DOWN)
        self._give_reason(rented, reason, now)
        self._close_spot(rented, reason)
        rented.gone_at = now + timedelta(seconds=self.shutting_down_s)
        if rented.has_machine:
            rented.removal = threading.Thread(
                target=self.machines.remove, args=(rented.id,), name=f"remove-{rented.id}"
            )
            rented.removal.start()
        self.meter.look(self.emulation, now)

    def announce(self, machine_id: str, notice_s: float) -> None:
        """A spot interruption: the machine hears of it now and is taken after the notice."""
        rented = self.rented[machine_id]
        if rented.market != "spot":
            raise ValueError(f"{machine_id} is no spot instance: nobody interrupts it")
        rented.taken_at = self.clock() + timedelta(seconds=notice_s)
        request = self._request_of(rented)
        if request is not None:
            request.become("marked-for-termination", self.clock())
        if rented.has_machine:
            self.machines.announce_preemption(machine_id, rented.taken_at)

    def wait_for_removals(self, timeout_s: float) -> None:
        """Wait until every machine that is being removed is gone."""
        for rented in self.rented.values():
            if rented.removal is not None:
                rented.removal.join(timeout_s)

    def using_group(self, group_id: str) -> Iterable[str]:
        """The instances that still exist and are in a security group."""
        for rented in self.rented.values():
            groups = {group.id for group in rented.instance.security_groups}
            if rented.state != TERMINATED[1] and group_id in groups:
                yield rented.id

    def _pending(self, rented: Rented, now: datetime) -> None:
        if rented.dies_at is not None:
            if now >= rented.dies_at:
                self.end(rented, rented.dies_of)
        elif rented.taken_at is not None and now >= rented.taken_at:
            self.end(rented, INTERRUPTED)
        elif now < rented.launched_at + timedelta(seconds=self.pending_s):
            return
        elif self.machines.is_up(rented.id):
            rented.become(RUNNING)
            itype = rented.instance.instance_type
            self.meter.open(Metered(rented.id, "instance", itype, rented.market, rented.zone, now))
        else:
            self._notice_end(rented, now)

    def _running(self, rented: Rented, now: datetime) -> None:
        if rented.taken_at is not None and now >= rented.taken_at:
            self.end(rented, INTERRUPTED)
            return
        self._notice_end(rented, now)

    def _notice_end(self, rented: Rented, now: datetime) -> None:
        if not self.machines.has_ended(rented.id):
            return
        if rented.instance.instance_initiated_shutdown_behavior == "terminate":
            self.end(rented, GUEST)
            return
        self.meter.close("instance", rented.id, now)
        rented.instance.stop()
        rented.become(STOPPED)
        self._give_reason(rented, GUEST, now)

    def _shutting_down(self, rented: Rented, now: datetime) -> None:
        removed = rented.removal is None or not rented.removal.is_alive()
        if removed and (rented.gone_at is None or now >= rented.gone_at):
            rented.become(TERMINATED)

    def _give_reason(self, rented: Rented, reason: str, now: datetime) -> None:
        words = _WORDS.get(reason, reason.partition(".")[2])
        rented.instance.state_reason = StateReason(f"{reason}: {words}", reason)
        moment = now.strftime("%Y-%m-%d %H:%M:%S GMT")
        rented.instance._reason = f"User initiated ({moment})" if reason == USER else reason
        if reason == GUEST:
            rented.instance._reason = ""

    def _ask_for_spot(self, rented: Rented, tags: dict[str, str]) -> None:
        request = SpotRequest(
            id=f"sir-{secrets.token_hex(4)}",
            instance_id=rented.id,
            instance_type=rented.instance.instance_type,
            zone=rented.zone,
            made_at=rented.launched_at,
            tags=tags,
        )
        self.spot_requests[request.id] = request
        rented.instance.spot_instance_request_id = request.id

    def _close_spot(self, rented: Rented, reason: str) -> None:
        request = self._request_of(rented)
        if request is None:
            return
        by_price = reason == INTERRUPTED
        request.state = "closed"
        status = "instance-terminated-no-capacity" if by_price else "instance-terminated-by-user"
        request.become(status, self.clock())

    def _request_of(self, rented: Rented) -> SpotRequest | None:
        return self.spot_requests.get(rented.instance.spot_instance_request_id or "")

    def _spec(self, rented: Rented, user: str) -> MachineSpec:
        instance = rented.instance
        itype = instance.instance_type
        addresses = (instance.private_ip, instance.public_ip)
        return MachineSpec(
            id=rented.id,
            cloud="aws",
            addresses=tuple(str(address) for address in addresses if address),
            hostname="ip-" + str(instance.private_ip).replace(".", "-"),
            default_user=user,
            user_data=instance.user_data.decode() if instance.user_data else "",
            device=self.devices.get(itype, device_of(itype)),
        )


def _stay(_: Lifecycle, __: Rented, ___: datetime) -> None:
    """Terminated and stopped instances do not move by themselves."""


_STEPS: dict[str, Callable[[Lifecycle, Rented, datetime], None]] = {
    PENDING[1]: Lifecycle._pending,
    RUNNING[1]: Lifecycle._running,
    SHUTTING_DOWN[1]: Lifecycle._shutting_down,
}
