"""Machines: what the clouds show of this project, ending one, and the way into a cell's."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, Security

from orchestrator.api.deps import CellDep, ContextDep
from orchestrator.api.errors import (
    MachineInUseError,
    MachineStaysError,
    NotFoundError,
    ProviderUnreadError,
)
from orchestrator.api.guard import bearer, secured
from orchestrator.api.machine_shapes import AccessShape, SightShape, SurveyShape
from orchestrator.api.telling_machines import tell_access, tell_sight
from orchestrator.application.context import Context
from orchestrator.application.enter_machine import enter_machine
from orchestrator.application.ports.stores import Scope
from orchestrator.application.sweep_leaks import DOOMED, Sight, Standing
from orchestrator.domain.problems import nearest

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["machines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["machines"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


@reading.get("/machines")
def list_machines(
    context: ContextDep,
    orphans: Annotated[
        bool, Query(description="Only what nobody owns: orphan, expired and idle")
    ] = False,
) -> SurveyShape:
    """Ask the clouds what they have of this project, and say whose each thing is."""
    survey = context.janitor.survey()
    wanted = [s for s in survey.sights if not orphans or s.standing in DOOMED]
    return SurveyShape(
        items=[_told(context, sight) for sight in wanted], unread=dict(survey.unread)
    )


@writing.post("/machines/{provider}/{machine_id:path}/terminate", status_code=202)
def terminate_machine(
    context: ContextDep,
    provider: str,
    machine_id: Annotated[str, Path(description="As `GET /machines` shows it")],
) -> SightShape:
    """End now what nobody owns. A leased machine goes by cancelling its run."""
    sight = _find(context, provider, machine_id)
    _refuse_owned(sight)
    if not context.janitor.end(sight):
        raise ProviderUnreadError(
            f"{provider} did not take the order to end {machine_id}; the controller's log says why,"
            " and the janitor tries again"
        )
    return _told(context, sight)


@writing.get("/runs/{run_id}/cells/{cell}/access")
def get_access(context: ContextDep, cell: CellDep, response: Response) -> AccessShape:
    """How to sign in on the machine that the cell holds now, with the private key to it."""
    response.headers["Cache-Control"] = "no-store"
    return tell_access(enter_machine(context, cell))


def _told(context: Context, sight: Sight) -> SightShape:
    """By the name that its run calls the cell, where the ledger knows it; the tag has an id."""
    if sight.lease is None:
        return tell_sight(sight)
    attempt = context.stores.cells.attempt(sight.lease.attempt_id)
    return tell_sight(sight, cell=context.stores.cells.get(attempt.cell_id).name)


def _find(context: Context, provider: str, machine_id: str) -> Sight:
    if provider not in context.traits:
        near = nearest(provider, list(context.traits))
        raise NotFoundError(f"there is no provider {provider!r}{near}")
    survey = context.janitor.survey([provider])
    if provider in survey.unread:
        raise ProviderUnreadError(f"{provider} cannot be asked: {survey.unread[provider]}")
    for sight in survey.sights:
        if sight.machine.id == machine_id:
            return sight
    raise NotFoundError(
        f"{provider} shows no {machine_id!r} of this project; GET /api/v1/machines lists them"
    )


def _refuse_owned(sight: Sight) -> None:
    tags, name = sight.machine.tags, sight.machine.id
    if sight.standing is Standing.LEASED:
        run = tags.get("seatrial-run", "") or "RUN"
        raise MachineInUseError(
            f"{name} is at work for a cell: `seatrial cancel {run}` gives it back in order"
        )
    if sight.standing is Standing.FOREIGN:
        until = f"{sight.expires_at:%Y-%m-%d %H:%M:%S} UTC" if sight.expires_at else "it expires"
        owner = tags.get("seatrial-controller", "another controller")
        raise MachineStaysError(f"{name} is controller {owner}'s until {until}; only that ends it")
    if sight.standing is Standing.SHARED:
        raise MachineStaysError(f"{name} serves machines that are still there; they go first")
