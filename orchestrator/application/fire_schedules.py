"""Start due firings of schedules and advance open ones. Any controller may do so.

Due schedules become firings in one database transaction, which only one controller wins. The
controller that advances a firing holds it for a limited time by the database's clock. Each step is
idempotent, so another controller can continue the firing of one that died.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Protocol

from orchestrator.application.attribute_failures import attribute_run
from orchestrator.application.channels import end_of_firing, no_verdict, notify_people
from orchestrator.application.context import Context
from orchestrator.application.end_run import cancel_run
from orchestrator.application.evaluate_gate import evaluate_gate
from orchestrator.application.gate_policies import GateMissingError, find_policy, policy_of
from orchestrator.application.launch_run import (
    IdempotencyKey,
    KeyReusedError,
    LaunchOrder,
    PayloadMissingError,
    launch_run,
)
from orchestrator.application.ports.clock import Cron, CronError
from orchestrator.application.ports.wheels import SubjectGoneError
from orchestrator.application.resolve_firing import resolve_firing
from orchestrator.application.retests import request_confirmation_run
from orchestrator.domain.cell import Run, RunState
from orchestrator.domain.channel import Announcement
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.gate.policy import GatePolicy, retest_options
from orchestrator.domain.gate.verdict import Decision, StoredVerdict
from orchestrator.domain.machine import ConfigError
from orchestrator.domain.root_cause import Attribution, RootCause
from orchestrator.domain.schedule import (
    CANCELLED,
    ERRORED,
    MAX_TRIES,
    MISSED,
    SKIPPED,
    Firing,
    FiringState,
    Overlap,
    Schedule,
    minutes_deadline,
    pause_after,
    sort_out,
    wall_deadline,
)
from orchestrator.domain.units import utc
from orchestrator.store.errors import StoreError
from orchestrator.store.schedules import DueSchedule
from orchestrator.store.stores import Stores

_LOOK_BACK = timedelta(days=15)
"""Maximum age of firings that are computed; longer than any catch-up period."""


def new_firing(cron: Cron, schedule: Schedule, due_at: datetime, now: datetime) -> Firing:
    """Return a new firing."""
    deadline_at = _deadline(cron, schedule, due_at)
    return Firing(schedule=schedule.name, due_at=due_at, claimed_at=now, deadline_at=deadline_at)


def claim(context: Context, due: DueSchedule) -> None:
    """Store a firing for each due time, once over all controllers. Raises CronError."""
    cron, schedule, now = context.gate.cron, due.schedule, context.clock.now()
    following = partial(cron.next_after, schedule.cron, schedule.tz)
    at = due.next_due_at if due.next_due_at > now - _LOOK_BACK else following(now - _LOOK_BACK)
    times = []
    while at <= now:
        times.append(at)
        at = following(at)
    sorted_out = sort_out(times, schedule, now)
    firings = [new_firing(cron, schedule, one, now) for one in sorted_out.fire]
    firings += _missed(schedule, sorted_out.missed, now, tell=not firings)
    if context.stores.schedules.claim(due, firings, next_due_at=at) and sorted_out.missed:
        count = len(sorted_out.missed)
        logger.warning(
            "schedule %s: %d firings were skipped and will not be launched", schedule.name, count
        )


def _missed(
    schedule: Schedule, times: tuple[datetime, ...], now: datetime, *, tell: bool
) -> list[Firing]:
    """Return missed firings; with `tell`, the last one is to be announced."""
    reason = f"no controller ran; {len(times)} missed, and catching up is `{schedule.catch_up}`"
    over = FiringState.NOTIFIED
    return [
        Firing(
            schedule=schedule.name,
            due_at=at,
            claimed_at=now,
            state=FiringState.EVALUATED if tell and at == times[-1] else over,
            outcome=MISSED,
            reason=reason,
            ended_at=now,
        )
        for at in times
    ]


def _deadline(cron: Cron, schedule: Schedule, due_at: datetime) -> datetime | None:
    after = minutes_deadline(schedule.deadline)
    if after is not None:
        return due_at + after
    wall = wall_deadline(schedule.deadline)
    if wall is None:
        return None
    hour, minute = wall
    return cron.next_after(f"{minute} {hour} * * *", schedule.tz, due_at)


class Evaluate(Protocol):
    """Evaluates a gate on runs; idempotent by key."""

    def __call__(
        self, context: Context, gate: str, *, runs: Sequence[str], lineage: str, key: str
    ) -> StoredVerdict:
        """Evaluate the gate on these runs and return its verdict."""
        ...


class RequestConfirmationRun(Protocol):
    """The operation that launches a confirmation run."""

    def __call__(self, context: Context, run_id: str, *, max_usd: Decimal) -> str | None:
        """Launch a confirmation run for a run and return its id; None if it cannot help."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The operations that evaluate and announce firings."""

    evaluate: Evaluate
    blame: Callable[[Stores, str], Mapping[str, tuple[Attribution, ...]]]
    """Returns a run's root causes by cell, as far as retests on the cells' machines prove them."""
    request_confirmation_run: RequestConfirmationRun
    announce: Callable[[Context, Announcement], bool]


