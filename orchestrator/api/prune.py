"""Pruning: preview and prune."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.models import RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.prune import preview, prune
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.retention import PruneReport

_MOST_DAYS = 36_500
router = APIRouter(
    tags=["service"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


class PruneRequest(RequestModel):
    """Body of a prune; without `days` only the retention policy is applied."""

    days: int | None = Field(default=None, ge=1, le=_MOST_DAYS)
    """Maximum days that anything is kept, except for data that the policy keeps for ever."""


_EXAMPLES: dict[str, Example] = {
    "policy": {"summary": "By the policy", "value": {}},
    "full disk": {"summary": "Nothing older than 30 days", "value": {"days": 30}},
}
PruneBody = Annotated[PruneRequest, Body(openapi_examples=_EXAMPLES)]


@router.get("/prune")
def preview_prune(
    context: ContextDep,
    days: Annotated[
        int | None, Query(ge=1, le=_MOST_DAYS, description="Nothing is kept for longer")
    ] = None,
) -> PruneReport:
    """Return what the policy would prune now; removes nothing."""
    return preview(context, days=days)


@router.post("/prune")
async def prune_now(context: ContextDep, request: Request, body: PruneBody) -> PruneReport:
    """Prune for about 20 seconds; repeat the request until `is_complete`.

    If the client disconnects, pruning ends after the current short step. Results, verdicts with the
    evidence to replay them, leases, costs, transitions, known issues and approvals are never
    removed.
    """
    stopped = threading.Event()
    watch = asyncio.create_task(_disconnection(request, stopped))
    try:
        return await run_in_threadpool(prune, context, days=body.days, is_stopped=stopped.is_set)
    finally:
        stopped.set()
        watch.cancel()


async def _disconnection(request: Request, stopped: threading.Event) -> None:
    """Set the event when the client disconnects; the body must be read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stopped.set()
