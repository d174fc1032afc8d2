"""RUNNING: the evidence comes home while it is being produced."""

from __future__ import annotations

from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    is_out_of_time,
    is_stopped,
    overdue,
    record_deadline,
    record_failure,
    workspace_of,
)
from orchestrator.application.cell.liveness import note_contact, note_no_contact, record_machine_end
from orchestrator.application.ingest_evidence import drained, pull_evidence
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState
from orchestrator.domain.evidence import EvidenceError
from orchestrator.domain.facts import AgentEnd
from orchestrator.domain.machine import HostKeyError, MachineError
from orchestrator.domain.outcome import Outcome
from orchestrator.store.cells import AttemptState
from orchestrator.store.evidence import Position


def poll_run(world: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Pull what is new, until the agent says `end` or the attempt must stop.

    Every way out leads to COLLECTING, so that finished tests are kept.
    """
    now = world.stores.cells.attempt_state(attempt_id)
    if now.cell.has_reached(CellState.COLLECTING):
        return GO
    answer = STOP if is_stopped(world, now) else _watch(world, now)
    if isinstance(answer, NotYet):
        return NOT_YET
    enter(world, now, CellState.COLLECTING)
    return answer


def _watch(world: FlowDeps, now: AttemptState) -> Value | NotYet:
    attempt_id = now.attempt.id
    try:
        pulled, have = pull_evidence(
            workspace_of(world, now.lease),
            world.stores.evidence,
            attempt_id,
            now.position,
            at=world.clock.now(),
            limit_bytes=world.timings.pull_limit_bytes,
        )
    except HostKeyError as error:
        # the address of a machine that was taken away is given to a stranger
        ended = record_machine_end(world, now, str(error), at_once=True)
        return ended or record_failure(world, attempt_id, Outcome.ERRORED, "host_key", str(error))
    except MachineError as error:
        return _unheard(world, now, str(error))
    except EvidenceError as error:
        detail = f"the machine sent something that is not evidence: {error}"
        return record_failure(world, attempt_id, Outcome.ERRORED, "agent", detail)
    note_contact(world, now)
    if pulled is None:
        detail = "the machine knows nothing of this attempt any more"
        return record_failure(world, attempt_id, Outcome.ERRORED, "agent", detail)
    if have.end is not None:
        return _ended(world, now, have.end)
    if not pulled.alive and drained(pulled, have):
        detail = "the agent ended without a last word"
        return record_failure(world, attempt_id, Outcome.ERRORED, "agent", detail)
    # Only a machine that is heard can tell whose time is up.
    if is_out_of_time(world, now):
        return record_deadline(world, now)
    return _first_event(world, now, have)


def _ended(world: FlowDeps, now: AttemptState, end: AgentEnd) -> Value:
    """The agent had its last word: on what the jobs did, or on why they could not."""
    if end.outcome == "errored":
        reason = end.reason or "agent"
        return record_failure(world, now.attempt.id, Outcome.ERRORED, reason, end.detail)
    if end.outcome == "stopped" and end.reason == "preempted":
        return record_failure(world, now.attempt.id, Outcome.ERRORED, "preempted", end.detail)
    if end.outcome == "stopped":
        detail = end.detail or "the agent stopped at the attempt's deadline"
        return record_failure(world, now.attempt.id, Outcome.TIMED_OUT, "deadline", detail)
    return GO


def _first_event(world: FlowDeps, now: AttemptState, have: Position) -> Value | NotYet:
    if have.seq == 0 and overdue(world, now.cell, world.timings.first_event_s):
        detail = f"no event within {world.timings.first_event_s:g} s of its start"
        return record_failure(world, now.attempt.id, Outcome.ERRORED, "agent", detail)
    return NOT_YET


def _unheard(world: FlowDeps, now: AttemptState, said: str) -> Value | NotYet:
    """The machine does not answer: gone, or only cut off?"""
    silent_s = note_no_contact(world, now, said).total_seconds()
    ended = record_machine_end(world, now, said)
    if ended is not None:
        return ended
    if silent_s >= world.timings.contact_timeout_s:
        detail = f"no contact for {silent_s:.0f} s: {said}"
        return record_failure(world, now.attempt.id, Outcome.ERRORED, "lost", detail)
    return NOT_YET
