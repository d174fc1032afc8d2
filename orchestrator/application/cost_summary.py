"""Costs over a span of time, and a forecast for the next firing of each schedule."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.application.context import Context
from orchestrator.application.schedules import next_firing
from orchestrator.domain.money import PHASES, machine_cost
from orchestrator.domain.schedule import Firing, Schedule
from orchestrator.store.cost_aggregates import Account, PhaseCost, PhaseSum, Refusals, RunSum, Sum
from orchestrator.store.machine_list import Rented
from orchestrator.store.stores import Stores

RUNS_SHOWN = 20
REFUSALS_SHOWN = 50
FIRINGS_READ = 7
"""A forecast is made from so many of the last firings."""
_NOTHING = Decimal(0)


class Dimension(StrEnum):
    """By what money is summed up."""

    DAY = "day"
    PLATFORM = "platform"
    PROVIDER = "provider"
    VERSION = "version"

    def of(self, account: Account) -> str:
        """What an account is of."""
        told = {
            Dimension.DAY: account.day,
            Dimension.PLATFORM: account.platform,
            Dimension.PROVIDER: account.provider,
            Dimension.VERSION: account.version,
        }
        return told[self]


@dataclass(frozen=True, slots=True)
class Idleness:
    """How much of a platform's paid time no job ran."""

    platform: str
    seconds: float
    """Paid for."""
    idle_seconds: float
    idle_usd: Decimal


@dataclass(frozen=True, slots=True)
class Forecast:
    """The likely cost of a schedule's next firing, in US dollars."""

    schedule: Schedule
    next_at: datetime | None
    """None while it is paused."""
    costs: Sequence[Decimal]
    """Of its last firings, the latest first."""

    @property
    def likely_usd(self) -> Decimal | None:
        """The median; None where none of them is known."""
        return statistics.median(self.costs) if self.costs else None


@dataclass(frozen=True, slots=True)
class CostSummary:
    """A span of time in money. Simulated machines are no money."""

    total: Sum
    """Of settled machines."""
    unsettled: Sequence[Rented]
    """Machines that are still there, whenever they were rented."""
    unsettled_usd: Decimal
    """They came to so much until now."""
    reserved_usd: Decimal
    """They may come to so much."""
    simulated_usd: Decimal
    by: Mapping[Dimension, Sequence[tuple[str, Sum]]]
    """Days in their order; else what cost most first."""
    runs: Sequence[RunSum]
    phases: Sequence[PhaseCost]
    """In the order of a cell's life."""
    idle: Sequence[Idleness]
    """What was paid most for first."""
    refusals: Sequence[Refusals]

    @property
    def idle_usd(self) -> Decimal:
        """Paid while no job ran."""
        return sum((one.usd for one in self.phases if one.is_idle), _NOTHING)


def cost_summary(
    context: Context, since: datetime, until: datetime, *, skip_runs: int = 0
) -> CostSummary:
    """Sum everything up, of machines reserved within the span.

    Args:
        context: The ports.
        since: Its beginning.
        until: Its end, which is not in it.
        skip_runs: So many of the dearest runs are left out.
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
    """The forecast for every schedule."""
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
    """Whether it costs real money."""
    return not one.lease.simulated and one.lease.provider != "fake"


def _spent(stores: Stores, firings: Mapping[str, Sequence[Firing]]) -> Mapping[str, Decimal]:
    """By run, of runs that are over."""
    over = [one.run for some in firings.values() for one in some if one.is_over and one.run]
    return stores.costs.of_runs(over) if over else {}


def _by(dimension: Dimension, accounts: Sequence[Account]) -> list[tuple[str, Sum]]:
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
