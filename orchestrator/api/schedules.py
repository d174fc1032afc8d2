"""Schedules: list, add, show, pause, resume, trigger, remove."""

from __future__ import annotations

from fastapi import APIRouter, Response, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.identity import CallerDep
from orchestrator.api.schedule_requests import NewSchedule, Trigger
from orchestrator.api.schedule_responses import (
    FiringResponse,
    ScheduleListResponse,
    ScheduleResponse,
    tell_firing,
    tell_schedule,
)
from orchestrator.api.security import bearer, secured
from orchestrator.application import schedules
from orchestrator.application.ports.stores import Scope

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["schedules"], route_class=secured(Scope.READ), dependencies=_ASKED)
running = APIRouter(tags=["schedules"], route_class=secured(Scope.RUN), dependencies=_ASKED)
writing = APIRouter(tags=["schedules"], route_class=secured(Scope.GATE), dependencies=_ASKED)


@reading.get("/schedules")
def list_schedules(context: ContextDep) -> ScheduleListResponse:
    """Every schedule with its latest firing."""
    known = schedules.list_schedules(context)
    return ScheduleListResponse(items=[tell_schedule(shown) for shown in known])


@writing.post("/schedules", status_code=201)
def add_schedule(context: ContextDep, body: NewSchedule, caller: CallerDep) -> ScheduleResponse:
    """Add one, once all that can be checked before it fires was; the very same again is one.

    It fires while a controller runs that stays: `seatrial serve`.
    """
    schedule = body.schedule(context.clock.now(), caller.name)
    return tell_schedule(schedules.add_schedule(context, schedule))


@reading.get("/schedules/{name}")
def show_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """A schedule with its firings, the latest first."""
    return tell_schedule(schedules.show_schedule(context, name))


@writing.post("/schedules/{name}/pause")
def pause_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Let it fire no more; what it began goes on. Doing so again changes nothing."""
    return tell_schedule(schedules.pause_schedule(context, name))


@writing.post("/schedules/{name}/resume")
def resume_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Let it fire again; what was due meanwhile stays undone."""
    return tell_schedule(schedules.resume_schedule(context, name))


@running.post("/schedules/{name}/trigger", status_code=202)
def trigger_schedule(
    context: ContextDep, name: str, caller: CallerDep, body: Trigger = None
) -> FiringResponse:
    """Let it fire now, paused or not; within one second it is one firing."""
    return tell_firing(schedules.trigger_schedule(context, name, by=caller.name))


@writing.delete("/schedules/{name}", status_code=204, response_class=Response)
def remove_schedule(context: ContextDep, name: str) -> None:
    """Forget it and its firings; runs that it launched go on, and verdicts stay."""
    schedules.remove_schedule(context, name)
