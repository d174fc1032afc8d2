"""Bugs of the lease protocol, each put between the code and what it uses, to be caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from orchestrator.domain.cell import Lease, LeaseState
from orchestrator.domain.machine import LaunchRequest, Login, Machine, MachineState, Provider
from orchestrator.store.leases import LeaseStore, Reservation, Reserved
from orchestrator.store.stores import Stores
from tests.integration.faulty_script import Answer
from tests.integration.leak_plot import Plant, Plot


@dataclass(slots=True)
class Through:
    """A provider that passes everything on."""

    line: Provider

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self.line, name)

    def launch(self, request: LaunchRequest) -> Machine:
        return self.line.launch(request)

    def inspect(self, machine_id: str) -> Machine:
        return self.line.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        self.line.terminate(machine_id)

    def inventory(self) -> list[Machine]:
        return list(self.line.inventory())

    def places(self, platform: Mapping[str, object]) -> object:
        return self.line.places(platform)

    def is_configured(self) -> bool:
        return True


@dataclass(slots=True)
class LateLedger:
    """A new lease is written only when its launch call was answered."""

    store: LeaseStore
    kept: dict[str, tuple[Lease, dict[str, object]]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self.store, name)

        def write_first(*arguments: object, **named: object) -> object:
            if arguments and isinstance(arguments[0], str) and arguments[0] in self.kept:
                self._write(arguments[0])
            return method(*arguments, **named)

        return write_first

    def reserve(self, lease: Lease, **named: object) -> Reserved:
        self.kept[lease.id] = (lease, named)
        return Reserved(Reservation.RESERVED)

    def launching(self, lease_id: str, *, at: datetime) -> Lease:
        if lease_id not in self.kept:
            return self.store.launching(lease_id, at=at)
        lease, named = self.kept[lease_id]
        if lease.state is LeaseState.RESERVED:
            lease = replace(lease, state=LeaseState.LAUNCHING, launched_at=at)
            self.kept[lease_id] = (lease, named)
        return lease

    def get(self, lease_id: str) -> Lease:
        return self.kept[lease_id][0] if lease_id in self.kept else self.store.get(lease_id)

    def of_attempt(self, attempt_id: str) -> list[Lease]:
        kept = [lease for lease, _ in self.kept.values() if lease.attempt_id == attempt_id]
        return self.store.of_attempt(attempt_id) + kept

    def keep_login(self, lease_id: str, login: Login) -> Login:
        return login if lease_id in self.kept else self.store.keep_login(lease_id, login)

    def login(self, lease_id: str) -> Login | None:
        return None if lease_id in self.kept else self.store.login(lease_id)

    def _write(self, lease_id: str) -> None:
        lease, named = self.kept.pop(lease_id)
        self.store.reserve(replace(lease, state=LeaseState.RESERVED, launched_at=None), **named)
        if lease.launched_at is not None:
            self.store.launching(lease_id, at=lease.launched_at)


@dataclass(slots=True)
class OneTokenEverywhere(Through):
    """The token is the attempt's, at whichever place."""

    def launch(self, request: LaunchRequest) -> Machine:
        token = request.token.rpartition("-")[0]
        tags = {**request.tags, "seatrial-token": token}
        return Through.launch(self, replace(request, token=token, tags=tags))


@dataclass(slots=True)
class NewTokenEachTime(Through):
    """A call that is repeated has a token of its own."""

    calls: Counter[str] = field(default_factory=Counter)

    def launch(self, request: LaunchRequest) -> Machine:
        self.calls[request.token] += 1
        token = f"{request.token}.{self.calls[request.token]}"
        return self.line.launch(replace(request, token=token))


@dataclass(slots=True)
class Trusting(Through):
    """What was told to end is believed to be gone."""

    told: set[str] = field(default_factory=set)

    def terminate(self, machine_id: str) -> None:
        self.line.terminate(machine_id)
        self.told.add(machine_id)

    def inspect(self, machine_id: str) -> Machine:
        if machine_id in self.told:
            return Machine(machine_id, "said", MachineState.TERMINATED)
        return self.line.inspect(machine_id)


class BlindToQueues(Through):
    """An inventory of machines and disks alone."""

    __slots__ = ()

    def inventory(self) -> list[Machine]:
        return [one for one in self.line.inventory() if one.kind != "queued-resource"]


class BlindToDisks(Through):
    """An inventory of machines alone."""

    __slots__ = ()

    def inventory(self) -> list[Machine]:
        return [one for one in self.line.inventory() if one.kind != "disk"]


class Grasping(Through):
    """Everything in the project is taken for one's own."""

    __slots__ = ()

    def inventory(self) -> list[Machine]:
        mine = {"seatrial-controller": self.line.who}
        return [replace(one, tags={**one.tags, **mine}) for one in self.line.inventory()]


def _leads_elsewhere(plot: Plot) -> Plot:
    """A lost answer, and a refusal for the whole region: on to the next one."""
    answers = (Answer.LOST, Answer.AUTH_REGION)
    cloud = replace(plot.cloud, answers=answers, outages=(), fates=())
    return replace(plot, cloud=cloud, crashes=(), cancel_at_s=None)


def _late(stores: Stores) -> Stores:
    return replace(stores, leases=LateLedger(stores.leases))


@dataclass(frozen=True, slots=True)
class Bug:
    """A plant, and what the proof says of it."""

    plant: Plant
    said: str
    shows_in: Callable[[Plot], Plot] = lambda plot: plot
    """Where it is looked for."""


BUGS: Mapping[str, Bug] = {
    "the ledger is written after the launch call": Bug(Plant(stores=_late), "unpaid"),
    "a token is used in two zones": Bug(
        Plant(provider=OneTokenEverywhere), "launched twice|open lease", _leads_elsewhere
    ),
    "a repeated call has a new token": Bug(Plant(provider=NewTokenEachTime), "launched twice"),
    "the janitor ignores queued resources": Bug(Plant(janitors_provider=BlindToQueues), "left"),
    "the janitor ignores disks": Bug(Plant(janitors_provider=BlindToDisks), "left"),
    "the janitor takes others' for its own": Bug(Plant(janitors_provider=Grasping), "janitor"),
    "terminate is trusted": Bug(Plant(provider=Trusting), "unverified|unpaid"),
}
