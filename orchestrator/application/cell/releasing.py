"""RELEASING: terminates every machine of the attempt, and verifies it with the provider."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from orchestrator.application.cell.diagnosing import folders_of
from orchestrator.application.cell.finishing import cell_outcome, may_try_again
from orchestrator.application.cell.flow_context import (
    GO,
    FlowDeps,
    enter,
    is_unreachable,
    leave,
    overdue,
    record_failure,
    record_machine_ended_at,
    require_machine_of,
    state_of,
)
from orchestrator.application.cell.lease_machine import (
    is_gone,
    note_still_ordered,
    resolve_unanswered_launch,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState, Lease, LeaseFact, LeaseState
from orchestrator.domain.machine import (
    Endpoint,
    MachineError,
    SshEndpoint,
)
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.store.cells import AttemptState

logger = logging.getLogger(__name__)


def record_bug(deps: FlowDeps, attempt_id: str, error: Exception) -> Value:
    """Store an internal error as the attempt's cause."""
    logger.error("attempt %s: an error of our own", attempt_id, exc_info=error)
    detail = f"{type(error).__name__}: {error}"
    return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.CONTROLLER, detail)


def poll_release(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Release each machine until no lease of the attempt is open; errors only delay the release."""
    try:
        now = state_of(deps, attempt_id)
        now = enter(deps, now, CellState.RELEASING)
        held_for = hold_outcome(deps, now)
        if held_for is not None:
            _notify_hold(deps, now, held_for)
            return NOT_YET
        if not _is_due(deps, now):
            return NOT_YET
        leases = deps.stores.leases.of_attempt(attempt_id)
        closed = [_release_lease(deps, now, x) for x in leases if x.state is not LeaseState.GONE]
    except Exception as error:
        if deps.contact_log.remember(attempt_id, repr(error)):
            logger.exception("attempt %s: its machine could not be released yet", attempt_id)
        return NOT_YET
    if not all(closed):
        return NOT_YET
    leave(deps, replace(now, lease=None))
    return GO


_PAUSE_SHARE = 0.2
_LONGEST_PAUSE = timedelta(seconds=15)


def _is_due(deps: FlowDeps, now: AttemptState) -> bool:
    """Whether the provider is due to be called again; the interval grows while the machine ends.

    A GPU machine of EC2 takes five minutes to shut down, and an account may make only few calls per
    second.
    """
    at, times, key = deps.clock.now(), deps.contact_log.inspected_at, f"{now.attempt.id}/release"
    begun = times.setdefault(f"{key}/begun", at)
    last = times.get(key)
    if last is not None and at - last < min((last - begun) * _PAUSE_SHARE, _LONGEST_PAUSE):
        return False
    times[key] = at
    return True


def _release_lease(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Take the next step towards closing the lease; return whether it is closed."""
    match lease.state:
        case LeaseState.RESERVED:
            deps.stores.leases.gone(lease.id, at=deps.clock.now(), cost_usd=Decimal(0))
            return True
        case LeaseState.LAUNCHING:
            return resolve_unanswered_launch(
                deps, lease, deps.provider(lease.provider), refusal="never made"
            )
        case LeaseState.ACTIVE:
            return _terminate_lease(deps, now, lease)
    return _close_if_gone(deps, now, lease)


def _terminate_lease(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Clean the machine, then terminate it; return whether the lease is closed."""
    if lease.endpoint is not None and not _clean_machine(deps, now, lease, lease.endpoint):
        return False
    provider = deps.provider(lease.provider)
    try:
        machine = provider.inspect(lease.machine_id)
        require_machine_of(lease, machine, deps.identity.project)
        lease = note_still_ordered(deps, lease, machine, at=deps.clock.now())
        provider.terminate(lease.machine_id)
    except MachineError as error:
        logger.warning("lease %s: not terminated yet: %s", lease.id, error)
        return False
    deps.stores.leases.releasing(lease.id)
    return _close_if_gone(deps, now, lease)


def _clean_machine(deps: FlowDeps, now: AttemptState, lease: Lease, way: Endpoint) -> bool:
    """Remove the attempt's folders; return whether the machine may be terminated.

    A rented machine is not cleaned, as it is terminated. After `close_s`, or if the machine is
    unreachable, it is terminated without cleaning.
    """
    try:
        workspace = deps.open_workspace(way)
        if not (isinstance(way, SshEndpoint) and way.lease):
            for folder in folders_of(deps, now):
                workspace.close(folder)
        workspace.disconnect()
    except MachineError as error:
        late = overdue(deps, now.cell, deps.timings.close_s)
        if not late and not is_unreachable(now.attempt):
            return False
        logger.warning("lease %s: terminated without cleaning: %s", lease.id, error)
    return True


def _close_if_gone(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Close the lease if the provider reports that the machine is gone, else terminate it again."""
    provider, at = deps.provider(lease.provider), deps.clock.now()
    try:
        machine = provider.inspect(lease.machine_id)
        lease = note_still_ordered(deps, lease, machine, at=at)
        lease = record_machine_ended_at(
            deps.stores, lease, machine, since=now.cell.entered_at, at=at
        )
        if not is_gone(deps, lease, machine, at=at):
            require_machine_of(lease, machine, deps.identity.project)
            provider.terminate(lease.machine_id)
            return False
    except MachineError as error:
        logger.warning("lease %s: cannot be verified yet: %s", lease.id, error)
        return False
    if lease.billed_from is not None and _was_never_held(deps, now, lease):
        facts: dict[str, str] = {LeaseFact.ENDED_AT: lease.billed_from.isoformat()}
        lease = deps.stores.leases.note(lease.id, facts, simulated=lease.simulated)
    at = deps.clock.now()
    deps.stores.leases.gone(lease.id, at=at, cost_usd=machine_cost(lease, at))
    return True


def _was_never_held(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Whether the machine is an own host that the attempt never reached."""
    if deps.traits(lease.provider).rented:
        return False
    steps = deps.stores.cells.transitions(now.cell.id)
    mine = [step.to_state for step in steps if step.attempt == now.attempt.number]
    return CellState.PREPARING not in mine


_NEVER_HELD = (Outcome.PASSED, Outcome.CANCELLED, Outcome.NOT_AVAILABLE)


def hold_outcome(deps: FlowDeps, now: AttemptState) -> Outcome | None:
    """Return the outcome for which a person keeps the machine; None if the machine is released.

    Cancelling the run and the time limit end a hold.
    """
    minutes, lease = now.spec.hold_minutes, now.lease
    if not minutes or lease is None or lease.state is not LeaseState.ACTIVE:
        return None
    if not isinstance(lease.endpoint, SshEndpoint) or now.run.cancel_requested_at is not None:
        return None
    if overdue(deps, now.cell, minutes * 60) or may_try_again(deps, now):
        return None
    outcome = cell_outcome(deps, now.cell, now.spec, now.attempt.cause).outcome
    return None if outcome in _NEVER_HELD else outcome


def _notify_hold(deps: FlowDeps, now: AttemptState, outcome: Outcome) -> None:
    """Add a notice that the machine is kept; once per process."""
    if not deps.contact_log.remember(now.attempt.id, "held"):
        return
    begin = now.cell.entered_at or deps.clock.now()
    until = begin + timedelta(minutes=now.spec.hold_minutes)
    notice = (
        f"{outcome}: its machine is kept until {until:%H:%M:%S} UTC; "
        f"`seatrial ssh {now.run.id} {now.cell.name}` opens a shell, `seatrial cancel` releases it"
    )
    data = {"cell": now.cell.name, "notice": notice, "shown": "kept_until"}
    deps.stores.run_events.add(now.run.id, "cell", data)
