"""The bill of a run, and the costs of several days, as REST answers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.cell import CellState, Lease, LeaseState, Run, RunState
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
    """None if the cell was ingested without a cost."""
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
    total_usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Costs of the runs launched within a period."""

    since: datetime
    until: datetime
    bill: Bill
    simulated_usd: Decimal
    """The part of emulated machines, which was not charged."""
    providers: tuple[ProviderCost, ...] = ()
    runs: tuple[RunTotal, ...] = ()
    """Newest first."""
    budgets: tuple[BudgetUse, ...] = ()
    """Across runs, of the periods that `until` is in."""


def run_cost_answer(record: RunRecord, max_usd: Decimal | None) -> RunCost:
    """Return the bill of a run, with the cost limit of its matrix in US dollars."""
    leases = [lease for cell in record.cells for lease in cell.leases]
    run = record.run
    return RunCost(
        run=run.id,
        state=run.state,
        outcome=run.outcome,
        as_of=record.as_of,
        settled=all(lease.state == LeaseState.GONE for lease in leases),
        simulated=any(cell.simulated for cell in record.cells),
        max_usd=max_usd,
        bill=None if record.cost_usd is None else sum((x.bill for x in leases), Bill()),
        platforms=tuple(_cell(cell) for cell in record.cells),
        phases=_phases(leases),
        jobs=sum_by_name(x.job_costs.by_job for x in record.cells if x.cost_usd is not None),
        overhead_usd=sum((cell.job_costs.overhead_usd for cell in record.cells), _ZERO),
        validated_tests=_validated(record.counts),
        usd_per_validated_test=record.usd_per_validated_test,
    )


def _cell(cell: CellRecord) -> CellCost:
    costs = cell.job_costs
    return CellCost(
        cell=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        simulated=cell.simulated,
        seconds=sum(lease.seconds for lease in cell.leases),
        bill=None if cell.cost_usd is None else sum((x.bill for x in cell.leases), Bill()),
        machines=tuple(lease for lease in cell.leases if lease.machine_id),
        phases=_phases(cell.leases),
        jobs=costs.by_job if cell.cost_usd is not None else {},
        overhead_usd=costs.overhead_usd,
        validated_tests=_validated(cell.counts),
        usd_per_validated_test=cell.usd_per_validated_test,
    )


def spending_answer(
    runs: Iterable[tuple[Run, list[Lease]]],
    *,
    since: datetime,
    until: datetime,
    budgets: Iterable[BudgetUse],
) -> Spending:
    """Return the costs of several runs, each with its leases; open leases are billed to `until`."""
    totals: list[RunTotal] = []
    by_provider: dict[str, list[tuple[Lease, Bill]]] = {}
    for run, leases in runs:
        total = Bill()
        for lease in leases:
            bill = lease_bill(lease, until)
            total += bill
            by_provider.setdefault(lease.provider, []).append((lease, bill))
        totals.append(_run_total(run, total))
    every = [pair for pairs in by_provider.values() for pair in pairs]
    emulated = [bill for lease, bill in every if lease.simulated or lease.provider == FAKE]
    return Spending(
        since=since,
        until=until,
        bill=sum((bill for _, bill in every), Bill()),
        simulated_usd=sum(emulated, Bill()).total_usd,
        providers=tuple(
            _provider(name, pairs, until) for name, pairs in sorted(by_provider.items())
        ),
        runs=tuple(totals),
        budgets=tuple(budgets),
    )


def _run_total(run: Run, bill: Bill) -> RunTotal:
    return RunTotal(
        run=run.id,
        matrix=run.matrix_name,
        created_at=run.created_at,
        outcome=run.outcome,
        total_usd=bill.total_usd,
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
