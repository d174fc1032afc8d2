"""Retests of failed tests, the root causes they prove, and bisection."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import CellDep, ContextDep, KeyHeader, RunId, idempotency_key
from orchestrator.api.models import RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.attribute_failures import attribute_cell
from orchestrator.application.describe_run import describe_run
from orchestrator.application.launch_run import missing_upload
from orchestrator.application.plan_run import plan_run
from orchestrator.application.retests import (
    ask_retest,
    begin_bisect,
    bisect_order,
    bisect_range,
    dismiss,
    request_confirmation_run,
)
from orchestrator.domain.bisect import BisectRange
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.retention import RunPart
from orchestrator.domain.retests import (
    ConfirmationRunResponse,
    RetestKind,
    RetestPlan,
    RetestSession,
    RetestSessionResponse,
)
from orchestrator.domain.root_cause import RetestsResponse
from orchestrator.domain.run_record import RunResponse, run_answer

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class BisectRequest(RequestModel):
    """Parameters of a bisection."""

    minutes: float = Field(default=60.0, gt=0, le=1440, allow_inf_nan=False)
    """Maximum minutes of the machine for all retests; when the retests are ended, it is released.
    """


class RetestRequest(RequestModel):
    """A revision to retest."""

    subject: str = Field(pattern="^[0-9a-f]{64}$")
    """Digest of the revision's uploaded wheel."""
    version: str = Field(default="", max_length=200)
    """Version of the wheel, where it differs from the matrix's."""
    changed: str = Field(default="", max_length=200)
    """The change in words, for a person: ``revision 1a2b3c4``."""
    tests: dict[str, list[str]] = Field(default_factory=dict)
    """Node ids by job; by default all failed tests of the cell."""
    times: int = Field(default=2, ge=1, le=20)
    """Number of retests."""

    def ask(self, key: str) -> RetestPlan:
        """Return the retest plan."""
        return RetestPlan(
            kind=RetestKind.BISECT,
            tests={job: tuple(nodeids) for job, nodeids in self.tests.items()},
            times=self.times,
            changed=self.changed,
            subject_digest=self.subject,
            subject_version=self.version,
            key=key,
        )


class ConfirmationRunRequest(RequestModel):
    """Parameters of a confirmation run."""

    max_usd: str = Field(pattern=r"^[0-9]{1,8}(\.[0-9]{1,6})?$")
    """Maximum cost as decimal text; above it the run is not launched."""

    @property
    def usd(self) -> Decimal:
        """Return `max_usd` as a number."""
        return Decimal(self.max_usd)


_BISECT: dict[str, Example] = {
    "hour": {"summary": "A machine for an hour", "value": {"minutes": 60}},
}
_RETEST: dict[str, Example] = {
    "revision": {
        "summary": "What failed, twice, with the wheel of another revision",
        "value": {"subject": _DIGEST, "changed": "revision 1a2b3c4", "times": 2},
    }
}
_SECOND: dict[str, Example] = {
    "five": {"summary": "For five dollars at the most", "value": {"max_usd": "5"}},
}
Bisect = Annotated[BisectRequest | None, Body(openapi_examples=_BISECT)]
RequestedRetest = Annotated[RetestRequest, Body(openapi_examples=_RETEST)]
ConfirmationRun = Annotated[ConfirmationRunRequest, Body(openapi_examples=_SECOND)]
_ASKED = [Security(bearer)]
reading = APIRouter(tags=["retests"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["retests"], route_class=secured(Scope.RUN), dependencies=_ASKED)


@reading.get("/runs/{run_id}/cells/{cell}/retests")
def list_retests(context: ContextDep, cell: CellDep) -> RetestsResponse:
    """List the retests of a cell's failed tests, and the root causes that the retests prove."""
    stores = context.stores
    attempts = stores.cells.attempts(cell.id)
    retest_sessions = stores.retests.of_attempt(attempts[-1].id) if attempts else ()
    return RetestsResponse(
        items=tuple(map(retest_session_response, retest_sessions)),
        attributions=tuple(attribute_cell(stores, cell)) if retest_sessions else (),
    )


@writing.post("/runs/{run_id}/cells/{cell}/retests", status_code=202)
def add_retest(
    context: ContextDep, cell: CellDep, key: KeyHeader, body: RequestedRetest
) -> RetestSessionResponse:
    """Request a retest of a revision on the cell's waiting machine; idempotent by key."""
    if not context.blobs.claim(body.subject):
        raise missing_upload(context, RunPart.SUBJECT, body.subject)
    return retest_session_response(ask_retest(context, cell, body.ask(key)))


@writing.delete("/runs/{run_id}/cells/{cell}/retests", status_code=204)
def end_retests(context: ContextDep, cell: CellDep) -> None:
    """End a cell's retests, so that its machine is released."""
    dismiss(context, cell)


@reading.get("/runs/{run_id}/cells/{cell}/bisect")
def get_bisect_range(context: ContextDep, cell: CellDep) -> BisectRange:
    """Return the revisions that a bisection of the cell's failures would search."""
    return bisect_range(context, cell)


@writing.post("/runs/{run_id}/cells/{cell}/bisect/plan")
def plan_bisect(context: ContextDep, cell: CellDep, body: Bisect = None) -> Plan:
    """Plan what `bisect` would launch, with the maximum cost. Changes nothing."""
    minutes = (body or BisectRequest()).minutes
    return plan_run(context, bisect_order(context, cell, minutes=minutes))


@writing.post("/runs/{run_id}/cells/{cell}/bisect", status_code=202)
def bisect(
    context: ContextDep,
    cell: CellDep,
    key: KeyHeader,
    request: Request,
    response: Response,
    body: Bisect = None,
) -> RunResponse:
    """Launch the failing jobs again, on a machine that then waits for retests of revisions."""
    body = body or BisectRequest()
    claim = idempotency_key(key, f"POST /runs/{cell.run_id}/cells/{cell.name}/bisect", body)
    run = begin_bisect(context, cell, minutes=body.minutes, key=claim).run
    response.headers["Location"] = request.app.url_path_for("show_run", run_id=run.id)
    return run_answer(describe_run(context.stores, run.id, at=context.clock.now()))


@writing.post("/runs/{run_id}/confirmation-run")
def start_confirmation_run(
    context: ContextDep, run_id: RunId, body: ConfirmationRun
) -> ConfirmationRunResponse:
    """Launch a confirmation run, which repeats failures on another machine; idempotent."""
    return ConfirmationRunResponse(run=request_confirmation_run(context, run_id, max_usd=body.usd))


def retest_session_response(retest_session: RetestSession) -> RetestSessionResponse:
    """Return the response of a retest session."""
    ask = retest_session.ask
    return filled(
        RetestSessionResponse,
        retest_session,
        kind=ask.kind,
        changed=ask.changed,
        whole=ask.whole,
        times=ask.times,
        tests=ask.tests,
    )
