"""Schedules: add, list, pause, resume, trigger, remove; and the subject of each firing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from orchestrator.application.context import Context
from orchestrator.application.fire_schedules import new_firing
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.application.launch_run import Later, LaunchOrder, check_order, find_payload
from orchestrator.application.ports.clock import CronError
from orchestrator.application.resolve_firing import repository_of
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.verdict import StoredPolicy
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.schedule import (
    Firing,
    Schedule,
    ScheduleResponse,
    SubjectKind,
    faults,
)
from orchestrator.store.sql import ListPage, PageAsked

UPCOMING = 3
"""Number of upcoming times that are shown."""
FIRINGS_SHOWN = 50


class ScheduleMissingError(LookupError):
    """There is no schedule of this name."""


def add_schedule(
    context: Context, schedule: Schedule, policy: StoredPolicy | None = None
) -> ScheduleResponse:
    """Validate and store a schedule together with the checked policy of its gate, if it brings one.

    Raises InvalidDocumentError, PayloadMissingError, GateMissingError, ScheduleTakenError.
    """
    schedule, first = _checked(context, schedule, policy)
    context.stores.schedules.add(schedule, next_due_at=first, policy=policy)
    return show_schedule(context, schedule.name)


def replace_schedule(
    context: Context, schedule: Schedule, policy: StoredPolicy | None = None
) -> ScheduleResponse:
    """Validate and change a schedule. Its firings stay, and a paused schedule stays paused.

    A firing that has begun goes on as it was. Raises ScheduleMissingError, and what
    `add_schedule` raises.
    """
    find_schedule(context, schedule.name)
    schedule, first = _checked(context, schedule, policy)
    if not context.stores.schedules.replace(schedule, next_due_at=first, policy=policy):
        find_schedule(context, schedule.name)
    return show_schedule(context, schedule.name)


def _checked(
    context: Context, schedule: Schedule, policy: StoredPolicy | None
) -> tuple[Schedule, datetime]:
    """Return the schedule as it is stored, and when it fires first."""
    judging = None
    if schedule.gate:
        judging = policy_of(policy or find_policy(context, schedule.gate))
        schedule = replace(schedule, owner=schedule.owner.strip() or judging.metadata.owner)
    _refuse(schedule, [*faults(schedule), *_time_faults(context, schedule)])
    matrix = _check_matrix(context, schedule)
    _refuse(schedule, _subject_faults(context, schedule, matrix))
    if judging is not None:
        _refuse(schedule, _gate_faults(judging, matrix))
    first = _upcoming(context, schedule)[0]
    product = find_payload(context, schedule.payload).manifest.name
    return replace(schedule, product=product), first


def list_schedules(
    context: Context, *, firings: int = 1, page: PageAsked[str] | None = None
) -> ListPage[ScheduleResponse, str]:
    """Return schedules by name, each with its latest firings."""
    known = context.stores.schedules.list(page)
    latest = context.stores.schedules.latest(limit=firings)
    shown = (
        ScheduleResponse(one, _upcoming(context, one), latest.get(one.name, ())) for one in known
    )
    return ListPage(shown, known.next)


def show_schedule(context: Context, name: str) -> ScheduleResponse:
    """Return the schedule with its firings. Raises ScheduleMissingError."""
    schedule = find_schedule(context, name)
    known = context.stores.schedules.firings(name, limit=FIRINGS_SHOWN)
    return ScheduleResponse(schedule, _upcoming(context, schedule), known)


def find_schedule(context: Context, name: str) -> Schedule:
    """Return the schedule. Raises ScheduleMissingError."""
    found = context.stores.schedules.get(name)
    if found is None:
        raise ScheduleMissingError(f"there is no schedule {name!r}; `seatrial schedule list`")
    return found


def pause_schedule(context: Context, name: str) -> ScheduleResponse:
    """Pause a schedule; running firings continue. Raises ScheduleMissingError."""
    find_schedule(context, name)
    context.stores.schedules.pause(name, at=context.clock.now())
    return show_schedule(context, name)


def resume_schedule(context: Context, name: str) -> ScheduleResponse:
    """Resume a schedule.

    Firings that were missed during the pause are not caught up. Raises ScheduleMissingError.
    """
    schedule = find_schedule(context, name)
    first = _upcoming(context, replace(schedule, paused_at=None))[0]
    context.stores.schedules.resume(name, next_due_at=first)
    return show_schedule(context, name)


def trigger_schedule(context: Context, name: str, *, by: str) -> Firing:
    """Fire a schedule now, paused or not; calls within one second are one firing.

    Raises ScheduleMissingError.
    """
    schedule, now = find_schedule(context, name), context.clock.now()
    firing = new_firing(context.gate.cron, schedule, now.replace(microsecond=0), now)
    return context.stores.schedules.trigger(replace(firing, by=by or "somebody"))


def remove_schedule(context: Context, name: str) -> None:
    """Delete a schedule and its firings; its runs continue. Raises ScheduleMissingError."""
    if not context.stores.schedules.remove(name):
        find_schedule(context, name)


def next_firing(context: Context, schedule: Schedule, now: datetime) -> datetime | None:
    """Return when the schedule fires next; None while it is paused."""
    if schedule.paused_at is not None:
        return None
    return context.gate.cron.next_after(schedule.cron, schedule.tz, now)


def _upcoming(context: Context, schedule: Schedule) -> tuple[datetime, ...]:
    if schedule.paused_at is not None:
        return ()
    times: list[datetime] = []
    at = context.clock.now()
    for _ in range(UPCOMING):
        at = context.gate.cron.next_after(schedule.cron, schedule.tz, at)
        times.append(at)
    return tuple(times)


def _refuse(schedule: Schedule, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        problems = [Problem((field,), message) for field, message in rows]
        raise InvalidDocumentError(f"schedule {schedule.name}", problems)


def _time_faults(context: Context, schedule: Schedule) -> list[tuple[str, str]]:
    now = context.clock.now()
    try:
        context.gate.cron.next_after("0 0 * * *", schedule.tz, now)
    except CronError as error:
        return [("tz", str(error))]
    try:
        context.gate.cron.next_after(schedule.cron, schedule.tz, now)
    except CronError as error:
        return [("cron", str(error))]
    return []


def _check_matrix(context: Context, schedule: Schedule) -> Matrix:
    """Return the matrix; raises now what a launch would raise later."""
    payload = find_payload(context, schedule.payload)
    order = LaunchOrder(
        matrix=schedule.matrix,
        name=schedule.matrix_name,
        payload=schedule.payload,
        subject_digest=schedule.subject_digest,
        baseline_digest=schedule.baseline_digest,
    )
    later: set[Later] = set()
    if schedule.subject.kind is not SubjectKind.FIXED:
        later.add("subject")
    if schedule.last_passed_baseline:
        later.add("baseline")
    matrix, _ = check_order(context, order, payload, later=later)
    return matrix


def _gate_faults(policy: GatePolicy, matrix: Matrix) -> list[tuple[str, str]]:
    """Refuse a gate that can never pass: a firing's verdict is about the firing's own run."""
    here = [one.id for one in matrix.platforms]
    asked = [one.id for one in policy.spec.platforms if one.level == "blocking"]
    missing = [one for one in asked if one not in here]
    if not missing:
        return []
    said = (
        f"gate {policy.metadata.name!r} requires {', '.join(missing)}, and matrix"
        f" {matrix.metadata.name!r} has only {', '.join(here)}: it can never pass; add the platform"
        " to the matrix, or give it `level: advisory` in the policy"
    )
    return [("gate", said)]


def _subject_faults(context: Context, schedule: Schedule, matrix: Matrix) -> list[tuple[str, str]]:
    asked = schedule.subject
    if asked.kind is not SubjectKind.BRANCH:
        return []
    if (asked.url and asked.branch) or matrix.subject.git is not None:
        refusal = context.gate.subjects.refusal(repository_of(schedule, matrix.subject))
        return [("subject", refusal)] if refusal else []
    return [("subject", "a branch needs `url` and `branch`, or a matrix whose subject is from git")]
