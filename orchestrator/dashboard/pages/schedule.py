"""One schedule: what it launches and when, what became of its firings; pause, trigger, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Response

from orchestrator.application.schedules import (
    FIRINGS_SHOWN,
    ScheduleMissingError,
    ShownSchedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    show_schedule,
    trigger_schedule,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.firings import (
    COLUMNS,
    catch_up_words,
    deadline_of,
    deadline_words,
    firing_row,
    overlap_words,
    when_words,
)
from orchestrator.dashboard.responses import Asked, AskedDep, Page, PageMissingError
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Badge, Moment, Table
from orchestrator.domain.person import Scope

router = APIRouter()


@router.get(urls.SCHEDULES + "/{name}")
def show_one(asked: AskedDep, name: str) -> Response:
    """All of it."""
    try:
        shown = show_schedule(asked.context, name)
    except ScheduleMissingError as error:
        raise PageMissingError(f"there is no schedule {name!r}; /schedules lists them") from error
    return asked.answer(_page(asked, shown))


@router.post(urls.SCHEDULES + "/{name}/pause")
def pause(asked: AskedDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str) -> Response:
    """Let it fire no more."""
    return _done(asked, name, lambda: pause_schedule(asked.context, name))


@router.post(urls.SCHEDULES + "/{name}/resume")
def resume(asked: AskedDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str) -> Response:
    """Let it fire again."""
    return _done(asked, name, lambda: resume_schedule(asked.context, name))


@router.post(urls.SCHEDULES + "/{name}/trigger")
def trigger(asked: AskedDep, viewer: Annotated[Viewer, needs(Scope.RUN)], name: str) -> Response:
    """Let it fire now; within one second it is one firing."""
    return _done(asked, name, lambda: trigger_schedule(asked.context, name, by=viewer.name))


@router.post(urls.SCHEDULES + "/{name}/remove")
def remove(asked: AskedDep, viewer: Annotated[Viewer, needs(Scope.GATE)], name: str) -> Response:
    """Forget it and its firings."""
    with suppress(ScheduleMissingError):  # it was removed before: what was asked for is so
        remove_schedule(asked.context, name)
    return asked.go(urls.SCHEDULES)


def _done(asked: Asked, name: str, work: Callable[[], object]) -> Response:
    try:
        work()
    except ScheduleMissingError as error:
        raise PageMissingError(f"there is no schedule {name!r}; /schedules lists them") from error
    return asked.go(urls.schedule_url(name))


def _page(asked: Asked, shown: ShownSchedule) -> Page:
    schedule = shown.schedule
    table = Table(
        id="firings",
        caption="Firings, the latest first",
        columns=COLUMNS,
        rows=[firing_row(one, asked.now) for one in shown.firings],
        empty="It has not fired yet. It fires while a controller runs that stays.",
        command="seatrial serve",
        is_caption_hidden=True,
    )
    return Page(
        template="schedule.html.j2",
        title=schedule.name,
        tables=(table,),
        facts={
            "schedule": schedule,
            "state": Badge("paused" if schedule.paused_at else "active"),
            "since": Moment(schedule.paused_at),
            "upcoming": [Moment(at) for at in shown.upcoming],
            "when": when_words(schedule),
            "overlap": overlap_words(schedule),
            "catch_up": catch_up_words(schedule),
            "deadline": deadline_words(schedule),
            "reuse_h": (schedule.reuse_max_age_s or 0) / 3600,
            "most_firings": FIRINGS_SHOWN,
            **_kept(asked, shown),
        },
        data=_told(shown),
        section=urls.SCHEDULES,
    )


def _kept(asked: Asked, shown: ShownSchedule) -> Mapping[str, object]:
    """How often people had their verdict in time."""
    late = [one for one in shown.firings if deadline_of(one, asked.now) == "deadline_missed"]
    return {
        "late": len(late),
        "with_deadline": sum(one.deadline_at is not None for one in shown.firings),
        "is_late_now": bool(late) and late[0] is shown.firings[0],
        "missed": sum(one.outcome == "missed" for one in shown.firings),
    }


def _told(shown: ShownSchedule) -> Mapping[str, object]:
    schedule = shown.schedule
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "paused_at": Moment(schedule.paused_at).plain(),
        "upcoming": [Moment(at).plain() for at in shown.upcoming],
        "owner": schedule.owner,
        "gate": schedule.gate,
        "deadline": schedule.deadline,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "matrix": schedule.matrix,
    }
