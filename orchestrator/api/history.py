"""What is known over many runs: kinds of failures, tests under all their names."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from orchestrator.api.dependencies import LARGEST, ContextDep, resolve_run
from orchestrator.api.errors import NotFoundError
from orchestrator.api.history_requests import Decide, Match
from orchestrator.api.history_responses import (
    AliasListResponse,
    AliasResponse,
    ClusterListResponse,
    HistoryResponse,
    KnownTestPageResponse,
    MatchingResponse,
)
from orchestrator.api.history_serializers import (
    tell_alias,
    tell_history,
    tell_known_test,
    tell_matching,
    tell_review,
)
from orchestrator.api.identity import CallerDep
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.explain_failures import review_failures, review_run
from orchestrator.application.match_tests import decide_alias, suggest_aliases
from orchestrator.application.ports.stores import Scope
from orchestrator.application.test_history import history_of
from orchestrator.domain.alias import AliasState
from orchestrator.domain.person import Person

_ASKED = [Security(bearer)]
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
reading = APIRouter(tags=["history"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["history"], route_class=secured(Scope.RUN), dependencies=_ASKED)

ProductQuery = Annotated[
    str | None, Query(description="The payload's name", max_length=300, examples=["torchbridge"])
]
AliasId = Annotated[str, Path(description="As `GET /aliases` shows it")]


@reading.get("/signatures")
def list_signatures(
    context: ContextDep,
    run: Annotated[str | None, Query(description="Only of this run", max_length=300)] = None,
    product: ProductQuery = None,
    runs: Annotated[int, Query(ge=1, le=500, description="So many newest runs")] = 50,
) -> ClusterListResponse:
    """Failures by signature, of a run or of the newest runs, the largest cluster first."""
    if run is not None:
        return tell_review(review_run(context, resolve_run(context, run)))
    return tell_review(review_failures(context, product=product, runs=runs))


@reading.get("/tests")
def list_known_tests(
    context: ContextDep,
    product: ProductQuery = None,
    job: Annotated[str | None, Query(max_length=300)] = None,
    contains: Annotated[str, Query(description="Stands in the node id", max_length=300)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
) -> KnownTestPageResponse:
    """Tests, whatever ran them."""
    page = context.stores.tests.page(
        product=product, job=job, contains=contains, limit=limit, after=after
    )
    aliases = context.stores.aliases.confirmed()
    items = [tell_known_test(test, aliases) for test in page.items]
    return KnownTestPageResponse(items=items, next=page.next)


@reading.get("/tests/{test_id}/history")
def get_test_history(
    context: ContextDep,
    test_id: Annotated[str, Path(description="As `GET /tests` shows it")],
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> HistoryResponse:
    """How a test went, under all its names, and whether it is flaky."""
    known = _NUMBER.fullmatch(test_id)
    history = history_of(context.stores, int(test_id), limit=limit) if known else None
    if history is None:
        raise NotFoundError(f"there is no test {test_id!r}; GET /api/v1/tests lists them")
    return tell_history(history)


@reading.get("/aliases")
def list_aliases(
    context: ContextDep, product: ProductQuery = None, state: AliasState | None = None
) -> AliasListResponse:
    """Tests that stand under other names: suggested, confirmed and rejected."""
    found = context.stores.aliases.list(product=product, state=state)
    return AliasListResponse(items=[tell_alias(alias) for alias in found])


@writing.post("/aliases")
def match_tests(context: ContextDep, body: Match) -> MatchingResponse:
    """Compare the tests of two runs; what may be one test is suggested, and nothing is merged."""
    old, new = resolve_run(context, body.old_run), resolve_run(context, body.new_run)
    return tell_matching(suggest_aliases(context, old, new))


@writing.post("/aliases/{alias_id}/confirm")
def confirm_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Say that two names are one test: its history and its counts follow."""
    return _decide(context, alias_id, AliasState.CONFIRMED, caller)


@writing.post("/aliases/{alias_id}/reject")
def reject_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Say that two names are two tests: it is not suggested again."""
    return _decide(context, alias_id, AliasState.REJECTED, caller)


@writing.post("/aliases/{alias_id}/undo")
def undo_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> AliasResponse:
    """Take back what was said; it is a suggestion again."""
    return _decide(context, alias_id, AliasState.SUGGESTED, caller)


def _decide(context: Context, alias_id: str, state: AliasState, by: Person) -> AliasResponse:
    known = _NUMBER.fullmatch(alias_id)
    alias = decide_alias(context, int(alias_id), state, by=by.name) if known else None
    if alias is None:
        raise NotFoundError(f"there is no alias {alias_id!r}; GET /api/v1/aliases lists them")
    return tell_alias(alias)
