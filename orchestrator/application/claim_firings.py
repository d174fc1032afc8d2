"""What is due becomes firings, which only one controller writes down."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from functools import partial

from orchestrator.application.context import Context
from orchestrator.application.ports.cron import Cron
from orchestrator.domain.schedule import (
    MISSED,
    Firing,
    FiringState,
    Schedule,
    minutes_deadline,
    sort_out,
    wall_deadline,
)
from orchestrator.store.schedules import DueSchedule

logger = logging.getLogger(__name__)

_LOOK_BACK = timedelta(days=15)
"""Longer than anything is made up for."""


def new_firing(cron: Cron, schedule: Schedule, due_at: datetime, now: datetime) -> Firing:
    """A firing that is about to begin."""
    deadline_at = _deadline(cron, schedule, due_at)
    return Firing(schedule=schedule.name, due_at=due_at, claimed_at=now, deadline_at=deadline_at)


def claim(context: Context, due: DueSchedule) -> None:
    """Write down what became due since the last time, unless somebody did. Raises CronError."""
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
        logger.warning("schedule %s: %d firings were missed for good", schedule.name, count)


def _missed(
    schedule: Schedule, times: tuple[datetime, ...], now: datetime, *, tell: bool
) -> list[Firing]:
    """Written down, so that no night is forgotten; told once, where nothing fires instead."""
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
