"""A machine that does not answer as it should: is it gone, or only cut off?"""

from __future__ import annotations

from datetime import timedelta

from orchestrator.application.cell.flow_context import (
    FlowDeps,
    record_deadline,
    record_failure,
)
from orchestrator.application.ports.engine import Value
from orchestrator.domain.cell import LeaseFact
from orchestrator.domain.machine import Machine, MachineState, ProviderError
from orchestrator.domain.outcome import Outcome
from orchestrator.store.cells import AttemptState


def record_machine_end(
    world: FlowDeps, now: AttemptState, said: str, *, at_once: bool = False
) -> Value | None:
    """Stop the attempt if the provider says that its machine is ending; None if it does not.

    Args:
        world: The ports.
        now: The attempt.
        said: How the machine failed to answer.
        at_once: Ask the provider however short a while ago it was asked.
    """
    machine = _inspected(world, now, at_once=at_once)
    if machine is None or machine.state not in (MachineState.TERMINATED, MachineState.STOPPING):
        return None
    words = machine.detail or machine.state
    if machine.ended == "deadline":
        detail = f"the machine ended by its own timer ({words})"
        return record_deadline(world, now, detail)
    reason = "preempted" if machine.ended == "preempted" else "lost"
    detail = f"the provider says that the machine is {machine.state} ({words}); {said}"
    return record_failure(world, now.attempt.id, Outcome.ERRORED, reason, detail)


def note_no_contact(world: FlowDeps, now: AttemptState, said: str) -> timedelta:
    """Tell people why the machine does not answer; how long it has not."""
    at = world.clock.now()
    since = world.lapses.since.setdefault(now.attempt.id, at)
    _note(world, now, said, notice=f"no answer: {said}")
    return at - since


def note_contact(world: FlowDeps, now: AttemptState) -> None:
    """The machine answers, again or at last."""
    world.lapses.since.pop(now.attempt.id, None)
    _note(world, now, "", notice="the machine answers now")


def _note(world: FlowDeps, now: AttemptState, said: str, *, notice: str) -> None:
    lease = now.lease
    if lease is None or lease.unheard == said:
        return
    world.stores.leases.note(lease.id, {LeaseFact.UNHEARD: said}, simulated=lease.simulated)
    world.stores.run_events.add(now.run.id, "cell", {"cell": now.cell.name, "notice": notice})


def _inspected(world: FlowDeps, now: AttemptState, *, at_once: bool) -> Machine | None:
    """Ask the provider, on a slow clock."""
    at, last = world.clock.now(), world.lapses.inspected.get(now.attempt.id)
    recently = last and at - last < timedelta(seconds=world.timings.inspect_every_s)
    if now.lease is None or (recently and not at_once):
        return None
    world.lapses.inspected[now.attempt.id] = at
    try:
        return world.provider(now.lease.provider).inspect(now.lease.machine_id)
    except ProviderError:
        return None
