"""The bill of a run, and the costs of several days, as REST answers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.cell import CellState, Lease, LeaseState, Run, RunState
from orchestrator.domain.extend_record import filled
from orchestrator.domain.money import (
    PHASES,
    Bill,
    lease_bill,
    machine_seconds,
    sum_by_name,
)
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, LeaseRecord, RunRecord

_ZERO = Decimal(0)

FAKE = "fake"
OWN = ("local", "static")
"""Providers of own machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCost:
    """Bill of a cell."""

    cell: str
    platform: str
    provider: str
    simulated: bool
    """Whether its machines were emulated, so that they cost no money."""
    seconds: float
    """Total time that its machines were held."""
    bill: Bill | None
    """None if no machine has a price: own machines, ingested without a cost."""
    machines: tuple[LeaseRecord, ...]
    """The granted machines; refusals cost nothing."""
    phases: Mapping[CellState, Decimal]
    """US dollars by cell state; they add up to the total."""
    jobs: Mapping[str, Decimal]
    """US dollars by job."""
    overhead_usd: Decimal
    """US dollars for no job: booting, installing, releasing. Total minus the jobs."""
    validated_tests: int
    """Tests that passed or failed."""
    usd_per_validated_test: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """Bill of a run."""

    run: str
    state: RunState
    outcome: Outcome | None
    as_of: datetime
    settled: bool
    """Whether every machine is gone, so that the figures are final."""
    simulated: bool
    """Some of its machines were emulated and cost nothing."""
    max_usd: Decimal | None
    """The cost limit of the matrix."""
    bill: Bill | None
    """None if the bill of no cell is known."""
    platforms: tuple[CellCost, ...]
    phases: Mapping[CellState, Decimal]
    """US dollars by cell state; they add up to the total."""
    jobs: Mapping[str, Decimal]
    """US dollars by job, over all cells."""
    overhead_usd: Decimal
    validated_tests: int
    usd_per_validated_test: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCost:
    """Cost of one provider's machines."""

    provider: str
    machines: int
    seconds: float
    bill: Bill


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotal:
    """Cost of one run."""

    run: str
    matrix: str
    created_at: datetime
    outcome: Outcome | None
    total_usd: Decimal | None
    """Of ingested cells the cost that their files state; None if that is all and none is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Costs of the runs launched within a period."""

    since: datetime
    until: datetime
    bill: Bill
    simulated_usd: Decimal
    """The part of emulated machines, which was not charged."""
    stated_usd: Decimal = _ZERO
    """What the files of ingested runs state; no part of the bill."""
    providers: tuple[ProviderCost, ...] = ()
    runs: tuple[RunTotal, ...] = ()
    """Newest first."""
    budgets: tuple[BudgetUse, ...] = ()
    """Across runs, of the periods that `until` is in."""


def is_priced(lease: LeaseRecord) -> bool:
    """Whether a machine's price is known; own machines have none unless they were charged.

    A machine without a price may have cost its disk and address: the bill is of these then.
    """
    if lease.provider in OWN:
        return bool(lease.price_usd_per_hour or lease.cost_usd)
    return lease.price_usd_per_hour is not None or bool(lease.cost_usd)


def run_cost_answer(record: RunRecord, max_usd: Decimal | None) -> RunCost:
    """Return the bill of a run, with the cost limit of its matrix in US dollars."""
    leases = [lease for cell in record.cells for lease in cell.leases]
    run, platforms = record.run, tuple(_cell(cell) for cell in record.cells)
    known = [one.bill for one in platforms if one.bill is not None]
    has_bill = bool(known or not platforms)
    return RunCost(
        run=run.id,
        state=run.state,
        outcome=run.outcome,
        as_of=record.as_of,
        settled=all(lease.state == LeaseState.GONE for lease in leases),
        simulated=any(cell.simulated for cell in record.cells),
        max_usd=max_usd,
        bill=sum(known, Bill()) if has_bill else None,
        platforms=platforms,
        phases=_phases(leases),
        jobs=sum_by_name(one.jobs for one in platforms),
        overhead_usd=sum((cell.job_costs.overhead_usd for cell in record.cells), _ZERO),
        validated_tests=_validated(record.counts),
        usd_per_validated_test=record.usd_per_validated_test if has_bill else None,
    )


def _cell(cell: CellRecord) -> CellCost:
    costs, leases = cell.job_costs, cell.leases
    has_bill = any(map(is_priced, leases)) if leases else cell.cost_usd is not None
    return CellCost(
        cell=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        simulated=cell.simulated,
        seconds=sum(lease.seconds for lease in cell.leases),
        bill=sum((lease.bill for lease in leases), Bill()) if has_bill else None,
        machines=tuple(lease for lease in cell.leases if lease.machine_id),
        phases=_phases(cell.leases),
        jobs=costs.by_job if has_bill else {},
        overhead_usd=costs.overhead_usd,
        validated_tests=_validated(cell.counts),
        usd_per_validated_test=cell.usd_per_validated_test if has_bill else None,
    )


def spending_answer(
    runs: Iterable[tuple[Run, Decimal | None, list[Lease]]],
    *,
    since: datetime,
    until: datetime,
    budgets: Iterable[BudgetUse],
) -> Spending:
    """Return the costs of several runs, each with its known cost in US dollars and its leases.

    Open leases are billed to `until`.
    """
    totals: list[RunTotal] = []
    stated = _ZERO
    by_provider: dict[str, list[tuple[Lease, Bill]]] = {}
    for run, total_usd, leases in runs:
        stated += _ZERO if leases else total_usd or _ZERO
        for lease in leases:
            bill = lease_bill(lease, until)
            by_provider.setdefault(lease.provider, []).append((lease, bill))
        named = filled(RunTotal, run, run=run.id, matrix=run.matrix_name, total_usd=total_usd)
        totals.append(named)
    every = [pair for pairs in by_provider.values() for pair in pairs]
    whole = sum((bill for _, bill in every), Bill())
    emulated = [bill for lease, bill in every if lease.simulated or lease.provider == FAKE]
    return Spending(
        since=since,
        until=until,
        bill=whole,
        simulated_usd=sum(emulated, Bill()).total_usd,
        stated_usd=stated,
        providers=tuple(
            _provider(name, pairs, until) for name, pairs in sorted(by_provider.items())
        ),
        runs=tuple(totals),
        budgets=tuple(budgets),
    )


def _provider(name: str, pairs: list[tuple[Lease, Bill]], until: datetime) -> ProviderCost:
    return ProviderCost(
        provider=name,
        machines=len([lease for lease, _ in pairs if lease.machine_id]),
        seconds=sum(machine_seconds(lease, until) for lease, _ in pairs),
        bill=sum((bill for _, bill in pairs), Bill()),
    )


def _phases(leases: Iterable[LeaseRecord]) -> Mapping[CellState, Decimal]:
    total = dict.fromkeys(PHASES, _ZERO)
    for lease in leases:
        for phase, usd in lease.phase_usd.items():
            total[phase] += usd
    return total


def _validated(counts: Counts) -> int:
    return counts.passed + counts.failed
