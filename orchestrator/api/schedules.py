"""Schedules: list, add, show, pause, resume, trigger, remove."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, PageDep
from orchestrator.api.gates import PolicyRequest
from orchestrator.api.models import PageResponse, RequestModel
from orchestrator.api.runs import MATRIX_TEXT, Matrix
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application import schedules
from orchestrator.application.context import Context
from orchestrator.application.gate_policies import check_policy
from orchestrator.application.launch_run import BUILTIN
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.commit import Commit
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.field_limits import Word
from orchestrator.domain.gate.verdict import StoredPolicy
from orchestrator.domain.schedule import (
    CatchUp,
    Firing,
    Overlap,
    Schedule,
    ScheduleResponse,
    SubjectSelector,
)

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ScheduleRequest(RequestModel):
    """A schedule to add."""

    name: Word
    cron: Word
    """Minute, hour, day of month, month, day of week."""
    tz: Word
    """An IANA time zone: ``Europe/Berlin``."""
    owner: Word = ""
    """Name of the responsible person; empty uses the gate's owner, or without a gate the token's
    name.
    """
    matrix: Matrix
    """Text of a matrix file, or the same as an object; stored as it is now."""
    matrix_name: str = Field(default="matrix", min_length=1, max_length=200)
    """File name of the matrix, for messages."""
    payload: str = Field(default=BUILTIN, pattern=f"^({BUILTIN}|[0-9a-f]{{64}})$")
    """``builtin``, or the digest of an uploaded archive."""
    subject: _Digest | None = None
    """Digest of the uploaded wheel of a fixed subject."""
    baseline: _Digest | None = None
    """Digest of the uploaded baseline, where the matrix names a file."""
    select: SubjectSelector = SubjectSelector()
    """Selector of the subject."""
    last_passed_baseline: bool = False
    """Whether the baseline is the version that the gate passed last."""
    gate: Word = ""
    """Name of a gate; empty uses the run's outcome."""
    policy: PolicyRequest | None = None
    """Policy of the gate, stored with the schedule; a refused call stores none."""
    deadline: Word = ""
    """``06:00`` in the schedule's time zone, or ``90m`` after the due time. If there is no verdict
    by then, that is announced.
    """
    overlap: Overlap = Overlap.SKIP
    """The action of a firing while an earlier one is unfinished."""
    catch_up: CatchUp = CatchUp.LATEST
    """The firings to run after a downtime."""
    catch_up_hours: int = 24
    """Firings that were due more hours ago are not caught up."""
    reuse_hours: float | None = Field(default=None, gt=0, le=24 * 365, allow_inf_nan=False)
    """Jobs with identical inputs and evidence no older than this are not run again."""

    commit: Commit = Field(default_factory=Commit)
    """The commit of the payload's checkout, which the runs test."""

    def schedule(self, at: datetime, caller: str) -> Schedule:
        """Return the schedule to store.

        Its owner is `owner`, else the gate's owner (stored as empty), else the caller.
        """
        matrix = self.matrix if isinstance(self.matrix, str) else json.dumps(self.matrix)
        return filled(
            Schedule,
            self,
            unset=("product", "paused_at"),
            cron=" ".join(self.cron.split()),
            owner=self.owner or ("" if self.gate else caller),
            matrix=matrix,
            subject_digest=self.subject,
            baseline_digest=self.baseline,
            subject=self.select,
            reuse_max_age_s=self.reuse_hours * 3600 if self.reuse_hours else None,
            created_at=at,
        )

    def checked_policy(self, context: Context, caller: str) -> StoredPolicy | None:
        """Return the checked policy of the request; None if it has none.

        Raises InvalidDocumentError.
        """
        if self.policy is None:
            return None
        sent = self.policy
        return check_policy(context, sent.policy, sent.name, gate=self.gate, by=caller)


class TriggerRequest(RequestModel):
    """An empty body: the path names the schedule, and the caller is the author."""


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
def list_schedules(context: ContextDep, page: PageDep) -> PageResponse[ScheduleResponse]:
    """List the schedules by name, each with its latest firing."""
    found = schedules.list_schedules(context, page=page)
    return PageResponse(items=found, next=found.next)


@writing.post("/schedules", status_code=201)
def add_schedule(context: ContextDep, body: NewSchedule, caller: CallerDep) -> ScheduleResponse:
    """Validate and store a schedule; idempotent for an identical one.

    It fires only while a permanent controller (`seatrial serve`) is running.
    """
    schedule = body.schedule(context.clock.now(), caller.name)
    policy = body.checked_policy(context, caller.name)
    return schedules.add_schedule(context, schedule, policy)


@reading.get("/schedules/{name}")
def show_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Return a schedule with its firings, latest first."""
    return schedules.show_schedule(context, name)


@writing.put("/schedules/{name}")
def replace_schedule(
    context: ContextDep, name: str, body: NewSchedule, caller: CallerDep
) -> ScheduleResponse:
    """Change a schedule; idempotent. Firings stay, and a paused schedule stays paused."""
    if body.name != name:
        problem = Problem(("name",), f"must be {name!r}, as in the path: a schedule keeps its name")
        raise InvalidDocumentError(f"schedule {name}", [problem])
    schedule = body.schedule(context.clock.now(), caller.name)
    policy = body.checked_policy(context, caller.name)
    return schedules.replace_schedule(context, schedule, policy)


@writing.post("/schedules/{name}/pause")
def pause_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Pause a schedule; running firings continue. Idempotent."""
    return schedules.pause_schedule(context, name)


@writing.post("/schedules/{name}/resume")
def resume_schedule(context: ContextDep, name: str) -> ScheduleResponse:
    """Resume a schedule; firings that were missed during the pause are not caught up."""
    return schedules.resume_schedule(context, name)


@running.post("/schedules/{name}/trigger", status_code=202)
def trigger_schedule(
    context: ContextDep, name: str, caller: CallerDep, body: Trigger = None
) -> Firing:
    """Fire a schedule now, paused or not; calls within one second are one firing."""
    return schedules.trigger_schedule(context, name, by=caller.name)


@writing.delete("/schedules/{name}", status_code=204, response_class=Response)
def remove_schedule(context: ContextDep, name: str) -> None:
    """Delete a schedule and its firings; its runs and verdicts stay."""
    schedules.remove_schedule(context, name)
