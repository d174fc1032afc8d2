"""From the ledger to bills: pure functions. Sums are of unrounded values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from orchestrator.api.cost_responses import (
    DoubtfulPriceResponse,
    JobCostResponse,
    PhaseCostResponse,
    PlatformCostResponse,
    PriceResponse,
    ProviderCostResponse,
    RefreshedResponse,
    RunCostResponse,
    RunTotalResponse,
    SpendingResponse,
)
from orchestrator.api.machine_serializers import tell_bill, tell_lease
from orchestrator.application.refresh_prices import Refreshed
from orchestrator.domain.cell import CellState, Lease, LeaseState, Run
from orchestrator.domain.money import PHASES, Bill, lease_bill, machine_seconds
from orchestrator.domain.outcome import Counts
from orchestrator.domain.prices import Price
from orchestrator.domain.run_record import CellRecord, RunRecord

_NOTHING = Decimal(0)
FAKE = "fake"


def tell_run_cost(record: RunRecord, max_usd: Decimal | None) -> RunCostResponse:
    """The bill of a run."""
    leases = [lease for cell in record.cells for lease in cell.leases]
    run = record.run
    return RunCostResponse(
        run=run.id,
        state=run.state,
        outcome=run.outcome,
        as_of=record.as_of,
        settled=all(lease.state == LeaseState.GONE for lease in leases),
        simulated=any(cell.simulated for cell in record.cells),
        max_usd=max_usd,
        bill=tell_bill(_bill(lease.bill for lease in leases)),
        platforms=[_platform(cell) for cell in record.cells],
        phases=_phases(lease.phase_usd for lease in leases),
        jobs=_jobs(cell.job_costs.by_job for cell in record.cells),
        overhead_usd=sum((cell.job_costs.overhead_usd for cell in record.cells), _NOTHING),
        validated_tests=_validated(record.counts),
        usd_per_validated_test=record.usd_per_validated_test,
    )


def _platform(cell: CellRecord) -> PlatformCostResponse:
    costs = cell.job_costs
    return PlatformCostResponse(
        cell=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        simulated=cell.simulated,
        seconds=sum(lease.seconds for lease in cell.leases),
        bill=tell_bill(_bill(lease.bill for lease in cell.leases)),
        machines=[tell_lease(lease) for lease in cell.leases if lease.machine_id],
        phases=_phases(lease.phase_usd for lease in cell.leases),
        jobs=_jobs([costs.by_job]),
        overhead_usd=costs.overhead_usd,
        validated_tests=_validated(cell.counts),
        usd_per_validated_test=cell.usd_per_validated_test,
    )


def tell_spending(
    runs: Iterable[tuple[Run, list[Lease]]], *, since: datetime, until: datetime
) -> SpendingResponse:
    """What several runs came to until now."""
    told: list[RunTotalResponse] = []
    by_provider: dict[str, list[tuple[Lease, Bill]]] = {}
    for run, leases in runs:
        bills = [(lease, lease_bill(lease, until)) for lease in leases]
        told.append(_run_total(run, [bill for _, bill in bills]))
        for lease, bill in bills:
            by_provider.setdefault(lease.provider, []).append((lease, bill))
    every = [pair for pairs in by_provider.values() for pair in pairs]
    emulated = [bill for lease, bill in every if lease.simulated or lease.provider == FAKE]
    return SpendingResponse(
        since=since,
        until=until,
        bill=tell_bill(_bill(bill for _, bill in every)),
        simulated_usd=_bill(emulated).total_usd,
        providers=[_provider(name, pairs, until) for name, pairs in sorted(by_provider.items())],
        runs=told,
    )


def _run_total(run: Run, bills: list[Bill]) -> RunTotalResponse:
    return RunTotalResponse(
        run=run.id,
        matrix=run.matrix_name,
        created_at=run.created_at,
        outcome=run.outcome,
        total_usd=_bill(bills).total_usd,
    )


def _provider(name: str, pairs: list[tuple[Lease, Bill]], until: datetime) -> ProviderCostResponse:
    return ProviderCostResponse(
        provider=name,
        machines=len([lease for lease, _ in pairs if lease.machine_id]),
        seconds=sum(machine_seconds(lease, until) for lease, _ in pairs),
        bill=tell_bill(_bill(bill for _, bill in pairs)),
    )


def tell_price(price: Price) -> PriceResponse:
    """One price."""
    return PriceResponse(
        provider=price.provider,
        item=price.item,
        place=price.place,
        market=price.market,
        usd_per_hour=price.usd_per_hour,
        as_of=price.as_of,
        source=price.source,
    )


def tell_refreshed(found: Refreshed) -> RefreshedResponse:
    """What came of reading prices."""
    return RefreshedResponse(
        kept=[tell_price(price) for price in found.kept],
        doubtful=[
            DoubtfulPriceResponse(price=tell_price(doubtful.price), why=doubtful.why)
            for doubtful in found.doubtful
        ],
        unread=dict(found.unread),
    )


def _bill(bills: Iterable[Bill]) -> Bill:
    total = Bill()
    for bill in bills:
        total = Bill(
            total.machine_usd + bill.machine_usd,
            total.disk_usd + bill.disk_usd,
            total.address_usd + bill.address_usd,
        )
    return total


def _phases(spent: Iterable[Mapping[CellState, Decimal]]) -> list[PhaseCostResponse]:
    total = dict.fromkeys(PHASES, _NOTHING)
    for one in spent:
        for phase, usd in one.items():
            total[phase] += usd
    return [PhaseCostResponse(phase=phase, usd=usd) for phase, usd in total.items()]


def _jobs(spent: Iterable[Mapping[str, Decimal]]) -> list[JobCostResponse]:
    total: dict[str, Decimal] = {}
    for one in spent:
        for job, usd in one.items():
            total[job] = total.get(job, _NOTHING) + usd
    return [JobCostResponse(id=job, usd=usd) for job, usd in total.items()]


def _validated(counts: Counts) -> int:
    return counts.passed + counts.failed
