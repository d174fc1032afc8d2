"""The janitor: compares cloud inventories with the ledger, and ends orphans.

It ends no resource at the first sighting. A resource of its own controller that the ledger has
closed, or never had, is ended if it still exists after a grace that is longer than any launch. A
resource of another controller of the project is left alone until it has expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from orchestrator.application.cell.flow_context import record_machine_ended_at, require_machine_of
from orchestrator.domain.cell import Lease, LeaseState
from orchestrator.domain.inventory import DOOMED, Ownership
from orchestrator.domain.machine import (
    Credentialed,
    Machine,
    MachineState,
    PartialInventoryError,
    Provider,
    ProviderError,
    ProviderTraits,
)
from orchestrator.domain.money import machine_cost
from orchestrator.store.stores import Stores

logger = logging.getLogger(__name__)

ORPHAN_GRACE = timedelta(minutes=20)
"""Time from the first sighting of an orphan to its end."""
EXPIRED_GRACE = timedelta(minutes=5)
"""Time after `expires-at` before another controller ends a resource."""
SECOND_LOOK = timedelta(seconds=60)
"""Time from the first sighting of an expired resource to its end."""
PARTING_LOOK = timedelta(seconds=15)
"""Time between two sightings of an idle shared resource before a leaving controller ends it."""
MACHINES = frozenset({"machine", "queued-resource"})


@dataclass(frozen=True, slots=True)
class CloudResource:
    """A cloud resource with its ownership."""

    provider: str
    machine: Machine
    ownership: Ownership
    lease: Lease | None
    expires_at: datetime | None
    first_seen: datetime | None = None
    """When it was first seen without an owner."""
    ends_after: datetime | None = None
    """When the janitor will end it."""


@dataclass(frozen=True, slots=True)
class InventoryReport:
    """All cloud resources of the project."""

    resources: tuple[CloudResource, ...]
    unread: Mapping[str, str]
    """Providers that could not be read, with the reason."""
    asked: tuple[str, ...] = ()
    """Providers that were asked."""


@dataclass(frozen=True, slots=True)
class LastLook:
    """The last inventory of a provider."""

    at: datetime
    resources: tuple[CloudResource, ...] = ()
    """Resources at the last success."""
    read_at: datetime | None = None
    """Time of the last success; None without one."""
    unread: str = ""
    """Why the last inventory failed; empty if it did not."""


class LastLooks:
    """Last inventories of this process by provider, for immediate display."""

    def __init__(self) -> None:
        self._looks: dict[str, LastLook] = {}
        self._gaps: set[tuple[str, str]] = set()

    def read(self, provider: str, cloud_resources: Iterable[CloudResource], at: datetime) -> None:
        """Store an inventory that succeeded."""
        self._looks[provider] = LastLook(at, tuple(cloud_resources), at)

    def failed(self, provider: str, why: str, at: datetime) -> None:
        """Store that an inventory failed; the last successful one is kept."""
        before = self._looks.get(provider, LastLook(at))
        self._looks[provider] = replace(before, at=at, unread=why)

    def note_gap(self, provider: str, place: str) -> bool:
        """Store that a region or zone cannot be read; return whether this is the first time."""
        is_first = (provider, place) not in self._gaps
        self._gaps.add((provider, place))
        return is_first

    def all(self) -> Mapping[str, LastLook]:
        """Return the last inventories by provider."""
        return dict(sorted(self._looks.items()))


@dataclass(frozen=True, slots=True)
class Janitor:
    """Sweeps the cloud resources of one project for one controller."""

    stores: Stores
    provider: Callable[[str], Provider]
    traits: Mapping[str, ProviderTraits]
    project: str
    controller: str
    now: Callable[[], datetime]
    settings: Mapping[str, str]
    """The settings that providers are given."""
    looks: LastLooks = field(default_factory=LastLooks)
    """The last inventories."""

    def take_inventory(self, providers: Iterable[str] | None = None) -> InventoryReport:
        """Read the inventory of `providers`.

        By default of all that are configured or have leases.
        """
        sights: list[CloudResource] = []
        unread: dict[str, str] = {}
        asked = tuple(self._used() if providers is None else providers)
        for name in asked:
            gap: PartialInventoryError | None = None
            try:
                found = self.provider(name).inventory()
            except PartialInventoryError as error:
                found, gap = error.machines, error
            except ProviderError as error:
                unread[name] = str(error)
                self.looks.failed(name, str(error), self.now())
                continue
            seen = self._seen(name, [m for m in found if self._is_of_project(m)], gap)
            self.looks.read(name, seen, self.now())
            if gap is not None and self._may_hide_ours(name, gap):
                unread[name] = str(gap)
                self.looks.failed(name, str(gap), self.now())
            sights += seen
        return InventoryReport(tuple(sights), unread, asked)

    def sweep(self, *, known_only: bool = False, is_leaving: bool = False) -> list[CloudResource]:
        """Terminate what is due; return the resources whose termination was requested.

        Args:
            known_only: Ask only the providers that have leases in the ledger.
            is_leaving: No later sweep is certain: end what is shared once two looks found it idle.
        """
        self._settle()
        survey = self.take_inventory(self._known() if known_only else None)
        for name, why in survey.unread.items():
            logger.warning("janitor: %s cannot be swept: %s", name, why)
        due = (sight for sight in survey.resources if self._is_due(sight, is_leaving=is_leaving))
        return [sight for sight in due if self.end(sight)]

    def end(self, cloud_resource: CloudResource) -> bool:
        """Terminate a resource now; False if that failed and will be retried.

        What is needed again by now is left: False too.
        """
        machine, lease = cloud_resource.machine, cloud_resource.lease
        if (needs := self.needed_by(cloud_resource)) is not None:
            what, whose = f"{machine.kind} {machine.id}", f"lease {needs.id} of {needs.provider}"
            logger.info("janitor: %s is left: %s is open, and may need it", what, whose)
            return False
        if lease is not None and _is_unpaid(machine, lease):
            # it was ruled out too early: the ledger pays for the machine after all
            self.stores.leases.reopen(lease.id, machine.id)
        try:
            self.provider(cloud_resource.provider).terminate(machine.id)
        except ProviderError as error:
            logger.warning("janitor: %s %s is not ended yet: %s", machine.kind, machine.id, error)
            return False
        logger.warning(
            "janitor: ended %s %s (%s)", machine.kind, machine.id, cloud_resource.ownership
        )
        return True

    def needed_by(self, cloud_resource: CloudResource) -> Lease | None:
        """Return the open lease whose machine may use an idle resource.

        The inventory may be old, so the ledger decides: a launch writes its lease before it looks
        for existing resources.
        """
        if cloud_resource.ownership is not Ownership.IDLE:
            return None
        is_open = (
            one for one in self.stores.leases.open() if one.provider == cloud_resource.provider
        )
        return next(is_open, None)

    def _may_hide_ours(self, name: str, gap: PartialInventoryError) -> bool:
        """Return whether a lease was ever where nothing can be read; else log that once."""
        if any(map(gap.hides, self.stores.leases.places(name))):
            return True
        for place, why in gap.gaps.items():
            if self.looks.note_gap(name, place):
                logger.warning("janitor: %s %s is not swept: %s", name, place, why)
        return False

    def _settle(self) -> None:
        """Terminate a machine that appeared late, and close its lease."""
        for lease in self.stores.leases.open():
            if self.stores.cells.attempt(lease.attempt_id).closed_at is None:
                continue
            try:
                provider = self.provider(lease.provider)
                machine = provider.inspect(lease.machine_id)
                if machine.state is not MachineState.TERMINATED:
                    require_machine_of(lease, machine, self.project)
                    provider.terminate(lease.machine_id)
            except ProviderError as error:
                logger.warning("janitor: lease %s is not settled yet: %s", lease.id, error)
                continue
            lease = record_machine_ended_at(
                self.stores, lease, machine, since=lease.launched_at, at=self.now()
            )
            if machine.state is MachineState.TERMINATED:
                at = self.now()
                cost = machine_cost(lease, at)
                self.stores.leases.gone(lease.id, at=at, cost_usd=cost, refusal=lease.refusal)

    def _is_due(self, cloud_resource: CloudResource, *, is_leaving: bool) -> bool:
        if (
            is_leaving
            and cloud_resource.ownership is Ownership.IDLE
            and cloud_resource.first_seen is not None
        ):
            return self.now() >= cloud_resource.first_seen + PARTING_LOOK
        return cloud_resource.ends_after is not None and self.now() >= cloud_resource.ends_after

    def _known(self) -> list[str]:
        found = self.stores.leases.providers()
        return [name for name in found if name in self.traits and self.traits[name].rented]

    def _used(self) -> list[str]:
        known = self._known()
        rented = (name for name, traits in sorted(self.traits.items()) if traits.rented)
        return [name for name in rented if name in known or self._is_configured(name)]

    def _is_configured(self, name: str) -> bool:
        """Whether a cloud is installed and has credentials; its network is not asked.

        A cloud without its setting is not loaded: Google's libraries take seconds and 90 MB.
        """
        setting = self.traits[name].setting
        if setting and not self.settings.get(setting):
            return False
        try:
            provider = self.provider(name)
        except ProviderError:
            return False
        return isinstance(provider, Credentialed) and provider.is_configured()

    def _is_of_project(self, machine: Machine) -> bool:
        is_ours = machine.tags.get("seatrial-project") == self.project
        return is_ours and machine.state is not MachineState.TERMINATED

    def _seen(
        self, provider: str, machines: list[Machine], gap: PartialInventoryError | None
    ) -> list[CloudResource]:
        leases = self.stores.leases.by_token({m.token for m in machines if m.token})
        sights = [self._inspect(provider, m, leases.get(m.token), machines) for m in machines]
        doomed = {sight.machine.id for sight in sights if sight.ownership in DOOMED}
        cleared: set[str] | None = None
        if gap is not None:
            # What has no region may serve a machine in one that cannot be read.
            undecided = {
                sight.machine.id
                for sight in sights
                if sight.ownership is Ownership.IDLE and "region" not in sight.machine.facts
            }
            sights = [
                replace(sight, ownership=Ownership.SHARED)
                if sight.machine.id in undecided
                else sight
                for sight in sights
            ]
            cleared = {sight.machine.id for sight in sights} - doomed
            doomed -= undecided
        first = self.stores.orphans.see(provider, doomed, at=self.now(), cleared=cleared)
        return [_dated(sight, first.get(sight.machine.id)) for sight in sights]

    def _inspect(
        self, provider: str, machine: Machine, lease: Lease | None, machines: list[Machine]
    ) -> CloudResource:
        ownership = self._ownership(machine, lease, machines)
        return CloudResource(provider, machine, ownership, lease, _expires_at(machine))

    def _ownership(
        self, machine: Machine, lease: Lease | None, machines: list[Machine]
    ) -> Ownership:
        if machine.tags.get("seatrial-shared"):
            needed = any(one.kind in MACHINES for one in machines)
            return Ownership.SHARED if needed else Ownership.IDLE
        if lease is not None:
            return _ownership_of_leased(machine, lease)
        if machine.tags.get("seatrial-controller") == self.controller:
            return Ownership.ORPHAN
        expires = _expires_at(machine)
        over = expires is not None and self.now() >= expires + EXPIRED_GRACE
        return Ownership.EXPIRED if over else Ownership.FOREIGN


def _ownership_of_leased(machine: Machine, lease: Lease) -> Ownership:
    if lease.state is LeaseState.GONE:
        return Ownership.ORPHAN
    another = lease.machine_id and not _is_same(machine.id, lease.machine_id)
    return Ownership.ORPHAN if another and machine.kind in MACHINES else Ownership.LEASED


def _is_unpaid(machine: Machine, lease: Lease) -> bool:
    """Whether a machine of a lease exists that was closed too early."""
    is_its = lease.machine_id in ("", machine.id) and machine.kind in MACHINES
    return is_its and lease.state is LeaseState.GONE


def _is_same(one: str, other: str) -> bool:
    """Whether both ids are one resource: a queued resource and its node share place and name."""
    here, there = one.split("/"), other.split("/")
    return (here[0], here[-1]) == (there[0], there[-1])


def _dated(cloud_resource: CloudResource, first_seen: datetime | None) -> CloudResource:
    if first_seen is None:
        return cloud_resource
    grace = SECOND_LOOK if cloud_resource.ownership is Ownership.EXPIRED else ORPHAN_GRACE
    return CloudResource(
        cloud_resource.provider,
        cloud_resource.machine,
        cloud_resource.ownership,
        cloud_resource.lease,
        cloud_resource.expires_at,
        first_seen,
        first_seen + grace,
    )


def _expires_at(machine: Machine) -> datetime | None:
    """Return the expiry tag; None if it is no time."""
    try:
        return datetime.fromtimestamp(int(machine.tags.get("seatrial-expires-at", "")), UTC)
    except (ValueError, OverflowError, OSError):
        return None
