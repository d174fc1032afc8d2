"""RUNNING: fetches evidence while it is produced, and watches the agent's liveness."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orchestrator.application.cell.collecting import drained, pull_evidence
from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    is_out_of_time,
    leave,
    overdue,
    record_cancel,
    record_deadline,
    record_failure,
    record_machine_ended_at,
    state_of,
    workspace_of,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState, LeaseFact
from orchestrator.domain.event_facts import AgentEnd
from orchestrator.domain.evidence import EvidenceError
from orchestrator.domain.machine import (
    HostKeyError,
    Machine,
    MachineError,
    MachineState,
    ProviderError,
    ShellError,
)
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.store.attempt_evidence import EvidencePosition
from orchestrator.store.cells import AttemptState


def record_machine_end(
    deps: FlowDeps, now: AttemptState, machine: Machine | None, message: str
) -> Value | None:
    """Stop the attempt if the provider reports that its machine is ending; None if not.

    Args:
        deps: The ports.
        now: The attempt.
        machine: The result of `inspected`.
        message: The error of the last contact.
    """
    if machine is None or machine.state not in (MachineState.TERMINATED, MachineState.STOPPING):
        return None
    if now.lease is not None:
        at = deps.clock.now()
        record_machine_ended_at(deps.stores, now.lease, machine, since=now.cell.entered_at, at=at)
    words = machine.detail or machine.state
    if machine.ended == Reason.DEADLINE:
        detail = f"the machine ended by its own timer ({words})"
        return record_deadline(deps, now, detail)
    reason = Reason.PREEMPTED if machine.ended == Reason.PREEMPTED else Reason.LOST
    detail = f"the provider says that the machine is {machine.state} ({words}); {message}"
    return record_failure(deps, now.attempt.id, Outcome.ERRORED, reason, detail)


def note_no_contact(
    deps: FlowDeps, now: AttemptState, error: Exception, *, patience: str = ""
) -> timedelta:
    """Add a notice of the error that keeps the machine from being reached, with `patience`.

    Returns: The time for which the machine has not been reached.
    """
    at = deps.clock.now()
    since = deps.contact_log.silent_since.setdefault(now.attempt.id, at)
    what = error.in_short if isinstance(error, ShellError) else ShellError.in_short
    waiting = f" ({patience})" if patience else ""
    _note(deps, now, str(error), notice=f"{what}{waiting}: {error}")
    return at - since


def note_provider_trouble(deps: FlowDeps, now: AttemptState, error: ProviderError) -> None:
    """Add a notice that the provider's state of the machine is unavailable."""
    said = f"{now.lease.provider if now.lease else 'its provider'}: {error}"
    _note(deps, now, said, notice=said)


def note_contact(deps: FlowDeps, now: AttemptState) -> None:
    """Record that the machine answers again."""
    deps.contact_log.silent_since.pop(now.attempt.id, None)
    _note(deps, now, "", notice="the machine answers now")


def _note(deps: FlowDeps, now: AttemptState, message: str, *, notice: str) -> None:
    lease = now.lease
    if lease is None or lease.unheard == message:
        return
    deps.stores.leases.note(lease.id, {LeaseFact.UNHEARD: message}, simulated=lease.simulated)
    deps.stores.run_events.add(now.run.id, "cell", {"cell": now.cell.name, "notice": notice})


def inspected(deps: FlowDeps, now: AttemptState, *, every_s: float | None = None) -> Machine | None:
    """Return the provider's description of the machine, requested at most once per `every_s`.

    Args:
        deps: The ports.
        now: The attempt.
        every_s: Minimum seconds between two requests; `inspect_every_s` by default, 0 to ask now.

    Returns: None if the provider was not asked, or did not answer.
    """
    at, last = deps.clock.now(), deps.contact_log.inspected_at.get(now.attempt.id)
    pause = timedelta(seconds=deps.timings.inspect_every_s if every_s is None else every_s)
    if now.lease is None or (last and at - last < pause):
        return None
    deps.contact_log.inspected_at[now.attempt.id] = at
    try:
        return deps.provider(now.lease.provider).inspect(now.lease.machine_id)
    except ProviderError:
        return None


def poll_run(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Fetch new evidence, until the agent's `end` event or a reason to stop.

    COLLECTING follows in every case, so that finished tests are kept.
    """
    now = state_of(deps, attempt_id)
    if now.cell.has_reached(CellState.COLLECTING):
        return GO
    answer = STOP if record_cancel(deps, now) else _watch(deps, now)
    if isinstance(answer, NotYet):
        return NOT_YET
    enter(deps, now, CellState.COLLECTING)
    return answer


def _watch(deps: FlowDeps, now: AttemptState) -> Value | NotYet:
    attempt_id = now.attempt.id
    try:
        pulled, have = pull_evidence(
            workspace_of(deps, now.lease),
            deps.stores.evidence,
            attempt_id,
            now.position,
            at=deps.clock.now(),
            limit_bytes=deps.timings.pull_limit_bytes,
        )
    except HostKeyError as error:
        # the address of a lost machine may belong to another customer now
        machine = inspected(deps, now, every_s=0)
        ended = record_machine_end(deps, now, machine, str(error))
        return ended or record_failure(
            deps, attempt_id, Outcome.ERRORED, Reason.HOST_KEY, str(error)
        )
    except MachineError as error:
        return _unheard(deps, now, error)
    except EvidenceError as error:
        detail = f"the machine sent something that is not evidence: {error}"
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.AGENT, detail)
    note_contact(deps, now)
    if pulled is None:
        detail = "the machine has no folder of this attempt any more"
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.AGENT, detail)
    if have.end is not None:
        return _ended(deps, replace(now, position=have), have.end)
    if not pulled.alive and drained(pulled, have):
        detail = "the agent ended without an `end` event"
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.AGENT, detail)
    # Check the deadline only after contact: the evidence decides which job overran.
    if is_out_of_time(deps, now):
        return record_deadline(deps, now)
    return _first_event(deps, now, have)


def _ended(deps: FlowDeps, now: AttemptState, end: AgentEnd) -> Value:
    """Handle the agent's `end` event."""
    if end.outcome == "errored":
        reason = end.reason or Reason.AGENT
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, reason, end.detail)
    if end.outcome == "stopped" and end.reason == Reason.PREEMPTED:
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.PREEMPTED, end.detail)
    if end.outcome == "stopped":
        detail = end.detail or "the agent stopped at the attempt's deadline"
        return record_failure(deps, now.attempt.id, Outcome.TIMED_OUT, Reason.DEADLINE, detail)
    leave(deps, now)
    return GO


def _first_event(deps: FlowDeps, now: AttemptState, have: EvidencePosition) -> Value | NotYet:
    if have.seq == 0 and overdue(deps, now.cell, deps.timings.first_event_s):
        detail = f"no event within {deps.timings.first_event_s:g} s of its start"
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.AGENT, detail)
    leave(deps, replace(now, position=have))
    return NOT_YET


def _unheard(deps: FlowDeps, now: AttemptState, error: MachineError) -> Value | NotYet:
    """Handle an unreachable machine: end the attempt if it is gone or silent too long."""
    silent_s = note_no_contact(deps, now, error).total_seconds()
    ended = record_machine_end(deps, now, inspected(deps, now), str(error))
    if ended is not None:
        return ended
    if silent_s >= deps.timings.contact_timeout_s:
        detail = f"no contact for {silent_s:.0f} s: {error}"
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.LOST, detail)
    return NOT_YET
