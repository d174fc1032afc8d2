"""Costs of machines in US dollars, calculated from the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal

from orchestrator.domain.cell import CellState, Lease, LeaseState, Transition
from orchestrator.domain.machine import Place
from orchestrator.domain.outcome import Counts

CENT_OF_CENT = Decimal("0.0001")
"""What costs are rounded to, and the smallest limit of them."""
TOO_SMALL = f"must be at least {CENT_OF_CENT}, which costs are rounded to"
_MILLIONTH = Decimal("0.000001")
_HOUR_S = 3600
_NOTHING = Place("")

PHASES: tuple[CellState, ...] = tuple(
    s for s in CellState if s not in (CellState.QUEUED, CellState.DONE)
)
"""Cell states in which an attempt may hold a machine, in their order."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The parts of a lease's cost, each rounded to a hundredth of a cent."""

    machine_usd: Decimal = Decimal(0)
    disk_usd: Decimal = Decimal(0)
    address_usd: Decimal = Decimal(0)

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            self.machine_usd + other.machine_usd,
            self.disk_usd + other.disk_usd,
            self.address_usd + other.address_usd,
        )

    @property
    def total_usd(self) -> Decimal:
        """The sum of the parts."""
        return self.machine_usd + self.disk_usd + self.address_usd


def sum_by_name(parts: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """Return the sums of amounts by name, in the order in which the names first appear."""
    total: dict[str, Decimal] = {}
    for one in parts:
        for name, usd in one.items():
            total[name] = total.get(name, Decimal(0)) + usd
    return total


def first_of_days(now: datetime, days: int) -> datetime:
    """Return the beginning (UTC) of the first of the last `days` days, of which today is one."""
    day = now.astimezone(UTC).date() - timedelta(days=days - 1)
    return datetime.combine(day, time(), UTC)


def lease_bill(lease: Lease, at: datetime) -> Bill:
    """Return the bill of a lease until its machine ended, or until `at`.

    The machine is billed by the second, rounded up, with the offer's minimum; disks and
    addresses are billed for the exact time. A settled cost does not change: if the parts have
    another sum, the settled cost is divided in proportion to them.
    """
    bill = _bill(lease, at)
    if lease.cost_usd is None or lease.cost_usd == bill.total_usd:
        return bill
    parts = (bill.machine_usd, bill.disk_usd, bill.address_usd)
    return Bill(*share(lease.cost_usd, parts))


def machine_cost(lease: Lease, at: datetime) -> Decimal:
    """Return the cost in US dollars: settled, or until `at`."""
    return lease_bill(lease, at).total_usd


def machine_seconds(lease: Lease, at: datetime) -> float:
    """Return for how many seconds the machine was held until `at`; 0 without a machine."""
    return _held(lease, at).total_seconds()


def billed_seconds(lease: Lease, at: datetime) -> int:
    """Return the billed seconds of the machine: rounded up, with the offer's minimum."""
    if _never_ran(lease):
        return 0
    minimum_s = lease.offer.minimum_s if lease.offer else 0
    return max(-(-_held(lease, at) // timedelta(seconds=1)), minimum_s)


def worst_usd(offer: Place, minutes: float) -> Decimal | None:
    """Return the maximum cost in US dollars of a machine for some minutes; None without a price.

    No bill of a lease that ended within that time is higher.
    """
    if offer.price_usd_per_hour is None:
        return None
    real_s = Decimal(str(minutes)) * 60
    billed_s = max(real_s.to_integral_value(ROUND_CEILING), Decimal(offer.minimum_s))
    parts = (
        billed_s * offer.price_usd_per_hour,
        real_s * offer.disk_usd_per_hour,
        real_s * offer.address_usd_per_hour,
    )
    rounded = ((part / _HOUR_S).quantize(CENT_OF_CENT, ROUND_CEILING) for part in parts)
    return sum(rounded, Decimal(0))


def _bill(lease: Lease, at: datetime) -> Bill:
    if _never_ran(lease):
        return Bill()
    offer = lease.offer or _NOTHING
    real_s = Decimal(_held(lease, at) // timedelta(microseconds=1)) / 1_000_000
    return Bill(
        usd_for(Decimal(billed_seconds(lease, at)), lease.price_usd_per_hour or Decimal(0)),
        usd_for(real_s, offer.disk_usd_per_hour),
        usd_for(real_s, offer.address_usd_per_hour),
    )


def usd_for(seconds: Decimal, usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a number of seconds in US dollars, rounded to a hundredth of a cent."""
    return (seconds * usd_per_hour / _HOUR_S).quantize(CENT_OF_CENT, ROUND_HALF_EVEN)


def _held(lease: Lease, at: datetime) -> timedelta:
    if lease.billed_from is None or _never_ran(lease):
        return timedelta(0)
    return max(timedelta(0), (lease.billed_until or at) - lease.billed_from)


def _never_ran(lease: Lease) -> bool:
    """Whether there was no machine: it was not requested, or the provider refused it."""
    if lease.launched_at is None:
        return True
    refused = not lease.machine_id or (bool(lease.refusal) and lease.cost_usd == 0)
    return lease.state is LeaseState.GONE and refused


def share(total_usd: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    """Divide an amount in proportion to weights, so that the parts add up exactly.

    Each part is rounded down to a hundredth of a cent. The rest goes to the parts that lost
    most by rounding. If all weights are 0, the first part gets the whole amount.

    Args:
        total_usd: The amount; not negative.
        weights: At least one weight; none is negative.
    """
    if not any(weights):
        weights = [Decimal(1), *([Decimal(0)] * (len(weights) - 1))]
    whole = sum(weights, Decimal(0))
    exact = [total_usd * weight / whole for weight in weights]
    parts = [part.quantize(CENT_OF_CENT, "ROUND_FLOOR") for part in exact]
    by_loss = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    left = total_usd - sum(parts, Decimal(0))
    for index in by_loss:
        step = min(left, CENT_OF_CENT)
        parts[index] += step
        left -= step
    return parts


def cost_by_phase(
    transitions: Sequence[Transition], lease: Lease, at: datetime
) -> dict[CellState, Decimal]:
    """Divide the cost of a lease by the cell states of its attempt.

    Args:
        transitions: The state transitions of the lease's attempt, in their order.
        lease: The lease; a settled cost is divided as it is.
        at: The end of an unfinished lease.

    Returns: The cost of every state in `PHASES`; the sum is exactly the cost of the lease.
    """
    spent = dict.fromkeys(PHASES, timedelta(0))
    if lease.billed_from is not None and not _never_ran(lease):
        ends = lease.billed_until or at
        steps = [(step.at, CellState(step.to_state)) for step in transitions]
        begins = [(lease.billed_from, CellState.PLACING), *steps]
        for (since, state), (until, _) in zip(
            begins, [*steps, (ends, CellState.DONE)], strict=True
        ):
            within = min(until, ends) - max(since, lease.billed_from)
            spent[_phase(state)] += max(timedelta(0), within)
    weights = [Decimal(span // timedelta(microseconds=1)) for span in spent.values()]
    return dict(zip(PHASES, share(machine_cost(lease, at), weights), strict=True))


def _phase(state: CellState) -> CellState:
    """Return the state that is billed; after an attempt, its machine is being released."""
    return state if state in PHASES else CellState.RELEASING


@dataclass(frozen=True, slots=True)
class JobCosts:
    """The cost of machines by job."""

    by_job: Mapping[str, Decimal]
    overhead_usd: Decimal
    """The cost of the time without a job: booting, installing, collecting, releasing, pauses."""


def cost_by_job(
    durations_s: Mapping[str, float], total_usd: Decimal, *, machine_s: float
) -> JobCosts:
    """Divide a cost by the durations of the jobs.

    Args:
        durations_s: Seconds of each job that ran, by id.
        total_usd: The cost of the machines that ran the jobs.
        machine_s: Seconds for which the machines were held. If the jobs state that they ran for
            longer, all of the cost is theirs.
    """
    ran = {job: max(Decimal(0), Decimal(str(s))) for job, s in durations_s.items()}
    rest = max(Decimal(0), Decimal(str(machine_s)) - sum(ran.values(), Decimal(0)))
    overhead, *parts = share(total_usd, [rest, *ran.values()])
    return JobCosts(dict(zip(ran, parts, strict=True)), overhead)


def usd_per_validated_test(total_usd: Decimal | None, counts: Counts) -> Decimal | None:
    """Return the cost per test that passed or failed; None without such tests or a cost."""
    validated = counts.passed + counts.failed
    if total_usd is None or not validated:
        return None
    return (total_usd / validated).quantize(_MILLIONTH)
