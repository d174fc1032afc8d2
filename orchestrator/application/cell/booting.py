"""BOOTING: until the machine answers, as the machine that was meant."""

from __future__ import annotations

from datetime import datetime

from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    is_out_of_time,
    is_stopped,
    overdue,
    record_failure,
)
from orchestrator.application.cell.launching import is_young
from orchestrator.application.cell.liveness import note_contact, note_no_contact
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState, Lease
from orchestrator.domain.machine import (
    AuthenticationError,
    ConsoleLog,
    Endpoint,
    HostKeyError,
    Machine,
    MachineError,
    MachineState,
    ProviderError,
    ShellError,
    SshAddress,
    SshEndpoint,
)
from orchestrator.domain.outcome import Outcome
from orchestrator.store.cells import AttemptState

CONSOLE_LINES = 12
_AS_THEY_ARE = ("capacity", "quota", "preempted")
"""Reasons of a machine's end that are an attempt's reason too; any other is a failed boot."""


def poll_boot(world: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Wait until the provider says how to reach the machine, and it can be reached so."""
    now = world.stores.cells.attempt_state(attempt_id)
    if now.cell.has_reached(CellState.PREPARING):
        return GO
    if is_stopped(world, now) or now.lease is None:
        return STOP
    late = _is_late(world, now, now.lease)
    at = world.clock.now()
    if not world.backoff.is_due(now.lease.id, at):
        return NOT_YET
    try:
        machine = world.provider(now.lease.provider).inspect(now.lease.machine_id)
    except ProviderError as error:
        world.backoff.trouble(now.lease.id, world.clock.now())
        return (
            record_failure(world, attempt_id, Outcome.ERRORED, "boot", str(error))
            if late
            else NOT_YET
        )
    world.backoff.forget(now.lease.id)
    if machine.state in (MachineState.TERMINATED, MachineState.STOPPING):
        return _ended(world, attempt_id, now.lease, machine, at=at)
    if machine.state is MachineState.READY and machine.endpoint is not None:
        way = now.lease.endpoint or _pinned(world, now.lease, machine.endpoint)
        world.stores.leases.reached(now.lease.id, way)
        _note(world, now.lease, machine)
        return _knock(world, now, now.lease, way, late=late)
    if late:
        detail = f"machine {machine.id} is still {machine.state}. {machine.detail}"
        return _blame_boot(world, attempt_id, now.lease, "boot", detail.strip())
    return NOT_YET


def _is_late(world: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Whether it is not waited for any longer: then its last words are why."""
    timings = world.timings
    rented = world.traits(lease.provider).rented
    patience_s = timings.boot_s if rented else min(timings.own_boot_s, timings.contact_timeout_s)
    return overdue(world, now.cell, patience_s) or is_out_of_time(world, now)


def _ended(
    world: FlowDeps, attempt_id: str, lease: Lease, machine: Machine, *, at: datetime
) -> Value | NotYet:
    not_shown = machine.state is MachineState.TERMINATED and is_young(world, lease, at=at)
    if not machine.ended and not_shown:
        return NOT_YET
    reason = machine.ended if machine.ended in _AS_THEY_ARE else "boot"
    detail = f"machine {machine.id} is {machine.state} before it could be used. {machine.detail}"
    return _blame_boot(world, attempt_id, lease, reason, detail.strip())


def _pinned(world: FlowDeps, lease: Lease, way: Endpoint | SshAddress) -> Endpoint:
    """How to reach the machine, with the one host key that is believed from now on.

    It is the key that the machine published to its provider, or else the one it was given.
    """
    if not isinstance(way, SshAddress):
        return way
    login = world.stores.leases.login(lease.id)
    if login is None:
        raise LookupError(f"lease {lease.id} has no keys")
    host_key = way.host_key or login.host_public_key
    return SshEndpoint(way.address, way.user, host_key, port=way.port, lease=lease.id)


def _note(world: FlowDeps, lease: Lease, machine: Machine) -> None:
    facts = {**lease.facts, **machine.facts}
    if facts != dict(lease.facts):
        world.stores.leases.note(lease.id, facts, simulated=machine.simulated)


def _knock(
    world: FlowDeps, now: AttemptState, lease: Lease, way: Endpoint, *, late: bool
) -> Value | NotYet:
    attempt_id = now.attempt.id
    try:
        world.open_workspace(way).put_agent()
    except HostKeyError as error:
        return record_failure(world, attempt_id, Outcome.ERRORED, "host_key", str(error))
    except AuthenticationError as error:
        # a rented machine lets us in only after it has made its user
        if world.traits(lease.provider).rented and not late:
            note_no_contact(world, now, str(error))
            return NOT_YET
        return record_failure(world, attempt_id, Outcome.ERRORED, "auth", str(error))
    except ShellError as error:
        note_no_contact(world, now, str(error))
        return _blame_boot(world, attempt_id, lease, "ssh", str(error)) if late else NOT_YET
    except MachineError as error:
        return record_failure(world, attempt_id, Outcome.ERRORED, "agent", str(error))
    note_contact(world, now)
    enter(world, world.stores.cells.attempt_state(attempt_id), CellState.PREPARING)
    return GO


def _blame_boot(world: FlowDeps, attempt_id: str, lease: Lease, reason: str, detail: str) -> Value:
    """Blame the machine, with what it wrote on its console where that can be had."""
    provider = world.provider(lease.provider)
    if isinstance(provider, ConsoleLog):
        try:
            lines = provider.console(lease.machine_id).splitlines()[-CONSOLE_LINES:]
        except ProviderError as error:
            lines = [f"(not to be had: {error})"]
        if lines:
            detail = "\n".join([detail, "Its console's last lines:", *lines])
    return record_failure(world, attempt_id, Outcome.ERRORED, reason, detail)
