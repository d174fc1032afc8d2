"""Inventory of a project's cloud resources, with the owner of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.machine import MachineState


class Ownership(StrEnum):
    """Owner of a resource, by the ledger and its tags."""

    LEASED = "leased"
    """An open lease holds it."""
    ORPHAN = "orphan"
    """Tagged by this controller, without an open lease."""
    EXPIRED = "expired"
    """Owned by another controller of the project, past its expiry."""
    FOREIGN = "foreign"
    """Owned by another controller of the project, before its expiry."""
    SHARED = "shared"
    """Shared by machines of the project, of which some exist."""
    IDLE = "idle"
    """Shared by machines of the project, of which none exists."""


DOOMED = frozenset({Ownership.ORPHAN, Ownership.EXPIRED, Ownership.IDLE})


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cloud resource without an owner, at the janitor's last sweep."""

    provider: str
    machine_id: str
    """The id; a very long one is cut and ends with a hash."""
    first_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceResponse:
    """A cloud resource with its owner."""

    provider: str
    id: str
    kind: str
    """``machine``, or what else costs or lingers: ``disk``, ``firewall`` ..."""
    state: MachineState
    ownership: Ownership
    """The janitor ends ``orphan``, ``expired`` and ``idle`` ones."""
    run: str
    cell: str
    """Cell name in the run; of another controller's machine, the cell id."""
    attempt: str
    token: str
    controller: str
    expires_at: datetime | None
    first_seen: datetime | None
    """When it was first seen without an owner."""
    ends_after: datetime | None
    """When the janitor will end it."""
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
    """A machine, or a disk or address of one, that the emergency stop found."""

    provider: str
    id: str
    kind: str
    state: MachineState
    """The provider's description before the request to end it."""
    run: str
    """By its tag; empty if it has none."""
    failure: str
    """Why the provider did not take the order to end it; empty if it did."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """Result of the emergency stop: resources found and terminated, and clouds not read."""

    items: tuple[StoppedMachine, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Providers whose inventory failed or is incomplete, with the reason."""
    asked: tuple[str, ...] = ()
    """Providers with credentials; nothing is known of any other."""
    cancelled: tuple[str, ...] = ()
    """Ids of the runs that it cancelled."""
    not_cancelled: str = ""
    """Why runs were not cancelled, so that they may launch machines again; empty if all were."""
