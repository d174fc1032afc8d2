"""Costs of a period, a forecast for the next firing of each schedule, and refreshed prices."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.application.context import Context
from orchestrator.application.schedules import next_firing
from orchestrator.domain.machine import ProviderError
from orchestrator.domain.money import PHASES, machine_cost
from orchestrator.domain.prices import Price, Prices, Refreshed, UncertainPrice, partition_plausible
from orchestrator.domain.schedule import Firing, Schedule
from orchestrator.store.costs import DailyCost, PhaseCost, PhaseSum, Refusals, RunSum, Sum
from orchestrator.store.machines import Rented
from orchestrator.store.stores import Stores

RUNS_SHOWN = 20
REFUSALS_SHOWN = 50
FIRINGS_READ = 7
"""Number of last firings in a forecast."""
_NOTHING = Decimal(0)


class Dimension(StrEnum):
    """Dimension by which costs are summed."""

    DAY = "day"
    PLATFORM = "platform"
    PROVIDER = "provider"
    VERSION = "version"

    def of(self, account: DailyCost) -> str:
        """Return the value of an account in this dimension."""
        told = {
            Dimension.DAY: account.day,
            Dimension.PLATFORM: account.platform,
            Dimension.PROVIDER: account.provider,
            Dimension.VERSION: account.version,
        }
        return told[self]


@dataclass(frozen=True, slots=True)
class Idleness:
    """Paid time of a platform in which no job ran."""

    platform: str
    seconds: float
    """Paid seconds."""
    idle_seconds: float
    idle_usd: Decimal


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a schedule's next firing, in US dollars."""

    schedule: Schedule
    next_at: datetime | None
    """Time of the next firing; None while the schedule is paused."""
    costs: Sequence[Decimal]
    """Costs of its last firings, latest first."""

    @property
    def likely_usd(self) -> Decimal | None:
        """Return the median cost; None if none is known."""
        return statistics.median(self.costs) if self.costs else None


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Costs of a period. Simulated machines cost nothing."""

    total: Sum
    """Cost of settled machines."""
    unsettled: Sequence[Rented]
    """Machines that still exist."""
    unsettled_usd: Decimal
    """Cost so far of the machines that still exist."""
    reserved_usd: Decimal
    """Maximum cost of the machines that still exist."""
    simulated_usd: Decimal
    by: Mapping[Dimension, Sequence[tuple[str, Sum]]]
    """Days in order; other dimensions by cost, highest first."""
    runs: Sequence[RunSum]
    phases: Sequence[PhaseCost]
    """In the order of cell states."""
    idle: Sequence[Idleness]
    """Highest idle cost first."""
    refusals: Sequence[Refusals]

    @property
    def idle_usd(self) -> Decimal:
        """Return the cost of time without a job."""
        return sum((one.usd for one in self.phases if one.is_idle), _NOTHING)


def cost_summary(
    context: Context, since: datetime, until: datetime, *, skip_runs: int = 0
) -> CostSummary:
    """Return the costs of machines reserved within the period.

    Args:
        context: The ports.
        since: Beginning of the period.
        until: End of the period, exclusive.
        skip_runs: Number of the most expensive runs to leave out.
    """
    bills, at = context.stores.costs, context.clock.now()
    accounts = bills.accounts(since, until)
    parts = bills.phases(since, until)
    unsettled = [one for one in context.stores.machines.now() if is_real(one)]
    return CostSummary(
        total=sum((one.sum for one in accounts), Sum()),
        unsettled=unsettled,
        unsettled_usd=sum((machine_cost(one.lease, at) for one in unsettled), _NOTHING),
        reserved_usd=sum((one.lease.reserved_usd for one in unsettled), _NOTHING),
        simulated_usd=bills.simulated_usd(since, until),
        by={dimension: _by(dimension, accounts) for dimension in Dimension},
        runs=bills.runs(since, until, limit=RUNS_SHOWN + 1, skip=skip_runs),
        phases=_phases(parts),
        idle=_idle(parts),
        refusals=bills.refusals(since, until, limit=REFUSALS_SHOWN),
    )


def forecast(context: Context) -> list[Forecast]:
    """Return the forecast of every schedule."""
    stores, now = context.stores, context.clock.now()
    schedules = stores.schedules.list()
    firings = stores.schedules.latest(limit=FIRINGS_READ)
    spent = _spent(stores, firings)
    return [
        Forecast(
            schedule,
            next_firing(context, schedule, now),
            [spent[one.run] for one in firings.get(schedule.name, ()) if one.run in spent],
        )
        for schedule in schedules
    ]


def is_real(one: Rented) -> bool:
    """Whether the machine costs real money."""
    return not one.lease.simulated and one.lease.provider != "fake"


def _spent(stores: Stores, firings: Mapping[str, Sequence[Firing]]) -> Mapping[str, Decimal]:
    """Return costs by finished run."""
    over = [one.run for some in firings.values() for one in some if one.is_over and one.run]
    return stores.costs.of_runs(over) if over else {}


def _by(dimension: Dimension, accounts: Sequence[DailyCost]) -> list[tuple[str, Sum]]:
    found: dict[str, Sum] = {}
    for one in accounts:
        key = dimension.of(one)
        found[key] = found.get(key, Sum()) + one.sum
    if dimension is Dimension.DAY:
        return sorted(found.items())
    return sorted(found.items(), key=lambda item: (-item[1].usd, item[0]))


def _phases(parts: Sequence[PhaseSum]) -> list[PhaseCost]:
    found = []
    for phase in PHASES:
        mine = [part for part in parts if part.phase == phase]
        seconds = sum(part.seconds for part in mine)
        found.append(PhaseCost(phase, seconds, sum((part.usd for part in mine), _NOTHING)))
    return found


def _idle(parts: Sequence[PhaseSum]) -> list[Idleness]:
    found = []
    for platform in {part.platform for part in parts}:
        mine = [part for part in parts if part.platform == platform]
        idle = [part for part in mine if part.is_idle]
        found.append(
            Idleness(
                platform,
                sum(part.seconds for part in mine),
                sum(part.seconds for part in idle),
                sum((part.usd for part in idle), _NOTHING),
            )
        )
    return sorted(found, key=lambda one: (-one.idle_usd, one.platform))


def refresh_prices(context: Context) -> Refreshed:
    """Read prices from every provider. An implausible price is reported and not stored."""
    kept: list[Price] = []
    uncertain: list[UncertainPrice] = []
    unread: dict[str, str] = {}
    for name in sorted(context.traits):
        try:
            provider = context.provider(name)
            read = tuple(provider.read_prices()) if isinstance(provider, Prices) else ()
        except ProviderError as error:
            unread[name] = str(error)
            continue
        believed, doubted = partition_plausible(read)
        context.stores.prices.write(believed)
        kept += believed
        uncertain += doubted
    return Refreshed(tuple(kept), tuple(uncertain), unread)


def known_prices(context: Context) -> tuple[Price, ...]:
    """Return the prices in use: shipped tables, overridden by refreshed prices."""
    found: list[Price] = []
    for name in sorted(context.traits):
        if context.traits[name].rented:
            found += _known(context, name)
    return tuple(found)


def _known(context: Context, name: str) -> tuple[Price, ...]:
    """Return one provider's prices; none if it is not configured."""
    try:
        provider = context.provider(name)
        return tuple(provider.known_prices()) if isinstance(provider, Prices) else ()
    except ProviderError:
        return ()
