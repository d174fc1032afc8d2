"""Quarantines: list, suggest, add, end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Security
from fastapi.openapi.models import Example

from orchestrator.api.dependencies import ContextDep, NumberedPageDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.history import Decide, ProductQuery
from orchestrator.api.models import ListResponse, NumberedPageResponse
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.quarantine import (
    NewQuarantine,
    add_quarantine,
    end_quarantine,
    suggest_quarantines,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.quarantine import (
    QuarantineResponse,
    SuggestedQuarantine,
    quarantine_answer,
)

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["quarantines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["quarantines"], route_class=secured(Scope.GATE), dependencies=_ASKED)


_EXAMPLES: dict[str, Example] = {
    "one": {
        "summary": "On one platform, for two weeks",
        "value": {
            "product": "torchbridge",
            "nodeid": "suites/test_moe.py::test_balances_load",
            "reason": "fails about once in twenty: the seed is not fixed",
            "owner": "moe-team",
            "days": 14,
            "platforms": ["gcp-l4"],
        },
    }
}
NewOne = Annotated[NewQuarantine, Body(openapi_examples=_EXAMPLES)]


@reading.get("/quarantines")
def list_quarantines(
    context: ContextDep, page: NumberedPageDep, product: ProductQuery = None
) -> NumberedPageResponse[QuarantineResponse]:
    """List the quarantines by id, expired ones included."""
    at = context.clock.now()
    found = context.stores.quarantines.list(product=product, page=page)
    items = [quarantine_answer(one, at) for one in found]
    return NumberedPageResponse(items=items, next=found.next)


@reading.get("/quarantines/suggestions")
def list_quarantine_suggestions(
    context: ContextDep,
    product: Annotated[str, Query(description="The payload's name", max_length=300)],
) -> ListResponse[SuggestedQuarantine]:
    """List recently failing tests that are flaky by their history. Quarantines none of them."""
    found = suggest_quarantines(context, product)
    return ListResponse(items=list(found))


@writing.post("/quarantines", status_code=201)
def create_quarantine(context: ContextDep, body: NewOne, caller: CallerDep) -> QuarantineResponse:
    """Quarantine a test now. Its failures stay failures in every count."""
    added = add_quarantine(context, body, author=caller)
    return quarantine_answer(added, context.clock.now())


@writing.post("/quarantines/{quarantine_id}/end")
def end_one_quarantine(
    context: ContextDep, quarantine_id: str, caller: CallerDep, body: Decide = None
) -> QuarantineResponse:
    """End a quarantine now; idempotent."""
    ended = end_quarantine(context, quarantine_id, by=caller.name)
    if ended is None:
        raise NotFoundError(
            f"there is no quarantine {quarantine_id!r}; GET /api/v1/quarantines lists them"
        )
    return quarantine_answer(ended, context.clock.now())