def waits(context: Context, schedule: Schedule, firing: Firing) -> bool:
    """Whether the firing needs no step now. Changes nothing."""
    if firing.retry_at is not None and context.clock.now() < firing.retry_at:
        return True
    match firing.state:
        case FiringState.CLAIMED:
            return _queues(context, schedule, firing)
        case FiringState.LAUNCHED:
            run = context.stores.runs.get(firing.run)
            return _is_on(run) and not (firing.superseded and _can_be_cancelled(run))
        case FiringState.CONFIRMING:
            return _is_on(context.stores.runs.get(firing.confirmation_run))
    return firing.is_over


def advance(context: Context, operations: Operations, schedule: Schedule, firing: Firing) -> Firing:
    """Advance a firing by one state, or by one step towards the next state."""
    match firing.state:
        case FiringState.CLAIMED:
            return _begin(context, schedule, firing)
        case FiringState.RESOLVED:
            return _launch(context, schedule, firing)
        case FiringState.LAUNCHED:
            return _stop_or_finish(context, firing)
        case FiringState.FINISHED:
            return _judge(context, operations, schedule, firing)
        case FiringState.CONFIRMING:
            return _evaluated(firing, _evaluate(context, operations, schedule, firing, ":second"))
        case FiringState.EVALUATED:
            return _tell(context, operations, schedule, firing)
    return firing


def concluded(firing: Firing, outcome: str, reason: str) -> Firing:
    """End a firing without a verdict; an existing outcome is kept."""
    if firing.verdict:
        return replace(firing, state=FiringState.EVALUATED)
    return replace(firing, state=FiringState.EVALUATED, outcome=outcome, reason=reason)


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
        at = utc(before[-1].due_at)
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
        retests=retest_options(_policy(context, schedule)) if schedule.gate else None,
        reuse_max_age_s=schedule.reuse_max_age_s,
        commit=schedule.commit,
    )
    # The order was stored before the launch, so that the same key always has the same order.
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
    judged = _evaluated(firing, verdict)
    if verdict.verdict.decision is Decision.FAIL:
        max_usd = _policy(context, schedule).spec.diagnosis.confirmation_usd
        second = _second(context, operations, firing, max_usd)
        if second is not None:
            return replace(judged, state=FiringState.CONFIRMING, confirmation_run=second)
    return judged


def _is_unexplained(context: Context, operations: Operations, firing: Firing) -> bool:
    """Whether the root cause of a failed test is still unknown."""
    found = operations.blame(context.stores, firing.run)
    return any(one.answer is RootCause.UNKNOWN for blames in found.values() for one in blames)


def _second(
    context: Context, operations: Operations, firing: Firing, max_usd: Decimal | None
) -> str | None:
    """Return the confirmation run; any error leaves the verdict unchanged."""
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
    return replace(firing, state=FiringState.NOTIFIED, ended_at=context.clock.now())


def _evaluated(firing: Firing, verdict: StoredVerdict) -> Firing:
    decision = verdict.verdict.decision.value
    return replace(firing, state=FiringState.EVALUATED, outcome=decision, verdict=verdict.id)


def _policy(context: Context, schedule: Schedule) -> GatePolicy:
    return policy_of(find_policy(context, schedule.gate))


def _is_on(run: Run | None) -> bool:
    return run is not None and run.state is not RunState.FINISHED


def _can_be_cancelled(run: Run | None) -> bool:
    return run is not None and run.cancel_requested_at is None


logger = logging.getLogger(__name__)

