"""The fake provider: a cloud in memory with its machines, script of faults and requests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    FakeEndpoint,
    LaunchRequest,
    Machine,
    MachineState,
    NotOfferedError,
    Place,
    ProviderError,
    ProviderTraits,
    ProviderUnavailableError,
    QuotaError,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.quota import BootImage
from runners.fake.fake_machine import FakeComputer
from runners.provider_context import ProviderContext

PRICE_USD_PER_HOUR = Decimal("0.50")
IMAGE = "fake-image-1"


class LaunchFault(StrEnum):
    """The faults that a launch can have."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    NOT_OFFERED = "not offered"
    UNAVAILABLE = "unavailable"
    CREDENTIALS = "credentials"
    CONFIG = "config"
    LOST_ANSWER = "lost answer"
    """The machine is created, but the call fails."""
    LATE_CAPACITY = "capacity, late"
    """The order is accepted, and refused at the first inspect."""


ERRORS: dict[LaunchFault, type[ProviderError]] = {
    LaunchFault.CAPACITY: CapacityError,
    LaunchFault.QUOTA: QuotaError,
    LaunchFault.NOT_OFFERED: NotOfferedError,
    LaunchFault.UNAVAILABLE: ProviderUnavailableError,
    LaunchFault.CREDENTIALS: CredentialsError,
    LaunchFault.CONFIG: ConfigError,
    LaunchFault.LOST_ANSWER: ProviderUnavailableError,
}
_MADE = frozenset({None, LaunchFault.LOST_ANSWER, LaunchFault.LATE_CAPACITY})
"""Faults that occur after a machine, or its order, exists."""


@dataclass(slots=True)
class _Rented:
    machine: Machine
    computer: FakeComputer
    looks_left: int
    hidden_looks: int = 0
    is_refused: bool = False


@dataclass(slots=True)
class FakeCloud:
    """A cloud that several providers may share, as after a restart. Any thread may use it."""

    boot_looks: int = 0
    """Number of inspects that return BOOTING before a machine is READY."""
    is_ordered_first: bool = False
    """Whether a new machine is REQUESTED at its launch and granted at the first inspect."""
    hidden_looks: int = 0
    """Number of calls that do not show a new machine."""
    extents: dict[LaunchFault, Extent] = field(default_factory=dict)
    """Extent of a fault's error, if it is not its place."""
    stop_looks: int = 0
    """Number of inspects that return STOPPING before a machine is TERMINATED."""
    prices: dict[str, Decimal | None] = field(default_factory=dict)
    """Dollars per hour by place, if they are not `PRICE_USD_PER_HOUR`."""
    images: dict[str, str] = field(default_factory=dict)
    """Image ids by place, if they are not `IMAGE`."""
    requests: list[LaunchRequest] = field(default_factory=list)
    """Every launch call, refused ones too."""
    made: int = 0
    """Machines that ever existed."""
    terminates: int = 0
    """Number of terminate calls."""
    _faults: dict[str, deque[LaunchFault]] = field(default_factory=dict)
    _lasting_faults: dict[str, LaunchFault] = field(default_factory=dict)
    _verb_faults: dict[str, int] = field(default_factory=dict)
    _rented: dict[str, _Rented] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def fail(self, place: str, fault: LaunchFault, *, times: int | None = None) -> None:
        """Make the next `times` launches in the place fail; all of them for None."""
        if times is None:
            self._lasting_faults[place] = fault
        else:
            self._faults.setdefault(place, deque()).extend([fault] * times)

    def fail_verb(self, verb: str, *, times: int) -> None:
        """Make the next `times` calls of image, inspect, terminate or inventory fail."""
        self._verb_faults[verb] = times

    def preempt(self, machine_id: str) -> None:
        """Preempt the machine immediately, with all its processes."""
        with self._lock:
            self._remove(machine_id, "preempted", ended="preempted")

    def live(self) -> tuple[Machine, ...]:
        """Return every machine that still costs money."""
        gone = MachineState.TERMINATED
        return tuple(one.machine for one in self._rented.values() if one.machine.state is not gone)

    def computer(self, machine_id: str) -> FakeComputer:
        """Return the computer of a machine's `FakeEndpoint`. Raises KeyError for an unknown one."""
        return self._rented[machine_id].computer

    def image(self, place: str) -> str:
        """Return the image that a machine in the place boots now."""
        with self._lock:
            self._verb("image")
            return self.images.get(place, IMAGE)

    def launch(self, request: LaunchRequest) -> Machine:
        """Create a machine, or return the token's, unless the script has a fault."""
        with self._lock:
            self.requests.append(request)
            machine_id = f"fake-{request.token}"
            fault = None if machine_id in self._rented else self._next_fault(request.place.name)
            if fault not in _MADE:
                raise self._error(fault, request.place.name)
            if machine_id not in self._rented:
                self._make(machine_id, request)
            self._rented[machine_id].is_refused |= fault is LaunchFault.LATE_CAPACITY
            if fault is LaunchFault.LOST_ANSWER:
                raise self._error(fault, request.place.name)
            return self._rented[machine_id].machine

    def inspect(self, machine_id: str) -> Machine:
        """Return the state. Each call moves a booting or stopping machine to its next state."""
        with self._lock:
            self._verb("inspect")
            rented = self._rented.get(machine_id)
            if rented is None or self._hide_once(rented):
                return Machine(id=machine_id, token="", state=MachineState.TERMINATED)
            if rented.is_refused and rented.machine.state is not MachineState.TERMINATED:
                self._remove(machine_id, "no capacity after all", ended="capacity")
            elif rented.machine.state is MachineState.REQUESTED:
                rented.machine = replace(rented.machine, state=MachineState.BOOTING)
            elif rented.looks_left > 0:
                rented.looks_left -= 1
            elif rented.machine.state is MachineState.BOOTING:
                endpoint = FakeEndpoint(machine_id)
                rented.machine = replace(
                    rented.machine, state=MachineState.READY, endpoint=endpoint
                )
            elif rented.machine.state is MachineState.STOPPING:
                self._remove(machine_id, rented.machine.detail, ended=rented.machine.ended)
            return rented.machine

    def terminate(self, machine_id: str) -> None:
        """Start to terminate a machine."""
        with self._lock:
            self._verb("terminate")
            self.terminates += 1
            rented = self._rented.get(machine_id)
            over = {MachineState.STOPPING, MachineState.TERMINATED}
            if rented is None or rented.machine.state in over:
                return
            rented.computer.kill()
            rented.machine = replace(rented.machine, state=MachineState.STOPPING)
            rented.looks_left = self.stop_looks

    def inventory(self) -> tuple[Machine, ...]:
        """Return the machines that a call of the provider would list."""
        with self._lock:
            self._verb("inventory")
            hidden = {id_ for id_, one in self._rented.items() if self._hide_once(one)}
            return tuple(machine for machine in self.live() if machine.id not in hidden)

    def _make(self, machine_id: str, request: LaunchRequest) -> None:
        self.made += 1
        machine = Machine(
            id=machine_id,
            token=request.token,
            state=MachineState.REQUESTED if self.is_ordered_first else MachineState.BOOTING,
            tags=request.tags,
            facts={
                "instance_id": machine_id,
                "zone": request.place.name,
                "image_id": self.images.get(request.place.name, IMAGE),
            },
        )
        rented = _Rented(machine, FakeComputer(), self.boot_looks, self.hidden_looks)
        self._rented[machine_id] = rented

    def _hide_once(self, rented: _Rented) -> bool:
        rented.hidden_looks -= 1
        return rented.hidden_looks >= 0

    def _remove(self, machine_id: str, detail: str, *, ended: str) -> None:
        rented = self._rented[machine_id]
        rented.computer.kill()
        rented.looks_left = 0
        rented.machine = replace(
            rented.machine, state=MachineState.TERMINATED, detail=detail, ended=ended
        )

    def _next_fault(self, place: str) -> LaunchFault | None:
        queue = self._faults.get(place)
        return queue.popleft() if queue else self._lasting_faults.get(place)

    def _verb(self, verb: str) -> None:
        left = self._verb_faults.get(verb, 0)
        if left > 0:
            self._verb_faults[verb] = left - 1
            raise ProviderUnavailableError(f"the fake cloud's {verb} is scripted to fail")

    def _error(self, fault: LaunchFault | None, place: str) -> ProviderError:
        if fault is None:
            raise ValueError("no fault")
        message = f"the fake cloud is scripted to answer {place} with: {fault}"
        extent = self.extents.get(fault, Extent.PLACE)
        return ERRORS[fault](message, code=fault.name, extent=extent)


