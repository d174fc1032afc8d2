"""DIAGNOSING: retests failed tests on their machine before it is released.

Retests change no result, and keep the machine no longer than requested. On any error, a notice is
added and the machine is released.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from orchestrator.application.attribute_failures import (
    attribute_cell,
    baseline_name,
    keys_in_question,
    last_time,
)
from orchestrator.application.cell.environment import EnvironmentRefusedError
from orchestrator.application.cell.flow_context import (
    GO,
    FlowDeps,
    attempt_deadline,
    enter,
    leave,
    state_of,
    workspace_of,
)
from orchestrator.application.cell.retest_session import outcomes_of, read_session, start_session
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import CellState, LeaseState
from orchestrator.domain.evidence import EvidenceError
from orchestrator.domain.machine import HostKeyError, MachineError, ShellError
from orchestrator.domain.retests import (
    Options,
    RetestKind,
    RetestOptions,
    RetestPlan,
    RetestSession,
    RetestSessionState,
    key_of,
    next_retest,
)
from orchestrator.domain.units import plural
from orchestrator.store.cells import AttemptState
from orchestrator.store.errors import DamagedError, StoreError

_LEAST_S = 5.0
"""Minimum remaining seconds to start the agent."""

_MOST_LISTED = 5
"""Maximum tests whose root cause is announced."""

logger = logging.getLogger(__name__)


def poll_diagnosis(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Run retest sessions until the root causes are known, or the time limit is reached."""
    now = state_of(deps, attempt_id)
    order = now.spec.retests
    if order is None or now.cell.state not in (CellState.COLLECTING, CellState.DIAGNOSING):
        leave(deps, now)
        return GO
    try:
        return _look(deps, now, order)
    except StoreError as error:
        hopeless = isinstance(error, DamagedError | LookupError)
        if not hopeless and deps.clock.now() < _deadline(now, order):
            raise
        logger.exception("attempt %s: its retests cannot be read or kept", attempt_id)
        return GO
    except Exception as error:
        logger.exception("attempt %s: its failures could not be looked into", attempt_id)
        return _leave(deps, now, f"{type(error).__name__}: {error}")


def _look(deps: FlowDeps, now: AttemptState, order: RetestOptions) -> Value | NotYet:
    if now.cell.state is CellState.COLLECTING:
        if not _is_worth_it(now) or not keys_in_question(deps.stores, now.cell, now.spec, order):
            return GO
        now = enter(deps, now, CellState.DIAGNOSING)
    if now.run.cancel_requested_at is not None:
        return _leave(deps, now, "its run was cancelled")
    until = _deadline(now, order)
    if deps.clock.now() >= until:
        return _leave(deps, now, "the time for it is over")
    retest_sessions = deps.stores.retests.of_attempt(now.attempt.id)
    under_way = [
        retest_session
        for retest_session in retest_sessions
        if retest_session.state is not RetestSessionState.ENDED
    ]
    if under_way:
        return _go_on(deps, now, under_way[0], until)
    return _next(deps, now, order, retest_sessions)


def _is_worth_it(now: AttemptState) -> bool:
    """Whether retests are possible: the jobs ran, and the machine still exists."""
    held = now.lease is not None and now.lease.state is LeaseState.ACTIVE
    return held and now.attempt.cause is None and now.run.cancel_requested_at is None


def _deadline(now: AttemptState, order: RetestOptions) -> datetime:
    """Return the time at which retests end at the latest."""
    begin = now.cell.entered_at or now.attempt.opened_at
    mine = begin + timedelta(minutes=order.max_minutes + order.await_minutes)
    limit = attempt_deadline(now)
    return min(mine, limit) if limit is not None else mine


def _next(
    deps: FlowDeps,
    now: AttemptState,
    order: RetestOptions,
    retest_sessions: Sequence[RetestSession],
) -> Value | NotYet:
    """Request the next retest session, wait for a requested one, or release the machine."""
    stores, at = deps.stores, deps.clock.now()
    own = [
        retest_session
        for retest_session in retest_sessions
        if retest_session.ask.kind is not RetestKind.BISECT
    ]
    ask = _own_ask(deps, now, order, own)
    if ask is not None:
        key = f"{ask.kind}:{len(own) + 1}"
        stores.retests.ask(now.attempt.id, replace(ask, key=key), at=at)
        _tell(deps, now, _title(ask))
        return NOT_YET
    if order.await_minutes and not stores.retests.are_retests_ended(now.attempt.id):
        if len(own) == len(retest_sessions) and deps.contact_log.remember(now.attempt.id, "waits"):
            _tell(deps, now, "its machine waits for retests that somebody asks for")
        return NOT_YET
    _conclude(deps, now, own)
    return GO


def _own_ask(
    deps: FlowDeps, now: AttemptState, order: RetestOptions, own: Sequence[RetestSession]
) -> RetestPlan | None:
    if not (order.reruns or order.diagnose or order.tests):
        return None
    keys = keys_in_question(deps.stores, now.cell, now.spec, order)
    return next_retest(order, keys, own, _options(deps, now, order))


def _options(deps: FlowDeps, now: AttemptState, order: RetestOptions) -> Options:
    if not order.diagnose:
        return Options()
    baseline = now.spec.matrix.baseline
    name = now.spec.matrix.subject.name
    last = last_time(deps.stores, now.cell, now.spec)
    rows = ", ".join(f"{what} {then}" for what, then, _ in last.packages[:5])
    return Options(
        baseline=baseline_name(name, baseline) if baseline else "",
        last_green=f"the packages of run {last.run} ({rows})" if last.pins else "",
    )


