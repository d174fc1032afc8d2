"""What the API answers about money. Every total is the sum of its unrounded parts."""

from __future__ import annotations

from datetime import datetime

from orchestrator.api.machine_responses import BillResponse, LeaseResponse
from orchestrator.api.models import ResponseModel, Usd
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.outcome import Outcome


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


class DoubtfulPriceResponse(ResponseModel):
    """A price that breaks a rule; it is not used."""

    price: PriceResponse
    why: str


class RefreshedResponse(ResponseModel):
    """What came of reading the prices anew."""

    kept: list[PriceResponse]
    doubtful: list[DoubtfulPriceResponse]
    unread: dict[str, str]
    """Providers that could not be asked, with the reason; their prices stay as they were."""