TRAITS = ProviderTraits(
    name="fake", keys=frozenset({"locations"}), rented=True, metadata_guard=True
)
DEFAULT_LOCATIONS = ("nowhere",)


class FakeProvider:
    """Rents machines of a `FakeCloud`."""

    def __init__(self, context: ProviderContext, cloud: FakeCloud | None = None) -> None:
        self.context = context
        self.cloud = cloud or FakeCloud()

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the platform's locations in their order. Raises ConfigError."""
        listed = DEFAULT_LOCATIONS if platform.locations is None else platform.locations
        if isinstance(listed, str) or not listed:
            raise ConfigError("locations: list at least one name")
        return tuple(
            Place(
                name=name,
                zone=name,
                region=name.rstrip("abc"),
                market="on-demand",
                price_usd_per_hour=self.cloud.prices.get(name, PRICE_USD_PER_HOUR),
            )
            for name in listed
        )

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image that a machine would boot now. Raises ProviderError."""
        return BootImage(self.cloud.image(place.name))

    def launch(self, request: LaunchRequest) -> Machine:
        """Create a machine; the same token returns the same one."""
        return self.cloud.launch(request)

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine's present state."""
        return self.cloud.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        """Start to terminate the machine."""
        self.cloud.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Yield every machine that is not gone."""
        return self.cloud.inventory()


class MemoryHostStore:
    """Remembers machines for as long as it exists."""

    def __init__(self) -> None:
        self._machines: dict[tuple[str, str], Machine] = {}
        self._lock = threading.Lock()

    def write(self, provider: str, machine: Machine) -> None:
        """Store or replace the machine."""
        with self._lock:
            self._machines[provider, machine.id] = machine

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """Return the stored machine, or None."""
        return self._machines.get((provider, machine_id))

    def erase(self, provider: str, machine_id: str) -> None:
        """Delete the record; a missing one is no error."""
        with self._lock:
            self._machines.pop((provider, machine_id), None)

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Return every machine stored for the provider."""
        with self._lock:
            return tuple(one for (owner, _), one in self._machines.items() if owner == provider)
