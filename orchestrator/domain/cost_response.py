"""The bill of a run and the costs of several days, as REST returns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.cell import Lease, LeaseState, Run, RunState
from orchestrator.domain.charges import STATED, Cost, cost_of, sum_of
from orchestrator.domain.copied_fields import filled
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
    """The bill of one cell."""

    cell: str
    platform: str
    provider: str
    simulated: bool
    """Whether its machines were emulated, so that they cost no money."""
    seconds: float
    """Total seconds for which its machines were held."""
    bill: Bill | None
    """The bill; None if no machine has a price (`no_cost` has the reason)."""
    machines: tuple[LeaseRecord, ...]
    """The granted machines; refused requests cost nothing."""
    phases: Mapping[str, Decimal]
    """US dollars by cell state, or `stated`; they add up to the total."""
    jobs: Mapping[str, Decimal]
    """US dollars by job."""
    overhead_usd: Decimal
    """US dollars of the time without a job (booting, installing, releasing): total minus jobs."""
    validated_tests: int
    """Number of tests that passed or failed."""
    usd_per_validated_test: Decimal | None
    no_cost: str = ""
    """Why there is no bill, such as ``own machine: nothing is charged``; empty with a bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The bill of a run."""

    run: str
    state: RunState
    outcome: Outcome | None
    as_of: datetime
    settled: bool
    """Whether the figures are final: the run is finished and all its machines are gone."""
    simulated: bool
    """Whether any of its machines were emulated and cost nothing."""
    max_usd: Decimal | None
    """The cost limit of the matrix."""
    bill: Bill | None
    """The bill; None if no machine has a price (`no_cost` has the reason)."""
    platforms: tuple[CellCost, ...]
    phases: Mapping[str, Decimal]
    """US dollars by cell state, or `stated`; they add up to the total."""
    jobs: Mapping[str, Decimal]
    """US dollars by job, over all cells."""
    overhead_usd: Decimal
    validated_tests: int
    usd_per_validated_test: Decimal | None
    no_cost: str = ""
    """Why there is no bill, such as ``own machine: nothing is charged``; empty with a bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCost:
    """The costs of one provider's machines."""

    provider: str
    machines: int
    seconds: float
    bill: Bill | None
    """The bill; None if no machine has a price (`no_cost` has the reason)."""
    no_cost: str = ""
    """Why there is no bill, such as ``own machine: nothing is charged``; empty with a bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotal:
    """The cost of one run."""

    run: str
    matrix: str
    created_at: datetime
    outcome: Outcome | None
    total_usd: Decimal | None
    """Total with the stated costs of ingested cells; None without a cost (see `no_cost`)."""
    no_cost: str = ""
    """Why there is no cost, such as ``own machine: nothing is charged``; empty with a cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The costs of the runs that were launched within a period."""

    since: datetime
    until: datetime
    bill: Bill
    """The bill of the machines that have a price."""
    no_cost: str = ""
    """Why no machine has a cost; empty if one has, or if there are no machines."""
    unknown_cost_runs: int = 0
    """Number of runs with a machine or ingested cell of unknown cost, which the bill lacks."""
    simulated_usd: Decimal
    """US dollars of emulated machines, which were not charged; part of the bill."""
    stated_usd: Decimal = _ZERO
    """US dollars that ingested files state; not part of the bill."""
    providers: tuple[ProviderCost, ...] = ()
    runs: tuple[RunTotal, ...] = ()
    """Newest first."""
    budgets: tuple[BudgetUse, ...] = ()
    """Use of the budgets of several runs, for the periods that contain `until`."""


def run_cost_answer(record: RunRecord, max_usd: Decimal | None) -> RunCost:
    """Return the bill of a run, with the cost limit of its matrix in US dollars."""
    leases = [lease for cell in record.cells for lease in cell.leases]
    run, platforms = record.run, tuple(_cell(cell) for cell in record.cells)
    known = (one.bill for one in platforms if one.bill is not None)
    has_bill = record.cost_usd is not None
    return RunCost(
        run=run.id,
        state=run.state,
        outcome=run.outcome,
        as_of=record.as_of,
        settled=run.outcome is not None
        and all(lease.state in (LeaseState.GONE, STATED) for lease in leases),
        simulated=any(cell.simulated for cell in record.cells),
        max_usd=max_usd,
        bill=sum(known, Bill()) if has_bill else None,
        no_cost=record.cost.no_cost,
        platforms=platforms,
        phases=_phases(leases),
        jobs=sum_by_name(one.jobs for one in platforms),
        overhead_usd=sum((cell.job_costs.overhead_usd for cell in record.cells), _ZERO),
        validated_tests=_validated(record.counts),
        usd_per_validated_test=record.usd_per_validated_test,
    )


def _cell(cell: CellRecord) -> CellCost:
    costs, leases = cell.job_costs, cell.leases
    has_bill = cell.cost_usd is not None
    return CellCost(
        cell=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        simulated=cell.simulated,
        seconds=sum(lease.seconds for lease in leases),
        bill=sum((lease.bill for lease in leases), Bill()) if has_bill else None,
        no_cost=cell.no_cost,
        machines=tuple(lease for lease in leases if lease.machine_id),
        phases=_phases(leases),
        jobs=costs.by_job if has_bill else {},
        overhead_usd=costs.overhead_usd,
        validated_tests=_validated(cell.counts),
        usd_per_validated_test=cell.usd_per_validated_test,
    )


def spending_answer(
    runs: Iterable[tuple[Run, Cost, list[Lease]]],
    *,
    since: datetime,
    until: datetime,
    budgets: Iterable[BudgetUse],
) -> Spending:
    """Return the costs of runs, each given with its cost and its leases.

    Leases that are still open are billed until `until`.
    """
    totals: list[RunTotal] = []
    stated, unknown = _ZERO, 0
    by_provider: dict[str, list[tuple[Lease, Bill]]] = {}
    for run, cost, leases in runs:
        stated += _ZERO if leases else cost.known_usd
        unknown += cost.is_partly_unknown
        for lease in leases:
            pair = lease, lease_bill(lease, until)
            by_provider.setdefault(lease.provider, []).append(pair)
        named = {"run": run.id, "matrix": run.matrix_name, "no_cost": cost.no_cost}
        totals.append(filled(RunTotal, run, total_usd=cost.usd, **named))
    every = [pair for pairs in by_provider.values() for pair in pairs]
    emulated = [bill for lease, bill in every if lease.simulated or lease.provider == FAKE]
    return Spending(
        since=since,
        until=until,
        bill=_bill(every),
        no_cost=_cost(every).no_cost,
        unknown_cost_runs=unknown,
        simulated_usd=sum(emulated, Bill()).total_usd,
        stated_usd=stated,
        providers=tuple(
            _provider(name, pairs, until) for name, pairs in sorted(by_provider.items())
        ),
        runs=tuple(totals),
        budgets=tuple(budgets),
    )


def _provider(name: str, pairs: list[tuple[Lease, Bill]], until: datetime) -> ProviderCost:
    cost = _cost(pairs)
    return ProviderCost(
        provider=name,
        machines=len([lease for lease, _ in pairs if lease.machine_id]),
        seconds=sum(machine_seconds(lease, until) for lease, _ in pairs),
        bill=None if cost.no_cost else _bill(pairs),
        no_cost=cost.no_cost,
    )


def _bill(pairs: Iterable[tuple[Lease, Bill]]) -> Bill:
    return sum((bill for _, bill in pairs), Bill())


def _cost(pairs: Iterable[tuple[Lease, Bill]]) -> Cost:
    return sum_of(cost_of(lease, bill.total_usd) for lease, bill in pairs)


def usd_by_phase(lease: LeaseRecord) -> Mapping[str, Decimal]:
    """Return the cost in US dollars by cell state; a stated machine has the one state `stated`."""
    by_phase = {str(state): usd for state, usd in lease.phase_usd.items()}
    return by_phase or {lease.state: lease.cost_usd}


def _phases(leases: Iterable[LeaseRecord]) -> Mapping[str, Decimal]:
    total = {str(phase): _ZERO for phase in PHASES}
    for lease in leases:
        for phase, usd in usd_by_phase(lease).items():
            total[phase] = total.get(phase, _ZERO) + usd
    return total


def _validated(counts: Counts) -> int:
    return counts.passed + counts.failed
