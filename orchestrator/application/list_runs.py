"""Runs in lists: counts and costs of each, in a bounded number of statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.application.describe_run import stated_cost
from orchestrator.domain.cell import Cell, Run
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Counts
from orchestrator.store.leases import RunSpending
from orchestrator.store.runs import RunsAsked
from orchestrator.store.stores import Stores

_ANY = RunsAsked()


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list."""

    run: Run
    counts: Counts
    cost_usd: Decimal
    cells: Sequence[Cell] = ()
    """In matrix order."""


def list_runs(
    stores: Stores,
    *,
    limit: int,
    before: str | None,
    at: datetime,
    filters: RunsAsked = _ANY,
) -> tuple[Sequence[ListedRun], str | None]:
    """Return the requested runs, newest first, with the cursor of the next page."""
    runs, cursor = stores.runs.page(limit=limit, before=before, filters=filters)
    return listed(stores, runs, at=at), cursor


def listed(stores: Stores, runs: Sequence[Run], *, at: datetime) -> Sequence[ListedRun]:
    """Return the runs with their counts and costs."""
    ids = [run.id for run in runs]
    if not ids:
        return ()
    counts = stores.results.totals(ids)
    cells = stores.cells.of_runs(ids)
    spent = stores.leases.spending(ids)
    stated = {
        run: sum((stated_cost(one.machine) for one in told), Decimal(0))
        for run, told in stores.ingests.of_runs(ids).items()
    }
    return [
        ListedRun(
            run,
            counts.get(run.id, Counts()),
            _usd(spent.get(run.id, RunSpending()), at) + stated.get(run.id, Decimal(0)),
            cells.get(run.id, ()),
        )
        for run in runs
    ]


def _usd(spent: RunSpending, at: datetime) -> Decimal:
    growing = (machine_cost(lease, at) for lease in spent.unsettled)
    return sum(growing, spent.settled_usd)
