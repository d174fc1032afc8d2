"""Machines: what the clouds show of this project, ending one, and the way into a cell's."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, Security

from orchestrator.api.dependencies import CellDep, ContextDep
from orchestrator.api.machine_responses import AccessResponse, SightResponse, SurveyResponse
from orchestrator.api.machine_serializers import tell_access, tell_sight
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.janitor import DOOMED, Sight
from orchestrator.application.ports.stores import Scope
from orchestrator.application.ssh_access import enter_machine
from orchestrator.application.terminate_machine import end_machine

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["machines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["machines"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


@reading.get("/machines")
def list_machines(
    context: ContextDep,
    orphans: Annotated[
        bool, Query(description="Only what nobody owns: orphan, expired and idle")
    ] = False,
) -> SurveyResponse:
    """Ask the clouds what they have of this project, and say whose each thing is."""
    survey = context.janitor.survey()
    wanted = [s for s in survey.sights if not orphans or s.standing in DOOMED]
    return SurveyResponse(
        items=[_told(context, sight) for sight in wanted], unread=dict(survey.unread)
    )


@writing.post("/machines/{provider}/{machine_id:path}/terminate", status_code=202)
def terminate_machine(
    context: ContextDep,
    provider: str,
    machine_id: Annotated[str, Path(description="As `GET /machines` shows it")],
) -> SightResponse:
    """End now what nobody owns. A leased machine goes by cancelling its run."""
    return _told(context, end_machine(context, provider, machine_id))


@writing.get("/runs/{run_id}/cells/{cell}/access")
def get_access(context: ContextDep, cell: CellDep, response: Response) -> AccessResponse:
    """How to sign in on the machine that the cell holds now, with the private key to it."""
    response.headers["Cache-Control"] = "no-store"
    return tell_access(enter_machine(context, cell))


def _told(context: Context, sight: Sight) -> SightResponse:
    """By the name that its run calls the cell, where the ledger knows it; the tag has an id."""
    if sight.lease is None:
        return tell_sight(sight)
    attempt = context.stores.cells.attempt(sight.lease.attempt_id)
    return tell_sight(sight, cell=context.stores.cells.get(attempt.cell_id).name)