def _go_on(
    deps: FlowDeps, now: AttemptState, retest_session: RetestSession, until: datetime
) -> NotYet:
    """Start the retest session, or read its result."""
    try:
        if retest_session.state is RetestSessionState.REQUESTED:
            _start(deps, now, retest_session, until)
        else:
            _take(deps, now, retest_session)
    except (EnvironmentRefusedError, EvidenceError) as error:
        _end(deps, now, retest_session, trouble=str(error))
    except HostKeyError:
        raise
    except ShellError as error:
        _stay(deps, now, error)
    except MachineError as error:
        _end(deps, now, retest_session, trouble=str(error))
    return NOT_YET


def _start(
    deps: FlowDeps, now: AttemptState, retest_session: RetestSession, until: datetime
) -> None:
    at = deps.clock.now()
    left_s = (until - at).total_seconds()
    if left_s < _LEAST_S:
        _end(deps, now, retest_session, trouble="there was no time left for it")
        return
    workspace = workspace_of(deps, now.lease)
    start_session(deps, now, workspace, retest_session, deadline_s=left_s)
    deps.stores.retests.begin(retest_session.id, at=at)


def _take(deps: FlowDeps, now: AttemptState, retest_session: RetestSession) -> None:
    """Store the retest session's results once its agent has ended, and remove its folder."""
    workspace = workspace_of(deps, now.lease)
    state = workspace.pull(retest_session.id, events_offset=0, log_offset=0, limit_bytes=0)
    deps.contact_log.silent_since.pop(now.attempt.id, None)
    if state is not None and state.alive:
        return
    limit = deps.timings.pull_limit_bytes
    raw = read_session(workspace, retest_session.id, limit_bytes=limit) if state else b""
    order = now.spec.retests or RetestOptions()
    keys = keys_in_question(deps.stores, now.cell, now.spec, order)
    outcomes, trouble = outcomes_of(raw, retest_session.ask, keys)
    evidence = deps.blobs.put([raw])[0] if raw else ""
    deps.stores.retests.end(
        retest_session.id,
        at=deps.clock.now(),
        outcomes=outcomes,
        trouble=trouble,
        evidence=evidence,
    )
    if trouble:
        _tell(deps, now, f"{_title(retest_session.ask)}: {trouble}")
    workspace.close(retest_session.id)


def _end(deps: FlowDeps, now: AttemptState, retest_session: RetestSession, *, trouble: str) -> None:
    deps.stores.retests.end(retest_session.id, at=deps.clock.now(), trouble=trouble)
    _tell(deps, now, f"{_title(retest_session.ask)}: {trouble}")


def _stay(deps: FlowDeps, now: AttemptState, error: ShellError) -> None:
    """Return to wait for an unreachable machine; raise the error when the patience is over."""
    at = deps.clock.now()
    since = deps.contact_log.silent_since.setdefault(now.attempt.id, at)
    if at - since >= timedelta(seconds=deps.timings.contact_timeout_s):
        raise error


def _leave(deps: FlowDeps, now: AttemptState, why: str) -> Value:
    """Stop running jobs as far as possible, and release the machine."""
    for retest_session in deps.stores.retests.of_attempt(now.attempt.id):
        if retest_session.state is not RetestSessionState.ENDED:
            _stop(deps, now, retest_session)
            deps.stores.retests.end(retest_session.id, at=deps.clock.now(), trouble=why)
    deps.contact_log.silent_since.pop(now.attempt.id, None)
    _tell(deps, now, f"its failures are not looked into any further: {why}")
    return GO


def _stop(deps: FlowDeps, now: AttemptState, retest_session: RetestSession) -> None:
    try:
        workspace = workspace_of(deps, now.lease)
        workspace.stop(retest_session.id, "cancelled", kill=True)
        workspace.close(retest_session.id)
    except (MachineError, LookupError) as error:
        logger.warning("retest session %s: not stopped: %s", retest_session.id, error)


def folders_of(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return every folder that the attempt may have created on its machine."""
    if now.spec.retests is None:
        return [now.attempt.id]
    try:
        retest_sessions = deps.stores.retests.of_attempt(now.attempt.id)
    except DamagedError:
        return [now.attempt.id]
    return [now.attempt.id, *(retest_session.id for retest_session in retest_sessions)]


def _conclude(deps: FlowDeps, now: AttemptState, retest_sessions: Sequence[RetestSession]) -> None:
    """Publish the root causes as notices."""
    if not retest_sessions:
        return
    answers = attribute_cell(deps.stores, now.cell)
    for found in answers[:_MOST_LISTED]:
        name = key_of(found.job, found.nodeid) if found.nodeid else found.job
        _tell(deps, now, f"{name}: {found.answer}. {found.sentence}")
    if len(answers) > _MOST_LISTED:
        left = len(answers) - _MOST_LISTED
        _tell(deps, now, f"and {left} more; `seatrial show {now.run.id}` tells of each")


def _title(ask: RetestPlan) -> str:
    count = sum(max(len(nodeids), 1) for nodeids in ask.tests.values())
    things = plural(count, "whole job" if ask.whole else "failing test")
    times = "once" if ask.times == 1 else f"{ask.times} times"
    changed = f", with {ask.changed}" if ask.changed else ", with nothing changed"
    return f"diagnosing: {things} again, {times}{changed}"


def _tell(deps: FlowDeps, now: AttemptState, notice: str) -> None:
    said = {"cell": now.cell.name, "notice": notice}
    deps.stores.run_events.add(now.run.id, "cell", said)
