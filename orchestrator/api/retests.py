"""Trials of failed tests, who broke them, and the search for the revision that did."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, Security

from orchestrator.api.dependencies import CellDep, ContextDep, KeyHeader, RunId, idempotency_key
from orchestrator.api.machine_serializers import tell_plan
from orchestrator.api.plan_responses import PlanResponse
from orchestrator.api.retest_responses import (
    AskedTrial,
    Bisect,
    BisectRangeResponse,
    BisectRequest,
    SecondMachine,
    SecondMachineResponse,
    SittingResponse,
    TrialsResponse,
    tell_blame,
    tell_range,
    tell_sitting,
)
from orchestrator.api.run_responses import RunResponse
from orchestrator.api.run_serializers import tell_run
from orchestrator.api.security import bearer, secured
from orchestrator.application.bisect_gate import (
    ask_trial,
    begin_bisect,
    bisect_order,
    bisect_range,
    dismiss,
)
from orchestrator.application.blame_run import blame_cell
from orchestrator.application.confirmation_run import ask_second_machine
from orchestrator.application.describe_run import describe_run
from orchestrator.application.launch_run import PayloadMissingError
from orchestrator.application.plan_run import plan_run
from orchestrator.application.ports.stores import Scope

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["trials"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["trials"], route_class=secured(Scope.RUN), dependencies=_ASKED)


@reading.get("/runs/{run_id}/cells/{cell}/trials")
def list_trials(context: ContextDep, cell: CellDep) -> TrialsResponse:
    """How the failed tests went when they ran again, and who broke them."""
    stores = context.stores
    attempts = stores.cells.attempts(cell.id)
    sittings = stores.trials.of_attempt(attempts[-1].id) if attempts else ()
    return TrialsResponse(
        items=[tell_sitting(sitting) for sitting in sittings],
        blame=[tell_blame(found) for found in blame_cell(stores, cell)] if sittings else [],
    )


@writing.post("/runs/{run_id}/cells/{cell}/trials", status_code=202)
def add_trial(
    context: ContextDep, cell: CellDep, key: KeyHeader, body: AskedTrial
) -> SittingResponse:
    """Try another revision on the cell's machine while it waits; the same key asks once."""
    if not context.blobs.has(body.subject):
        raise PayloadMissingError(f"the wheel {body.subject} was not uploaded")
    return tell_sitting(ask_trial(context, cell, body.ask(key)))


@writing.delete("/runs/{run_id}/cells/{cell}/trials", status_code=204)
def end_trials(context: ContextDep, cell: CellDep) -> None:
    """Let the cell's machine go: nobody asks for more trials."""
    dismiss(context, cell)


@reading.get("/runs/{run_id}/cells/{cell}/bisect")
def get_bisect_range(context: ContextDep, cell: CellDep) -> BisectRangeResponse:
    """Where a search for the revision that broke the cell would begin."""
    return tell_range(bisect_range(context, cell))


@writing.post("/runs/{run_id}/cells/{cell}/bisect/plan")
def plan_bisect(context: ContextDep, cell: CellDep, body: Bisect = None) -> PlanResponse:
    """Say what `bisect` would launch, and the most it can cost. Changes nothing."""
    minutes = (body or BisectRequest()).minutes
    return tell_plan(plan_run(context, bisect_order(context, cell, minutes=minutes)))


@writing.post("/runs/{run_id}/cells/{cell}/bisect", status_code=202)
def bisect(
    context: ContextDep,
    cell: CellDep,
    key: KeyHeader,
    request: Request,
    response: Response,
    body: Bisect = None,
) -> RunResponse:
    """Launch the failing jobs again, on a machine that then waits for trials of revisions."""
    body = body or BisectRequest()
    claim = idempotency_key(key, f"POST /runs/{cell.run_id}/cells/{cell.name}/bisect", body)
    run = begin_bisect(context, cell, minutes=body.minutes, key=claim).run
    response.headers["Location"] = request.app.url_path_for("show_run", run_id=run.id)
    return tell_run(describe_run(context.stores, run.id, at=context.clock.now()))


@writing.post("/runs/{run_id}/second-machine")
def second_machine(
    context: ContextDep, run_id: RunId, body: SecondMachine
) -> SecondMachineResponse:
    """Launch what failed on another machine of the platform; asking again launches nothing."""
    return SecondMachineResponse(run=ask_second_machine(context, run_id, max_usd=body.usd))
