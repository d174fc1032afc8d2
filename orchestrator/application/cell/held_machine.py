"""Keeping the machine of a cell that did not pass, for a person to look at."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.application.cell.finishing import judged, may_try_again
from orchestrator.application.cell.flow_context import AttemptState, FlowDeps, overdue
from orchestrator.domain.cell import LeaseState
from orchestrator.domain.machine import SshReach
from orchestrator.domain.outcome import Outcome

_NOT_WORTH_A_LOOK = (Outcome.PASSED, Outcome.CANCELLED, Outcome.NOT_AVAILABLE)


def is_held(world: FlowDeps, now: AttemptState) -> bool:
    """Whether the machine stays for now; cancelling the run, or the time's end, lets it go."""
    minutes, lease = now.spec.hold_minutes, now.lease
    if not minutes or lease is None or lease.state is not LeaseState.HELD:
        return False
    if not isinstance(lease.reach, SshReach) or now.run.cancel_requested_at is not None:
        return False
    if overdue(world, now.cell, minutes * 60) or may_try_again(now):
        return False
    outcome = judged(world, now.cell, now.spec, now.attempt.cause).outcome
    if outcome in _NOT_WORTH_A_LOOK:
        return False
    if world.lapses.is_news(now.attempt.id, "held"):
        _tell(world, now, outcome)
    return True


def _tell(world: FlowDeps, now: AttemptState, outcome: Outcome) -> None:
    begin = now.cell.entered_at or world.clock.now()
    until = begin + timedelta(minutes=now.spec.hold_minutes)
    notice = (
        f"{outcome}: its machine is kept until {until:%H:%M:%S} UTC; "
        f"`seatrial ssh {now.run.id} {now.cell.name}` goes there, `seatrial cancel` lets it go"
    )
    said = {"cell": now.cell.name, "notice": notice, "shown": "kept_until"}
    world.stores.feed.add(now.run.id, "cell", said)
