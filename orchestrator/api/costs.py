"""Money: what runs cost, and the prices that are reckoned with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Security

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.machines import BillResponse, LeaseResponse, tell_lease
from orchestrator.api.models import ResponseModel, Usd
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run
from orchestrator.application.refresh_prices import known_prices, refresh_prices
from orchestrator.domain.cell import CellState, Lease, LeaseState, Run, RunState
from orchestrator.domain.money import PHASES, Bill, lease_bill, machine_seconds
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.person import Scope
from orchestrator.domain.run_record import CellRecord, RunRecord

_NOTHING = Decimal(0)
FAKE = "fake"


class PhaseCostResponse(ResponseModel):
    """What was spent while cells were in one state."""

    phase: CellState
    usd: Usd


class JobCostResponse(ResponseModel):
    """What was spent while one job ran."""

    id: str
    usd: Usd


class PlatformCostResponse(ResponseModel):
    """The bill of one cell."""

    cell: str
    platform: str
    provider: str
    simulated: bool
    """Emulated machines: nobody was charged."""
    seconds: float
    """Its machines were held for so long, together."""
    bill: BillResponse
    machines: list[LeaseResponse]
    """Those that it was given; refusals cost nothing."""
    phases: list[PhaseCostResponse]
    """The total again, by state."""
    jobs: list[JobCostResponse]
    overhead_usd: Usd
    """Spent on none of the jobs: booting, installing, giving back. With the jobs, the total."""
    validated_tests: int
    """Tests that passed or failed."""
    usd_per_validated_test: Usd | None


class RunCostResponse(ResponseModel):
    """The bill of one run."""

    run: str
    state: RunState
    outcome: Outcome | None
    as_of: datetime
    settled: bool
    """Every machine is gone: the figures are final."""
    simulated: bool
    """Some of its machines were emulated: nobody was charged for these."""
    max_usd: Usd | None
    """The matrix's limit."""
    bill: BillResponse
    platforms: list[PlatformCostResponse]
    phases: list[PhaseCostResponse]
    jobs: list[JobCostResponse]
    overhead_usd: Usd
    validated_tests: int
    usd_per_validated_test: Usd | None


class ProviderCostResponse(ResponseModel):
    """What one provider's machines came to."""

    provider: str
    machines: int
    seconds: float
    bill: BillResponse


class RunTotalResponse(ResponseModel):
    """One run's total."""

    run: str
    matrix: str
    created_at: datetime
    outcome: Outcome | None
    total_usd: Usd


class SpendingResponse(ResponseModel):
    """What was spent on runs that were launched within a time."""

    since: datetime
    until: datetime
    bill: BillResponse
    simulated_usd: Usd
    """The part of it that emulated machines would have cost: nobody was charged."""
    providers: list[ProviderCostResponse]
    runs: list[RunTotalResponse]
    """Newest first."""


class PriceResponse(ResponseModel):
    """What one unit of something costs somewhere."""

    provider: str
    item: str
    """An instance type, or ``disk-gb``, ``address``."""
    place: str
    market: str
    usd_per_hour: Usd
    as_of: datetime
    source: str
    """``table`` is the one that is shipped."""


class PriceListResponse(ResponseModel):
    """What is reckoned with now."""

    items: list[PriceResponse]


class UncertainPriceResponse(ResponseModel):
    """A price that breaks a rule; it is not used."""

    price: PriceResponse
    reason: str


class RefreshedResponse(ResponseModel):
    """What came of reading the prices anew."""

    kept: list[PriceResponse]
    uncertain: list[UncertainPriceResponse]
    unread: dict[str, str]
    """Providers that could not be asked, with the reason; their prices stay as they were."""


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
) -> RunCostResponse | SpendingResponse:
    """The bill of one run; without one, what the runs of the last days came to."""
    now = context.clock.now()
    if run is None:
        since = now - timedelta(days=days)
        return tell_spending(_spent(context, since), since=since, until=now)
    run_id = resolve_run(context, run)
    record = describe_run(context.stores, run_id, at=now)
    return tell_run_cost(record, context.stores.runs.spec(run_id).matrix.limits.max_usd)


@reading.get("/costs/prices")
def get_prices(context: ContextDep) -> PriceListResponse:
    """The prices that are reckoned with now: the shipped tables, and what was read since."""
    return PriceListResponse.of(items=known_prices(context))


@writing.post("/costs/refresh")
def refresh_costs(context: ContextDep) -> RefreshedResponse:
    """Read the prices anew from the providers; a doubtful one replaces nothing."""
    return RefreshedResponse.of(refresh_prices(context))


def _spent(context: Context, since: datetime) -> Iterator[tuple[Run, list[Lease]]]:
    """The runs that were launched since then, newest first, each with its leases."""
    cursor: str | None = None
    while True:
        runs, cursor = context.stores.runs.page(limit=_PAGE, before=cursor)
        for run in runs:
            if run.created_at < since:
                return
            of_cells = context.stores.leases.of_run(run.id).values()
            yield run, [lease for leases in of_cells for lease in leases]
        if cursor is None:
            return


def tell_run_cost(record: RunRecord, max_usd: Decimal | None) -> RunCostResponse:
    """The bill of a run."""
    leases = [lease for cell in record.cells for lease in cell.leases]
    run = record.run
    return RunCostResponse.of(
        run,
        record,
        run=run.id,
        settled=all(lease.state == LeaseState.GONE for lease in leases),
        simulated=any(cell.simulated for cell in record.cells),
        max_usd=max_usd,
        bill=BillResponse.of(_bill(lease.bill for lease in leases)),
        platforms=[_platform(cell) for cell in record.cells],
        phases=_phases(lease.phase_usd for lease in leases),
        jobs=_jobs(cell.job_costs.by_job for cell in record.cells),
        overhead_usd=sum((cell.job_costs.overhead_usd for cell in record.cells), _NOTHING),
        validated_tests=_validated(record.counts),
    )


def _platform(cell: CellRecord) -> PlatformCostResponse:
    costs = cell.job_costs
    return PlatformCostResponse.of(
        cell,
        cell=cell.id,
        platform=cell.platform.id,
        provider=cell.platform.provider,
        seconds=sum(lease.seconds for lease in cell.leases),
        bill=BillResponse.of(_bill(lease.bill for lease in cell.leases)),
        machines=[tell_lease(lease) for lease in cell.leases if lease.machine_id],
        phases=_phases(lease.phase_usd for lease in cell.leases),
        jobs=_jobs([costs.by_job]),
        overhead_usd=costs.overhead_usd,
        validated_tests=_validated(cell.counts),
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
        bill=BillResponse.of(_bill(bill for _, bill in every)),
        simulated_usd=_bill(emulated).total_usd,
        providers=[_provider(name, pairs, until) for name, pairs in sorted(by_provider.items())],
        runs=told,
    )


def _run_total(run: Run, bills: list[Bill]) -> RunTotalResponse:
    return RunTotalResponse.of(
        run, run=run.id, matrix=run.matrix_name, total_usd=_bill(bills).total_usd
    )


def _provider(name: str, pairs: list[tuple[Lease, Bill]], until: datetime) -> ProviderCostResponse:
    return ProviderCostResponse(
        provider=name,
        machines=len([lease for lease, _ in pairs if lease.machine_id]),
        seconds=sum(machine_seconds(lease, until) for lease, _ in pairs),
        bill=BillResponse.of(_bill(bill for _, bill in pairs)),
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
