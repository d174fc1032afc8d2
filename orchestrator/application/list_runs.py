"""Runs in lists: each with its counts and its cost, without its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.application.describe_run import stated_cost, unnamed_tests
from orchestrator.application.ports.stores import Stores
from orchestrator.application.reuse import tally_of
from orchestrator.domain.cell import Run
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Counts
from orchestrator.domain.results import merge_tally


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run among others."""

    run: Run
    counts: Counts
    cost_usd: Decimal


def list_runs(
    stores: Stores, *, limit: int, before: str | None, at: datetime
) -> tuple[Sequence[ListedRun], str | None]:
    """Runs, newest first, with the cursor of the next page."""
    runs, cursor = stores.runs.page(limit=limit, before=before)
    return [_listed(stores, run, at) for run in runs], cursor


def _listed(stores: Stores, run: Run, at: datetime) -> ListedRun:
    """At the price of a few narrow queries."""
    tallies = [tally_of(stores, cell.id) for cell in stores.cells.of_run(run.id)]
    counts = merge_tally(by_outcome for tally in tallies for by_outcome in tally.values())
    leases = stores.leases.of_run(run.id).values()
    cost = sum((machine_cost(lease, at) for of_cell in leases for lease in of_cell), Decimal(0))
    for cell_id, ingested in stores.ingests.of_run(run.id).items():
        counts = counts + unnamed_tests(stores, cell_id)
        cost += stated_cost(ingested.machine)
    return ListedRun(run, counts, cost)
