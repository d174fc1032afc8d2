"""Pruning: what would go, and removing it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.models import RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.prune import preview, prune
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.retention import PruneReport
from orchestrator.store.audit_recorder import note

_MOST_DAYS = 36_500
router = APIRouter(
    tags=["service"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


class PruneRequest(RequestModel):
    """What to prune."""

    days: int | None = Field(default=None, ge=1, le=_MOST_DAYS)
    """Takes the place of every number of days in the policy, except for what it keeps for ever."""


_EXAMPLES: dict[str, Example] = {
    "policy": {"summary": "By the policy", "value": {}},
    "full disk": {"summary": "Nothing older than 30 days", "value": {"days": 30}},
}
PruneBody = Annotated[PruneRequest, Body(openapi_examples=_EXAMPLES)]


@router.get("/prune")
def preview_prune(
    context: ContextDep,
    days: Annotated[
        int | None, Query(ge=1, le=_MOST_DAYS, description="In place of the policy's days")
    ] = None,
) -> PruneReport:
    """Return what the policy would prune now; removes nothing."""
    return preview(context, days=days)


@router.post("/prune")
def prune_now(context: ContextDep, body: PruneBody) -> PruneReport:
    """Prune for about 20 seconds; send it again until `is_complete`.

    It may be interrupted and repeated. Results, verdicts with what replays them, leases, costs,
    transitions, known issues and approvals are never removed.
    """
    report = prune(context, days=body.days)
    note("prune", {"days": body.days, "rows": report.rows, "size_bytes": report.size_bytes})
    return report
