"""BOOTING: until the machine answers, as the machine that was meant."""

from __future__ import annotations

from orchestrator.application.cell.world import (
    GO,
    STOP,
    World,
    blame,
    overdue,
    reach,
    situation,
    stopped_from_outside,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState
from orchestrator.domain.machine import (
    AuthenticationError,
    HostKeyError,
    Machine,
    MachineError,
    MachineState,
    ProviderError,
    Reach,
    ShellError,
)
from orchestrator.domain.outcome import Outcome


def look_booted(world: World, attempt_id: str) -> Value | NotYet:
    """Wait until the provider says how to reach the machine, and it can be reached so."""
    now = situation(world, attempt_id)
    if now.cell.has_reached(CellState.PREPARING):
        return GO
    if stopped_from_outside(world, now) or now.lease is None:
        return STOP
    late = overdue(world, now.cell, world.timings.boot_s)
    try:
        machine = world.provider(now.lease.provider).inspect(now.lease.machine_id)
    except ProviderError as error:
        return blame(world, attempt_id, Outcome.ERRORED, "boot", str(error)) if late else NOT_YET
    if machine.state in (MachineState.GONE, MachineState.STOPPING):
        said = machine.detail
        detail = f"machine {machine.id} is {machine.state} before it could be used. {said}"
        return blame(world, attempt_id, Outcome.ERRORED, "boot", detail.strip())
    if machine.state is MachineState.READY and machine.reach is not None:
        world.stores.leases.reached(now.lease.id, machine.reach)
        return _knock(world, attempt_id, machine, machine.reach, late=late)
    if late:
        detail = f"machine {machine.id} is still {machine.state}. {machine.detail}"
        return blame(world, attempt_id, Outcome.ERRORED, "boot", detail.strip())
    return NOT_YET


def _knock(
    world: World, attempt_id: str, machine: Machine, way: Reach, *, late: bool
) -> Value | NotYet:
    try:
        world.open_workspace(way).put_agent()
    except HostKeyError as error:
        return blame(world, attempt_id, Outcome.ERRORED, "host_key", str(error))
    except AuthenticationError as error:
        if not late and machine.state is MachineState.BOOTING:
            return NOT_YET
        return blame(world, attempt_id, Outcome.ERRORED, "auth", str(error))
    except ShellError as error:
        return blame(world, attempt_id, Outcome.ERRORED, "ssh", str(error)) if late else NOT_YET
    except MachineError as error:
        return blame(world, attempt_id, Outcome.ERRORED, "agent", str(error))
    reach(world, situation(world, attempt_id), CellState.PREPARING)
    return GO
