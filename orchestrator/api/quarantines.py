"""Quarantines: list, suggest, add, end."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.history import Decide, FlakyResponse, ProductQuery, tell_flaky
from orchestrator.api.models import Filled, RequestModel, ResponseModel
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.quarantine import (
    NewQuarantine,
    add_quarantine,
    end_quarantine,
    suggest_quarantines,
)
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.person import Scope
from orchestrator.domain.quarantine import MOST_PASSES, Candidate, QuarantineState, state_of

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["quarantines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["quarantines"], route_class=secured(Scope.GATE), dependencies=_ASKED)


class QuarantineResponse(ResponseModel):
    """A flaky test whose failures a gate may tolerate until a day. They stay failures."""

    id: str
    """``Q-0001``."""
    product: str
    nodeid: str
    platforms: list[str]
    """Empty: all."""
    reason: str
    owner: str
    author: str
    """Who opened it: the name that their token had then."""
    author_token: str
    """Its id; `socket`: the operating-system user, on the home's socket. Empty: unknown."""
    opened: datetime
    expires: datetime
    returns_after: int
    """Passes in a row, on each platform, that end it by themselves."""
    ended_at: datetime | None
    ended_by: str
    """A person, or ``returned after N passes in a row``."""
    state: QuarantineState


class QuarantineListResponse(ResponseModel):
    """Quarantines, those that are over too."""

    items: list[QuarantineResponse]


class SuggestionResponse(ResponseModel):
    """A test that is flaky by its history."""

    job: str
    nodeid: str
    platforms: list[str]
    """Where it failed lately."""
    flaky: FlakyResponse
    quarantine: str
    """The one that it is in already, or empty."""


class SuggestionListResponse(ResponseModel):
    """Tests to think about, the likeliest to be flaky first."""

    items: list[SuggestionResponse]


class QuarantineRequest(RequestModel):
    """A quarantine to add."""

    product: Filled
    """The payload's name."""
    nodeid: Annotated[str, Field(min_length=1, max_length=2000)]
    """The test, as `seatrial show` names it."""
    reason: Filled
    owner: Filled
    """Who mends it."""
    days: int = Field(ge=1, le=36_500)
    """Until it expires: at most `exception_max_age` of the product's gates."""
    platforms: tuple[Filled, ...] = ()
    """Ids; none means all."""
    returns_after: int = Field(default=20, ge=1, le=MOST_PASSES)
    """Passes in a row, on each platform, that end it by themselves."""


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
NewOne = Annotated[QuarantineRequest, Body(openapi_examples=_EXAMPLES)]


@reading.get("/quarantines")
def list_quarantines(context: ContextDep, product: ProductQuery = None) -> QuarantineListResponse:
    """Every quarantine, those that are over too."""
    at = context.clock.now()
    found = context.stores.quarantines.list(product=product)
    return QuarantineListResponse(items=[_tell(one, at=at) for one in found])


@reading.get("/quarantines/suggestions")
def list_quarantine_suggestions(
    context: ContextDep,
    product: Annotated[str, Query(description="The payload's name", max_length=300)],
) -> SuggestionListResponse:
    """Tests that failed lately and are flaky by their history. Nothing is put in quarantine."""
    found = suggest_quarantines(context, product)
    return SuggestionListResponse(items=[_tell_candidate(one) for one in found])


@writing.post("/quarantines", status_code=201)
def create_quarantine(context: ContextDep, body: NewOne, caller: CallerDep) -> QuarantineResponse:
    """Add one, opened now. The test's failures stay failures in every count."""
    added = add_quarantine(context, NewQuarantine(**dict(body), author=caller))
    return _tell(added, at=context.clock.now())


@writing.post("/quarantines/{quarantine_id}/end")
def end_one_quarantine(
    context: ContextDep, quarantine_id: str, caller: CallerDep, body: Decide = None
) -> QuarantineResponse:
    """End one now; doing so again changes nothing."""
    ended = end_quarantine(context, quarantine_id, by=caller.name)
    if ended is None:
        raise NotFoundError(
            f"there is no quarantine {quarantine_id!r}; GET /api/v1/quarantines lists them"
        )
    return _tell(ended, at=context.clock.now())


def _tell(one: Quarantine, *, at: datetime) -> QuarantineResponse:
    return QuarantineResponse.of(one, state=state_of(one, at))


def _tell_candidate(one: Candidate) -> SuggestionResponse:
    return SuggestionResponse.of(one, flaky=tell_flaky(one.evidence))
