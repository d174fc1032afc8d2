"""Begin what schedules say is due, and take what they began further. Any controller may do so.

What is due becomes firings in one transaction of the database, which only one controller wins.
Whoever goes on with a firing holds it for a while by the database's clock; each of its steps has
the effect of once, so that a dead holder's firing is taken over where it stands.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from orchestrator.application.advance_firing import Operations, advance, concluded, waits
from orchestrator.application.blame_run import blame_run
from orchestrator.application.claim_firings import claim
from orchestrator.application.confirmation_run import request_confirmation_run
from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import evaluate_gate
from orchestrator.application.gate_policies import GateMissingError
from orchestrator.application.launch_run import KeyReusedError, PayloadMissingError
from orchestrator.application.notify_firing import no_verdict
from orchestrator.application.notify_people import notify_people
from orchestrator.application.ports.cron import CronError
from orchestrator.application.ports.subjects import SubjectGoneError
from orchestrator.domain.machine import ConfigError
from orchestrator.domain.problems import InvalidDocumentError
from orchestrator.domain.schedule import (
    ERRORED,
    MAX_TRIES,
    Firing,
    FiringState,
    Schedule,
    pause_after,
)
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)

LEASE_S = 30.0
"""A holder that was not heard of for so long is dead."""
_FOR_GOOD = (
    *(SubjectGoneError, InvalidDocumentError, PayloadMissingError, KeyReusedError),
    *(GateMissingError, ConfigError),
)
"""Faults that do not pass by themselves."""
OPERATIONS = Operations(
    evaluate=evaluate_gate,
    blame=blame_run,
    request_confirmation_run=request_confirmation_run,
    announce=notify_people,
)

Begin = Callable[[str, Callable[[], None]], None]
"""Does the named work, now or soon; what is under way already is not begun again."""


def _at_once(name: str, work: Callable[[], None]) -> None:
    work()


def fire(
    context: Context,
    *,
    begin: Begin = _at_once,
    operations: Operations = OPERATIONS,
    lease_s: float = LEASE_S,
) -> None:
    """Claim what is due, and go on with every firing that does not wait."""
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
    if firing.overdue or firing.deadline_at is None or firing.has_reached(FiringState.JUDGED):
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
        except Exception as error:  # noqa: BLE001 - people are told of whatever it was
            moved = _faulted(context, firing, error)
        begins = moved.has_begun and not firing.has_begun
        if not (store.begin if begins else store.save)(moved, holder):
            # It is somebody else's, or another began while it was resolved: the next look sees.
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
    reason = firing.reason if firing.has_reached(FiringState.JUDGED) else ""
    fresh = replace(firing, tries=0, retry_at=None, reason=reason)
    return advance(context, operations, schedule, fresh)


def _faulted(context: Context, firing: Firing, error: Exception) -> Firing:
    said = str(error) or type(error).__name__
    tries = firing.tries + 1
    # What cannot be told now is told later, however often that takes.
    is_judged = firing.has_reached(FiringState.JUDGED)
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
    """Hold the firing for as long as the block takes: a wheel may take minutes to build."""
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
