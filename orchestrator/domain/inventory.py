"""Inventory of a project's cloud resources with their owners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.machine import MachineState


class Ownership(StrEnum):
    """Whether a resource has an owner, by the ledger and the resource's tags."""

    LEASED = "leased"
    """An open lease refers to it."""
    ORPHAN = "orphan"
    """It has this controller's tags and no open lease."""
    EXPIRED = "expired"
    """Another controller of the project owns it, and it is past its expiry."""
    FOREIGN = "foreign"
    """Another controller of the project owns it, before its expiry."""
    SHARED = "shared"
    """Machines of the project share it, and some of them exist."""
    IDLE = "idle"
    """Machines of the project share it, and none of them exists."""


DOOMED = frozenset({Ownership.ORPHAN, Ownership.EXPIRED, Ownership.IDLE})


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cloud resource without an owner, as found by the janitor's last sweep."""

    provider: str
    machine_id: str
    """The id; a very long id is cut and ends with a hash."""
    first_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceResponse:
    """A cloud resource with its owner."""

    provider: str
    id: str
    kind: str
    """Kind of resource: ``machine``, ``disk``, ``firewall`` or others that cost or remain."""
    state: MachineState
    ownership: Ownership
    """The owner; the janitor terminates resources that are ``orphan``, ``expired`` or ``idle``."""
    run: str
    cell: str
    """Name of the cell in the run; for another controller's machine, the cell's id."""
    attempt: str
    token: str
    controller: str
    expires_at: datetime | None
    first_seen: datetime | None
    """When the janitor first found it without an owner; None if it has not."""
    ends_after: datetime | None
    """When the janitor will terminate it; None if it will not."""
    detail: str
    facts: Mapping[str, str]
    simulated: bool


@dataclass(frozen=True, slots=True)
class InventoryResponse:
    """Every cloud resource of this project."""

    items: tuple[ResourceResponse, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Providers that could not be read, with the reason."""
    asked: tuple[str, ...] = ()
    """Providers that were asked: those that are configured or have leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedMachine:
    """A machine, or its disk or address, that the emergency stop found."""

    provider: str
    id: str
    kind: str
    state: MachineState
    """The state before the request to terminate it."""
    run: str
    """Id of the run by its tag; empty without a tag."""
    failure: str
    """Why the provider refused the request to terminate it; empty if it accepted."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The result of the emergency stop."""

    items: tuple[StoppedMachine, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Providers with a failed or incomplete inventory, with the reason."""
    asked: tuple[str, ...] = ()
    """Providers with credentials; resources of other providers are not known."""
    cancelled: tuple[str, ...] = ()
    """Ids of the cancelled runs."""
    not_cancelled: str = ""
    """Why runs were not cancelled and may launch machines again; empty if all were cancelled."""
