"""History over many runs: failure groups, tests under all their names, series of benchmarks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Security
from fastapi.openapi.models import Example

from orchestrator.api.dependencies import ContextDep, NumberedPageDep, RunId, resolve_run
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse, NumberedPageResponse, RequestModel
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.benchmarks import series_of
from orchestrator.application.context import Context
from orchestrator.application.failure_groups import review_failures, review_run
from orchestrator.application.history_of_test import (
    TestHistory,
    decide_alias,
    history_of,
    suggest_aliases,
)
from orchestrator.domain.benchmark_series import BenchmarkSeries
from orchestrator.domain.caller_identity import Person, Scope
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.failure_signature import FailureGroupListResponse
from orchestrator.domain.field_limits import Filled
from orchestrator.domain.flaky import HistoryResponse
from orchestrator.domain.node_ids import (
    Alias,
    AliasState,
    KnownTest,
    KnownTestResponse,
    Matching,
    resolve,
)


class MatchRequest(RequestModel):
    """Two runs whose tests are compared."""

    old_run: Filled
    """The older run: its id, a prefix of it, or ``latest``."""
    new_run: Filled


class AliasDecisionRequest(RequestModel):
    """An empty body: the path names the decision, and the caller is the author."""


_NOTHING: dict[str, Example] = {"nothing": {"summary": "Nothing", "value": {}}}
_MATCH: dict[str, Example] = {
    "versions": {
        "summary": "A run of the version before, and one of the new version",
        "value": {"old_run": "01jc0000000000000000000000", "new_run": "latest"},
    }
}
Match = Annotated[MatchRequest, Body(openapi_examples=_MATCH)]
Decide = Annotated[AliasDecisionRequest | None, Body(openapi_examples=_NOTHING)]


_ASKED = [Security(bearer)]
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
reading = APIRouter(tags=["history"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["history"], route_class=secured(Scope.RUN), dependencies=_ASKED)
ProductQuery = Annotated[
    str | None, Query(description="The payload's name", max_length=300, examples=["torchbridge"])
]
AliasId = Annotated[str, Path(description="As `GET /aliases` shows it")]


@reading.get("/failure-groups")
def list_failure_groups(
    context: ContextDep,
    run: Annotated[str | None, Query(description="Only of this run", max_length=300)] = None,
    product: ProductQuery = None,
    runs: Annotated[int, Query(ge=1, le=500, description="Number of newest runs")] = 50,
) -> FailureGroupListResponse:
    """List failure groups of a run or of the newest runs, largest first."""
    if run is not None:
        return review_run(context, resolve_run(context, run))
    return review_failures(context, product=product, runs=runs)


@reading.get("/tests")
def list_known_tests(
    context: ContextDep,
    page: NumberedPageDep,
    product: ProductQuery = None,
    job: Annotated[str | None, Query(max_length=300)] = None,
    contains: Annotated[str, Query(description="Stands in the node id", max_length=300)] = "",
) -> NumberedPageResponse[KnownTestResponse]:
    """List tests of a product."""
    found = context.stores.tests.page(
        product=product, job=job, contains=contains, limit=page.limit, after=page.last
    )
    aliases = context.stores.aliases.confirmed()
    items = [to_known_test_response(test, aliases) for test in found]
    return NumberedPageResponse(items=items, next=found.next)


@reading.get("/runs/{run_id}/slowest-tests")
def list_slowest_tests(
    context: ContextDep,
    run_id: RunId,
    cell: Annotated[str | None, Query(description="Only of this cell", max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
) -> ListResponse[TestDuration]:
    """List the slowest tests of a run, each with its durations in earlier runs."""
    found = context.stores.durations.slowest(run_id, cell=cell, limit=limit)
    return ListResponse(items=found)


@reading.get("/tests/{test_id}/history")
def get_test_history(
    context: ContextDep,
    test_id: Annotated[str, Path(description="As `GET /tests` shows it")],
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> HistoryResponse:
    """Return the results of a test under all its names, and its flakiness."""
    known = _NUMBER.fullmatch(test_id)
    history = history_of(context.stores, int(test_id), limit=limit) if known else None
    if history is None:
        raise NotFoundError(f"there is no test {test_id!r}; GET /api/v1/tests lists them")
    return to_history_response(history)


@reading.get("/aliases")
def list_aliases(
    context: ContextDep,
    page: NumberedPageDep,
    product: ProductQuery = None,
    state: AliasState | None = None,
) -> NumberedPageResponse[Alias]:
    """List suggested, confirmed and rejected aliases, in the order of their suggestion."""
    found = context.stores.aliases.list(product=product, state=state, page=page)
    return NumberedPageResponse(items=found, next=found.next)


@writing.post("/aliases")
def match_tests(context: ContextDep, body: Match) -> Matching:
    """Compare the tests of two runs, and store possible aliases as suggestions."""
    old, new = resolve_run(context, body.old_run), resolve_run(context, body.new_run)
    return suggest_aliases(context, old, new)


@writing.post("/aliases/{alias_id}/confirm")
def confirm_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> Alias:
    """Confirm that two names are one test, which joins their histories and counts."""
    return _decide(context, alias_id, AliasState.CONFIRMED, caller)


@writing.post("/aliases/{alias_id}/reject")
def reject_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> Alias:
    """Reject an alias, so that it is not suggested again."""
    return _decide(context, alias_id, AliasState.REJECTED, caller)


@writing.post("/aliases/{alias_id}/undo")
def undo_alias(
    context: ContextDep, alias_id: AliasId, caller: CallerDep, body: Decide = None
) -> Alias:
    """Withdraw a decision; the alias is a suggestion again."""
    return _decide(context, alias_id, AliasState.SUGGESTED, caller)


def _decide(context: Context, alias_id: str, state: AliasState, by: Person) -> Alias:
    known = _NUMBER.fullmatch(alias_id)
    alias = decide_alias(context, int(alias_id), state, by=by.name) if known else None
    if alias is None:
        raise NotFoundError(f"there is no alias {alias_id!r}; GET /api/v1/aliases lists them")
    return alias


def to_known_test_response(test: KnownTest, aliases: Mapping[int, int]) -> KnownTestResponse:
    """Return the response of a test."""
    newest = resolve(test.id, aliases)
    return extended(KnownTestResponse, test, now=newest if newest != test.id else None)


def to_history_response(history: TestHistory) -> HistoryResponse:
    """Return a test with its results."""
    older = {one.id: history.test.id for one in history.names}
    return HistoryResponse(
        test=to_known_test_response(history.test, {}),
        older_names=tuple(to_known_test_response(one, older) for one in history.names),
        items=history.goes,
        flaky=history.flaky,
    )


series_reading = APIRouter(
    tags=["history"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)
BenchmarkId = Annotated[
    str,
    Path(
        description="``job/metric``, as a run shows them",
        max_length=1000,
        examples=["moe/tokens_per_s"],
    ),
]


@series_reading.get("/benchmarks/{benchmark:path}/series")
def get_benchmark_series(
    context: ContextDep,
    benchmark: BenchmarkId,
    product: Annotated[str | None, Query(description="The payload's name", max_length=300)] = None,
    platform: Annotated[str | None, Query(description="A platform's id", max_length=300)] = None,
    runs: Annotated[int, Query(ge=1, le=1000, description="So many newest runs")] = 200,
) -> ListResponse[BenchmarkSeries]:
    """Return a benchmark's series over the newest runs; its change points block no release."""
    found = series_of(context, benchmark, product=product, platform=platform, runs=runs)
    if not found:
        raise NotFoundError(
            f"none of the newest {runs} runs measured {benchmark!r}; a benchmark is named "
            "job/metric, and GET /api/v1/runs/{id} lists the metrics of each job"
        )
    return ListResponse(items=list(found))
