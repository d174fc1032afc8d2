"""Costs of runs, and prices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Security

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.models import ListResponse
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.cost_summary import known_prices, refresh_prices
from orchestrator.application.describe_run import describe_run, list_runs
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import Lease, Run
from orchestrator.domain.charges import Cost
from orchestrator.domain.cost_response import RunCost, Spending, run_cost_answer, spending_answer
from orchestrator.domain.money import first_of_days
from orchestrator.domain.prices import Price, Refreshed

_ASKED = [Security(bearer)]
_PAGE = 200
reading = APIRouter(tags=["costs"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["costs"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


@reading.get("/costs")
def get_costs(
    context: ContextDep,
    run: Annotated[
        str | None, Query(max_length=64, description="A run's id, its beginning, or `latest`")
    ] = None,
    days: Annotated[int, Query(ge=1, le=3650, description="Without a run: how far back")] = 30,
) -> RunCost | Spending:
    """Return the bill of one run; without one, the costs of runs of the last days."""
    now = context.clock.now()
    if run is None:
        since = first_of_days(now, days)
        uses = context.stores.leases.budget_uses(context.budgets, now)
        return spending_answer(_spent(context, since, now), since=since, until=now, budgets=uses)
    run_id = resolve_run(context, run)
    record = describe_run(context.stores, run_id, at=now)
    return run_cost_answer(record, context.stores.runs.spec(run_id).matrix.limits.max_usd)


@reading.get("/costs/prices")
def get_prices(context: ContextDep) -> ListResponse[Price]:
    """Return the prices in use: the shipped tables, updated with refreshed prices."""
    return ListResponse(items=list(known_prices(context)))


@writing.post("/costs/refresh")
def refresh_costs(context: ContextDep) -> Refreshed:
    """Refresh prices from the providers; an implausible price is reported and not stored."""
    return refresh_prices(context)


def _spent(
    context: Context, since: datetime, now: datetime
) -> Iterator[tuple[Run, Cost, list[Lease]]]:
    """Yield the runs launched since then, newest first, each with its cost and leases."""
    cursor: str | None = None
    while True:
        runs, cursor = list_runs(context.stores, limit=_PAGE, before=cursor, at=now)
        for one in runs:
            if one.run.created_at < since:
                return
            of_cells = context.stores.leases.of_run(one.run.id).values()
            yield one.run, one.cost, [lease for leases in of_cells for lease in leases]
        if cursor is None:
            return
