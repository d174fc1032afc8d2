"""Schedules: list, add, show, pause, resume, trigger, remove."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.models import ListResponse, RequestModel
from orchestrator.api.runs import MATRIX_TEXT, Matrix
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application import schedules
from orchestrator.application.launch_run import BUILTIN
from orchestrator.domain.extended import filled
from orchestrator.domain.person import Scope
from orchestrator.domain.schedule import (
    CatchUp,
    Firing,
    Overlap,
    Schedule,
    ScheduleResponse,
    SubjectKind,
    SubjectSelector,
)

_PLAIN = r"^[^\x00-\x1f\x7f]*$"
_Word = Annotated[str, Field(max_length=300, pattern=_PLAIN)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SelectorRequest(RequestModel):
    """Which subject a firing is about; resolved when it fires."""

    kind: SubjectKind = SubjectKind.FIXED
    package: _Word = ""
    """Of ``latest``; empty takes the name of the matrix's subject."""
    prereleases: bool = False
    """Whether ``latest`` may be one."""
    url: _Word = ""
    """Of ``branch``: anything that git can clone; empty takes the matrix's."""
    branch: _Word = ""
    """Its name; empty takes the matrix's revision."""


class ScheduleRequest(RequestModel):
    """A schedule to add."""

    name: _Word
    cron: _Word
    """Minute, hour, day of month, month, day of week."""
    tz: _Word
    """An IANA time zone: ``Europe/Berlin``."""
    owner: _Word = ""
    """Who answers for it; empty takes the gate's owner, or the token's name."""
    matrix: Matrix
    """The text of a matrix file, or the same as an object; it is kept as it is now."""
    matrix_name: str = Field(default="matrix", min_length=1, max_length=200)
    """What messages call the matrix: its file's name."""
    payload: str = Field(default=BUILTIN, pattern=f"^({BUILTIN}|[0-9a-f]{{64}})$")
    """``builtin``, or the digest of an uploaded archive."""
    subject: _Digest | None = None
    """The digest of the uploaded wheel of a fixed subject that is one."""
    baseline: _Digest | None = None
    """The digest of the uploaded baseline, where the matrix names a file."""
    select: SelectorRequest = SelectorRequest()
    """What is validated each time."""
    last_passed_baseline: bool = False
    """Pair benchmarks with the version that the gate passed last."""
    gate: _Word = ""
    """Name of a stored policy; empty judges by the run's outcome."""
    deadline: _Word = ""
    """``06:00`` in its zone, or ``90m`` after it was due; people are told of no verdict by then."""
    overlap: Overlap = Overlap.SKIP
    """While an earlier firing is not over."""
    catch_up: CatchUp = CatchUp.LATEST
    """After downtime."""
    catch_up_hours: int = 24
    """What was due longer ago is not made up for."""
    reuse_hours: float | None = Field(default=None, gt=0, le=24 * 365, allow_inf_nan=False)
    """Jobs with evidence no older than this, of the very same, are not run again."""

    def schedule(self, at: datetime, caller: str) -> Schedule:
        """As the operation takes it; the caller owns what neither they nor a gate say."""
        matrix = self.matrix if isinstance(self.matrix, str) else json.dumps(self.matrix)
        return filled(
            Schedule,
            self,
            cron=" ".join(self.cron.split()),
            owner=self.owner or ("" if self.gate else caller),
            matrix=matrix,
            subject_digest=self.subject,
            baseline_digest=self.baseline,
            subject=SubjectSelector(**dict(self.select)),
            reuse_max_age_s=self.reuse_hours * 3600 if self.reuse_hours else None,
            created_at=at,
        )


class TriggerRequest(RequestModel):
    """Nothing: whoever sends it says so."""


_SCHEDULES: dict[str, Example] = {
    "nightly": {
        "summary": "Every night at two, with a gate and a deadline",
        "value": {
            "name": "nightly",
            "cron": "0 2 * * *",
            "tz": "Europe/Berlin",
            "owner": "release team",
            "matrix": MATRIX_TEXT,
            "gate": "release",
            "deadline": "06:00",
        },
    },
    "branch": {
        "summary": "The head of a branch on working days; what is unchanged is not run again",
        "value": {
            "name": "main",
            "cron": "30 1 * * 1-5",
            "tz": "UTC",
            "owner": "release team",
            "matrix": MATRIX_TEXT,
            "select": {
                "kind": "branch",
                "url": "https://git.example/torchbridge.git",
                "branch": "main",
            },
            "deadline": "240m",
            "reuse_hours": 36,
        },
    },
}
_NOTHING: dict[str, Example] = {"nothing": {"summary": "Nothing", "value": {}}}
NewSchedule = Annotated[ScheduleRequest, Body(openapi_examples=_SCHEDULES)]
Trigger = Annotated[TriggerRequest | None, Body(openapi_examples=_NOTHING)]


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["schedules"], route_class=secured(Scope.READ), dependencies=_ASKED)
running = APIRouter(tags=["schedules"], route_class=secured(Scope.RUN), dependencies=_ASKED)
writing = APIRouter(tags=["schedules"], route_class=secured(Scope.GATE), dependencies=_ASKED)


@reading.get("/schedules")
def list_schedules(context: ContextDep) -> ListResponse[ScheduleResponse]:
    """Every schedule with its latest firing."""
    known = schedules.list_schedules(context)
    return ListResponse(items=list(known))


@writing.post("/schedules", status_code=201)
def add_schedule(context: ContextDep, body: NewSchedule, caller: CallerDep) -> ScheduleResponse:
    """Add one, once all that can be checked before it fires was; the very same again is one.

    It fires while a controller runs that stays: `seatrial serve`.
    """
    schedule = body.schedule(context.clock.now(), caller.name)
    return schedules.add_schedule(context, schedule)


@reading.get("/schedules/{name}")
def show_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """A schedule with its firings, the latest first."""
    return schedules.show_schedule(context, name)


@writing.post("/schedules/{name}/pause")
def pause_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Let it fire no more; what it began goes on. Doing so again changes nothing."""
    return schedules.pause_schedule(context, name)


@writing.post("/schedules/{name}/resume")
def resume_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Let it fire again; what was due meanwhile stays undone."""
    return schedules.resume_schedule(context, name)


@running.post("/schedules/{name}/trigger", status_code=202)
def trigger_schedule(
    context: ContextDep, name: str, caller: CallerDep, body: Trigger = None
) -> Firing:
    """Let it fire now, paused or not; within one second it is one firing."""
    return schedules.trigger_schedule(context, name, by=caller.name)


@writing.delete("/schedules/{name}", status_code=204, response_class=Response)
def remove_schedule(context: ContextDep, name: str) -> None:
    """Forget it and its firings; runs that it launched go on, and verdicts stay."""
    schedules.remove_schedule(context, name)
