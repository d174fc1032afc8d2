"""RELEASING: terminates every machine of the attempt, and verifies it with the provider."""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import Decimal

from orchestrator.application.cell.diagnosing import folders_of
from orchestrator.application.cell.finishing import cell_outcome, may_try_again
from orchestrator.application.cell.flow_context import (
    GO,
    FlowDeps,
    enter,
    is_unreachable,
    note_end,
    overdue,
    record_failure,
)
from orchestrator.application.cell.launching import is_gone, is_unmade, still_ordered
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState, Lease, LeaseState
from orchestrator.domain.machine import (
    Endpoint,
    MachineError,
    SshEndpoint,
)
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Outcome
from orchestrator.store.cells import AttemptState

logger = logging.getLogger(__name__)


def record_bug(deps: FlowDeps, attempt_id: str, error: Exception) -> Value:
    """Store an internal error as the attempt's cause."""
    logger.error("attempt %s: an error of our own", attempt_id, exc_info=error)
    detail = f"{type(error).__name__}: {error}"
    return record_failure(deps, attempt_id, Outcome.ERRORED, "controller", detail)


def poll_release(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Continue until no lease of the attempt is open; nothing prevents the release."""
    try:
        now = deps.stores.cells.attempt_state(attempt_id)
        now = enter(deps, now, CellState.RELEASING)
        if is_held(deps, now):
            return NOT_YET
        leases = deps.stores.leases.of_attempt(attempt_id)
        gone = [_is_gone(deps, now, x) for x in leases if x.state is not LeaseState.GONE]
    except Exception as error:
        if deps.lapses.is_news(attempt_id, repr(error)):
            logger.exception("attempt %s: its machine could not be given back yet", attempt_id)
        return NOT_YET
    return GO if all(gone) else NOT_YET


def _is_gone(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    match lease.state:
        case LeaseState.RESERVED:
            deps.stores.leases.gone(lease.id, at=deps.clock.now(), cost_usd=Decimal(0))
            return True
        case LeaseState.LAUNCHING:
            return is_unmade(deps, lease, deps.provider(lease.provider), refusal="never made")
        case LeaseState.HELD:
            return _is_told(deps, now, lease)
    return _is_verified(deps, now, lease)


def _is_told(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Clean the machine, then call the provider to terminate it."""
    if lease.endpoint is not None and not _is_left(deps, now, lease, lease.endpoint):
        return False
    try:
        deps.provider(lease.provider).terminate(lease.machine_id)
    except MachineError as error:
        logger.warning("lease %s: not given back yet: %s", lease.id, error)
        return False
    deps.stores.leases.releasing(lease.id)
    return _is_verified(deps, now, lease)


def _is_left(deps: FlowDeps, now: AttemptState, lease: Lease, way: Endpoint) -> bool:
    """Whether the machine was cleaned, or is released anyway.

    One that was made for this lease ends with it: nothing on it is worth the wait.
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
        logger.warning("lease %s: given back without cleaning up: %s", lease.id, error)
    return True


def _is_verified(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Close the lease once the provider reports that the machine is gone."""
    provider, at = deps.provider(lease.provider), deps.clock.now()
    try:
        machine = provider.inspect(lease.machine_id)
        lease = still_ordered(deps, lease, machine, at=at)
        lease = note_end(deps.stores, lease, machine, since=now.cell.entered_at, at=at)
        if not is_gone(deps, lease, machine, at=at):
            provider.terminate(lease.machine_id)
            return False
    except MachineError as error:
        logger.warning("lease %s: cannot be verified yet: %s", lease.id, error)
        return False
    at = deps.clock.now()
    deps.stores.leases.gone(lease.id, at=at, cost_usd=machine_cost(lease, at))
    return True


_NOT_WORTH_A_LOOK = (Outcome.PASSED, Outcome.CANCELLED, Outcome.NOT_AVAILABLE)


def is_held(deps: FlowDeps, now: AttemptState) -> bool:
    """Whether the machine is held for a person; cancelling the run or the time limit ends that."""
    minutes, lease = now.spec.hold_minutes, now.lease
    if not minutes or lease is None or lease.state is not LeaseState.HELD:
        return False
    if not isinstance(lease.endpoint, SshEndpoint) or now.run.cancel_requested_at is not None:
        return False
    if overdue(deps, now.cell, minutes * 60) or may_try_again(now):
        return False
    outcome = cell_outcome(deps, now.cell, now.spec, now.attempt.cause).outcome
    if outcome in _NOT_WORTH_A_LOOK:
        return False
    if deps.lapses.is_news(now.attempt.id, "held"):
        _tell(deps, now, outcome)
    return True


def _tell(deps: FlowDeps, now: AttemptState, outcome: Outcome) -> None:
    begin = now.cell.entered_at or deps.clock.now()
    until = begin + timedelta(minutes=now.spec.hold_minutes)
    notice = (
        f"{outcome}: its machine is kept until {until:%H:%M:%S} UTC; "
        f"`seatrial ssh {now.run.id} {now.cell.name}` goes there, `seatrial cancel` lets it go"
    )
    said = {"cell": now.cell.name, "notice": notice, "shown": "kept_until"}
    deps.stores.run_events.add(now.run.id, "cell", said)