LEASE_S = 30.0
"""Seconds without renewal after which a claim of a firing expires."""
_FOR_GOOD = (
    *(SubjectGoneError, InvalidDocumentError, PayloadMissingError, KeyReusedError),
    *(GateMissingError, ConfigError),
)
"""Errors that another try would not mend."""
OPERATIONS = Operations(
    evaluate=evaluate_gate,
    blame=attribute_run,
    request_confirmation_run=request_confirmation_run,
    announce=notify_people,
)

Begin = Callable[[str, Callable[[], None]], None]
"""Starts the named work in the background, unless it is running already."""


def _at_once(name: str, work: Callable[[], None]) -> None:
    work()


def fire(
    context: Context,
    *,
    begin: Begin = _at_once,
    operations: Operations = OPERATIONS,
    lease_s: float = LEASE_S,
) -> None:
    """Claim due firings, and advance every firing that does not wait."""
    store = context.stores.schedules
    for due in store.due(context.clock.now()):
        try:
            claim(context, due)
        except CronError:
            logger.exception("schedule %s cannot fire: pause or remove it", due.schedule.name)
    for firing in store.open():
        schedule = store.get(firing.schedule)
        if schedule is not None and _has_work(context, schedule, firing):
            work = partial(_go_on, context, operations, schedule, firing, lease_s)
            begin(firing.key, work)


def _is_late(context: Context, firing: Firing) -> bool:
    if firing.overdue or firing.deadline_at is None or firing.has_reached(FiringState.EVALUATED):
        return False
    return context.clock.now() >= firing.deadline_at


def _has_work(context: Context, schedule: Schedule, firing: Firing) -> bool:
    return _is_late(context, firing) or not waits(context, schedule, firing)


def _go_on(
    context: Context, operations: Operations, schedule: Schedule, firing: Firing, lease_s: float
) -> None:
    store, holder = context.stores.schedules, context.new_id()
    taken = store.take(firing, holder, lease_s=lease_s)
    if taken is None:
        return
    with _kept(context, taken, holder, lease_s):
        _take_further(context, operations, schedule, taken, holder)
    store.give_back(taken, holder)


def _take_further(
    context: Context, operations: Operations, schedule: Schedule, firing: Firing, holder: str
) -> None:
    store = context.stores.schedules
    while _has_work(context, schedule, firing):
        try:
            moved = _one_step(context, operations, schedule, firing)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - any error is announced
            moved = _faulted(context, firing, error)
        begins = moved.has_begun and not firing.has_begun
        if not (store.begin if begins else store.save)(moved, holder):
            # Another controller has the firing, or another firing began: the next poll decides.
            return
        fresh = store.firing(firing.schedule, firing.due_at)
        if fresh is None:
            return
        firing = fresh


def _one_step(
    context: Context, operations: Operations, schedule: Schedule, firing: Firing
) -> Firing:
    if _is_late(context, firing):
        operations.announce(context, no_verdict(context, schedule, firing))
        return replace(firing, overdue=True)
    reason = firing.reason if firing.has_reached(FiringState.EVALUATED) else ""
    fresh = replace(firing, tries=0, retry_at=None, reason=reason)
    return advance(context, operations, schedule, fresh)


def _faulted(context: Context, firing: Firing, error: Exception) -> Firing:
    said = str(error) or type(error).__name__
    tries = firing.tries + 1
    # After the evaluation, a failed step is repeated without limit.
    is_judged = firing.has_reached(FiringState.EVALUATED)
    if not is_judged and (isinstance(error, _FOR_GOOD) or tries >= MAX_TRIES):
        logger.warning("firing %s is errored: %s", firing.key, said)
        after = f" (tried {tries} times)" if tries > 1 else ""
        return replace(concluded(firing, ERRORED, said + after), tries=0, retry_at=None)
    pause = pause_after(tries)
    logger.warning("firing %s is tried again in %s: %s", firing.key, pause, said)
    reason = firing.reason if is_judged else said
    return replace(firing, tries=tries, retry_at=context.clock.now() + pause, reason=reason)


@contextmanager
def _kept(context: Context, firing: Firing, holder: str, lease_s: float) -> Iterator[None]:
    """Renew the claim while the block runs: building a wheel may take minutes."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(max(lease_s, 1.0) / 3):
            try:
                if not context.stores.schedules.renew(firing, holder, lease_s=lease_s):
                    return
            except StoreError:
                logger.warning("the hold of %s could not be renewed; it is tried again", firing.key)

    thread = threading.Thread(target=renew, name=f"holds {firing.key}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
