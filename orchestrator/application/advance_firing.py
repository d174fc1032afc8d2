"""A firing, one state further: every step may be done again by whoever takes it over."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Protocol

from orchestrator.application.cancel_run import cancel_run
from orchestrator.application.context import Context
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.application.launch_run import IdempotencyKey, LaunchOrder, launch_run
from orchestrator.application.notify_firing import end_of_firing
from orchestrator.application.resolve_firing import resolve_firing
from orchestrator.domain.announcement import Announcement
from orchestrator.domain.blame import Attribution, RootCause
from orchestrator.domain.cell import Run, RunState
from orchestrator.domain.gate.policy import GatePolicy, trial_order
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.schedule import (
    CANCELLED,
    ERRORED,
    SKIPPED,
    Firing,
    FiringState,
    Overlap,
    Schedule,
)
from orchestrator.store.errors import StoreError
from orchestrator.store.stores import Stores
from orchestrator.store.verdict_lines import StoredVerdict

logger = logging.getLogger(__name__)


class Evaluate(Protocol):
    """A verdict of a gate about runs; the same key again is the same verdict."""

    def __call__(
        self, context: Context, gate: str, *, runs: Sequence[str], lineage: str, key: str
    ) -> StoredVerdict:
        """See `evaluate_gate`."""
        ...


class RequestConfirmationRun(Protocol):
    """A small run on another machine, to find out who broke it; None where that cannot help."""

    def __call__(self, context: Context, run_id: str, *, max_usd: Decimal) -> str | None:
        """See `second_machine`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What firings are judged and told with."""

    evaluate: Evaluate
    blame: Callable[[Stores, str], Mapping[str, tuple[Attribution, ...]]]
    """Who broke a run, as far as its own machines could tell."""
    request_confirmation_run: RequestConfirmationRun
    announce: Callable[[Context, Announcement], bool]


def waits(context: Context, schedule: Schedule, firing: Firing) -> bool:
    """Whether there is nothing to do about it now. Only reads."""
    if firing.retry_at is not None and context.clock.now() < firing.retry_at:
        return True
    match firing.state:
        case FiringState.CLAIMED:
            return _queues(context, schedule, firing)
        case FiringState.LAUNCHED:
            run = context.stores.runs.get(firing.run)
            return _is_on(run) and not (firing.superseded and _can_be_cancelled(run))
        case FiringState.SECOND_MACHINE:
            return _is_on(context.stores.runs.get(firing.second_run))
    return firing.is_over


def advance(context: Context, operations: Operations, schedule: Schedule, firing: Firing) -> Firing:
    """Take a firing that does not wait one state further, or one step on the way to it."""
    match firing.state:
        case FiringState.CLAIMED:
            return _begin(context, schedule, firing)
        case FiringState.RESOLVED:
            return _launch(context, schedule, firing)
        case FiringState.LAUNCHED:
            return _stop_or_finish(context, firing)
        case FiringState.FINISHED:
            return _judge(context, operations, schedule, firing)
        case FiringState.SECOND_MACHINE:
            return _judged(firing, _evaluate(context, operations, schedule, firing, ":second"))
        case FiringState.JUDGED:
            return _tell(context, operations, schedule, firing)
    return firing


def concluded(firing: Firing, outcome: str, reason: str) -> Firing:
    """A firing that comes to no verdict; one that it came to before stands."""
    if firing.verdict:
        return replace(firing, state=FiringState.JUDGED)
    return replace(firing, state=FiringState.JUDGED, outcome=outcome, reason=reason)


def _before(context: Context, firing: Firing) -> list[Firing]:
    return [one for one in context.stores.schedules.open() if one.goes_before(firing)]


def _queues(context: Context, schedule: Schedule, firing: Firing) -> bool:
    if firing.superseded or schedule.overlap is Overlap.SKIP:
        return False
    before = _before(context, firing)
    if schedule.overlap is Overlap.QUEUE:
        return bool(before)
    return bool(before) and all(one.superseded for one in before)


def _begin(context: Context, schedule: Schedule, firing: Firing) -> Firing:
    if firing.superseded:
        return concluded(firing, CANCELLED, "a later firing took its place")
    before = _before(context, firing)
    if before and schedule.overlap is Overlap.SKIP:
        by = f", triggered by {before[-1].by}," if before[-1].by else ""
        at = f"{before[-1].due_at:%Y-%m-%d %H:%M} UTC"
        return concluded(firing, SKIPPED, f"the firing of {at}{by} is not over")
    if before and schedule.overlap is Overlap.CANCEL_PREVIOUS:
        context.stores.schedules.supersede(firing)
        return firing
    resolved = resolve_firing(context, schedule)
    return replace(firing, state=FiringState.RESOLVED, resolved=resolved)


def _launch(context: Context, schedule: Schedule, firing: Firing) -> Firing:
    if firing.superseded:
        return concluded(firing, CANCELLED, "a later firing took its place")
    resolved = firing.resolved
    if resolved is None:
        return concluded(firing, ERRORED, "what it was to launch is not known any more")
    order = LaunchOrder(
        matrix=resolved.matrix,
        name=schedule.matrix_name,
        payload=schedule.payload,
        subject_digest=resolved.subject_digest,
        subject_built=resolved.subject_built,
        baseline_digest=resolved.baseline_digest,
        trials=trial_order(_policy(context, schedule)) if schedule.gate else None,
        reuse_max_age_s=schedule.reuse_max_age_s,
    )
    # What is launched was written down before: the same key is always the same order.
    fingerprint = hashlib.sha256(firing.key.encode()).hexdigest()
    launched = launch_run(context, order, IdempotencyKey(firing.key, fingerprint))
    return replace(firing, state=FiringState.LAUNCHED, run=launched.run.id)


def _stop_or_finish(context: Context, firing: Firing) -> Firing:
    if _is_on(context.stores.runs.get(firing.run)):
        cancel_run(context, firing.run)
        return firing
    return replace(firing, state=FiringState.FINISHED)


def _judge(context: Context, operations: Operations, schedule: Schedule, firing: Firing) -> Firing:
    run = context.stores.runs.get(firing.run)
    if run is None or run.outcome is None:
        return concluded(firing, ERRORED, f"run {firing.run} is not stored any more")
    if firing.superseded:
        return concluded(firing, CANCELLED, "a later firing took its place")
    if not schedule.gate:
        return concluded(firing, run.outcome.value, "")
    verdict = _evaluate(context, operations, schedule, firing)
    judged = _judged(firing, verdict)
    if verdict.verdict.decision is Decision.FAIL:
        max_usd = _policy(context, schedule).spec.diagnosis.second_machine_usd
        second = _second(context, operations, firing, max_usd)
        if second is not None:
            return replace(judged, state=FiringState.SECOND_MACHINE, second_run=second)
    return judged


def _is_unexplained(context: Context, operations: Operations, firing: Firing) -> bool:
    """Whether its own machines leave open who broke a test."""
    found = operations.blame(context.stores, firing.run)
    return any(one.answer is RootCause.UNKNOWN for blames in found.values() for one in blames)


def _second(
    context: Context, operations: Operations, firing: Firing, max_usd: Decimal | None
) -> str | None:
    """The run that asks one; whatever keeps it from being asked, the verdict stands."""
    if max_usd is None:
        return None
    try:
        if _is_unexplained(context, operations, firing):
            return operations.request_confirmation_run(context, firing.run, max_usd=max_usd)
    except StoreError:
        raise
    except Exception:
        logger.exception("firing %s: no second machine can be asked", firing.key)
    return None


def _evaluate(
    context: Context, operations: Operations, schedule: Schedule, firing: Firing, again: str = ""
) -> StoredVerdict:
    return operations.evaluate(
        context,
        schedule.gate,
        runs=(firing.run,),
        lineage=schedule.lineage,
        key=f"{firing.key}{again}",
    )


def _tell(context: Context, operations: Operations, schedule: Schedule, firing: Firing) -> Firing:
    said = end_of_firing(context, schedule, firing)
    if said is not None:
        operations.announce(context, said)
    return replace(firing, state=FiringState.TOLD, ended_at=context.clock.now())


def _judged(firing: Firing, verdict: StoredVerdict) -> Firing:
    decision = verdict.verdict.decision.value
    return replace(firing, state=FiringState.JUDGED, outcome=decision, verdict=verdict.id)


def _policy(context: Context, schedule: Schedule) -> GatePolicy:
    return policy_of(find_policy(context, schedule.gate))


def _is_on(run: Run | None) -> bool:
    return run is not None and run.state is not RunState.FINISHED


def _can_be_cancelled(run: Run | None) -> bool:
    return run is not None and run.cancel_requested_at is None
