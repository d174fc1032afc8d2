"""Runs: plan, launch, list, show, cancel, run again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, Security

from orchestrator.api.dependencies import ContextDep, KeyHeader, RunId, idempotency_key
from orchestrator.api.machine_serializers import tell_plan
from orchestrator.api.plan_responses import PlanResponse
from orchestrator.api.run_requests import Launch, Rerun, RerunRequest
from orchestrator.api.run_responses import RunPageResponse, RunResponse
from orchestrator.api.run_serializers import tell_run, tell_summary
from orchestrator.api.security import bearer, secured
from orchestrator.application import list_runs as listing
from orchestrator.application.cancel_run import cancel_run
from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run
from orchestrator.application.launch_run import Launched, launch_run
from orchestrator.application.plan_run import plan_run
from orchestrator.application.ports.stores import Scope
from orchestrator.application.rerun_run import plan_rerun, rerun_run

REPLAYED = "Idempotency-Replayed"
_ASKED = [Security(bearer)]
reading = APIRouter(tags=["runs"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["runs"], route_class=secured(Scope.RUN), dependencies=_ASKED)
_LAUNCHED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The run exists, and its cells begin",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Of the run"},
            REPLAYED: {
                "schema": {"type": "string", "const": "true"},
                "description": "Present when the key was used before: nothing was launched now",
            },
        },
    }
}


@writing.post("/plan")
def plan(context: ContextDep, body: Launch) -> PlanResponse:
    """Say what a launch would do: cells, places, and the most it can cost. Changes nothing."""
    return tell_plan(plan_run(context, body.order()))


@writing.post("/runs", status_code=202, responses=_LAUNCHED)
def launch(
    context: ContextDep, body: Launch, key: KeyHeader, request: Request, response: Response
) -> RunResponse:
    """Launch a matrix. Everything is checked first; a refusal changes nothing."""
    claim = idempotency_key(key, "POST /runs", body)
    return _answer(context, launch_run(context, body.order(), claim), request, response)


@reading.get("/runs")
def list_runs(
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    before: Annotated[str | None, Query(pattern="^[!-~]{1,200}$")] = None,
) -> RunPageResponse:
    """Runs, newest first."""
    at = context.clock.now()
    listed, cursor = listing.list_runs(context.stores, limit=limit, before=before, at=at)
    items = [tell_summary(one.run, one.counts, one.cost_usd) for one in listed]
    return RunPageResponse(items=items, next=cursor)


@reading.get("/runs/{run_id}")
def show_run(context: ContextDep, run_id: RunId) -> RunResponse:
    """Everything about a run but its single tests."""
    return tell_run(describe_run(context.stores, run_id, at=context.clock.now()))


@writing.post("/runs/{run_id}/cancel", status_code=202)
def cancel(context: ContextDep, run_id: RunId) -> RunResponse:
    """Cancel a run: finished tests are kept, machines go home. A finished run stays as it is."""
    cancel_run(context, run_id)
    return tell_run(describe_run(context.stores, run_id, at=context.clock.now()))


@writing.post("/runs/{run_id}/rerun/plan")
def plan_again(context: ContextDep, run_id: RunId, body: Rerun = None) -> PlanResponse:
    """Say what running it again would launch, and the most it can cost. Changes nothing."""
    body = body or RerunRequest()
    planned = plan_rerun(context, run_id, only=body.only, hold_minutes=body.hold_minutes)
    return tell_plan(planned)


@writing.post("/runs/{run_id}/rerun", status_code=202, responses=_LAUNCHED)
def rerun(
    context: ContextDep,
    run_id: RunId,
    key: KeyHeader,
    request: Request,
    response: Response,
    body: Rerun = None,
) -> RunResponse:
    """Launch a finished run again, or only some of its jobs, as a new run."""
    body = body or RerunRequest()
    claim = idempotency_key(key, f"POST /runs/{run_id}/rerun", body)
    launched = rerun_run(context, run_id, only=body.only, key=claim, hold_minutes=body.hold_minutes)
    return _answer(context, launched, request, response)


def _answer(
    context: Context, launched: Launched, request: Request, response: Response
) -> RunResponse:
    run_id = launched.run.id
    response.headers["Location"] = request.app.url_path_for("show_run", run_id=run_id)
    if launched.replayed:
        response.headers[REPLAYED] = "true"
    return tell_run(describe_run(context.stores, run_id, at=context.clock.now()))
