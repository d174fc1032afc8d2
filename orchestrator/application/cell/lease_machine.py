"""Stores in the ledger whether the machine of a lease is known, not granted yet, or gone."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.janitor import MACHINES
from orchestrator.domain.cell import Lease, LeaseFact
from orchestrator.domain.machine import (
    Machine,
    MachineState,
    PartialInventoryError,
    Provider,
    ProviderError,
)

logger = logging.getLogger(__name__)


def activate(deps: FlowDeps, lease: Lease, machine: Machine, *, is_granted: bool = False) -> Lease:
    """Store the machine's id on its lease; the provider's inventory may not list the machine yet.

    `is_granted`: whether the provider has granted the queued request.
    """
    at = deps.clock.now()
    facts = {**machine.facts, LeaseFact.ASKED_AT: at.isoformat()}
    if is_granted:
        facts[LeaseFact.GRANTED_AT] = at.isoformat()
    return deps.stores.leases.active(
        lease.id, machine.id, at=at, facts=facts, simulated=machine.simulated
    )


def note_still_ordered(deps: FlowDeps, lease: Lease, machine: Machine, *, at: datetime) -> Lease:
    """Store at intervals that the machine is not granted yet, so that this time is not billed.

    A machine without a token may be another one or granted already, so nothing is stored for it.
    """
    since = lease.billed_from
    if machine.state is not MachineState.REQUESTED or not machine.token:
        return lease
    if since is None or at - since >= timedelta(seconds=deps.timings.note_every_s):
        facts = {**lease.facts, LeaseFact.ORDERED_AT: at.isoformat()}
        return deps.stores.leases.note(lease.id, facts, simulated=lease.simulated)
    return lease


def resolve_unanswered_launch(
    deps: FlowDeps, lease: Lease, provider: Provider, *, refusal: str
) -> bool:
    """Adopt the machine of an unanswered launch call, found by its token, or close the lease.

    Returns: Whether the lease was closed; False also if it is too early to know.
    """
    at = deps.clock.now()
    if not deps.backoff.is_due(lease.id, at):
        return False
    try:
        found = find_by_token(provider, lease)
    except ProviderError as error:
        logger.warning("lease %s: the inventory is not available: %s", lease.id, error)
        found = None
    else:
        is_sure = at - lease.asked_at >= timedelta(seconds=deps.timings.never_made_after_s)
        if found is None and is_sure:
            leases = deps.stores.leases
            leases.gone(lease.id, at=at, cost_usd=Decimal(0), refusal=refusal)
            return True
    if found is None:
        deps.backoff.trouble(lease.id, deps.clock.now())
    else:
        deps.backoff.forget(lease.id)
        activate(deps, lease, found)
    return False


def find_by_token(provider: Provider, lease: Lease) -> Machine | None:
    """Return the machine with the lease's token, or None. Raises ProviderError."""
    try:
        found = provider.inventory()
    except PartialInventoryError as error:
        if error.hides(lease.place):
            raise
        found = error.machines
    return next((m for m in found if m.kind in MACHINES and m.token == lease.id), None)


def is_young(deps: FlowDeps, lease: Lease, *, at: datetime) -> bool:
    """Whether the lease is so young that the provider may not list its machine yet."""
    return at - lease.asked_at < timedelta(seconds=deps.timings.visible_after_s)


def is_gone(deps: FlowDeps, lease: Lease, machine: Machine, *, at: datetime) -> bool:
    """Whether the machine is certainly gone, and not only too young to be listed.

    Args:
        deps: The ports.
        lease: The lease of the machine.
        machine: The provider's description of it.
        at: Time of the request to the provider, whose answer may have taken long.
    """
    is_known = bool(machine.token or machine.ended or lease.is_seen)
    return machine.state is MachineState.TERMINATED and (
        is_known or not is_young(deps, lease, at=at)
    )
