"""What the API answers about money. Every total is the sum of its unrounded parts."""

from __future__ import annotations

from datetime import datetime

from orchestrator.api.machine_responses import BillShape, LeaseShape
from orchestrator.api.response_base import Shape, Usd
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.outcome import Outcome


class PhaseCostShape(Shape):
    """What was spent while cells were in one state."""

    phase: CellState
    usd: Usd


class JobCostShape(Shape):
    """What was spent while one job ran."""

    id: str
    usd: Usd


class PlatformCostShape(Shape):
    """The bill of one cell."""

    cell: str
    platform: str
    provider: str
    simulated: bool
    """Emulated machines: nobody was charged."""
    seconds: float
    """Its machines were held for so long, together."""
    bill: BillShape
    machines: list[LeaseShape]
    """Those that it was given; refusals cost nothing."""
    phases: list[PhaseCostShape]
    """The total again, by state."""
    jobs: list[JobCostShape]
    overhead_usd: Usd
    """Spent on none of the jobs: booting, installing, giving back. With the jobs, the total."""
    validated_tests: int
    """Tests that passed or failed."""
    usd_per_validated_test: Usd | None


class RunCostShape(Shape):
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
    bill: BillShape
    platforms: list[PlatformCostShape]
    phases: list[PhaseCostShape]
    jobs: list[JobCostShape]
    overhead_usd: Usd
    validated_tests: int
    usd_per_validated_test: Usd | None


class ProviderCostShape(Shape):
    """What one provider's machines came to."""

    provider: str
    machines: int
    seconds: float
    bill: BillShape


class RunTotalShape(Shape):
    """One run's total."""

    run: str
    matrix: str
    created_at: datetime
    outcome: Outcome | None
    total_usd: Usd


class SpendingShape(Shape):
    """What was spent on runs that were launched within a time."""

    since: datetime
    until: datetime
    bill: BillShape
    simulated_usd: Usd
    """The part of it that emulated machines would have cost: nobody was charged."""
    providers: list[ProviderCostShape]
    runs: list[RunTotalShape]
    """Newest first."""


class PriceShape(Shape):
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


class PriceListShape(Shape):
    """What is reckoned with now."""

    items: list[PriceShape]


class DoubtfulPriceShape(Shape):
    """A price that breaks a rule; it is not used."""

    price: PriceShape
    why: str


class RefreshedShape(Shape):
    """What came of reading the prices anew."""

    kept: list[PriceShape]
    doubtful: list[DoubtfulPriceShape]
    unread: dict[str, str]
    """Providers that could not be asked, with the reason; their prices stay as they were."""
