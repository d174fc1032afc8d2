"""Costs of machines from the ledger: by machine, state, job and validated test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from orchestrator.domain import money
from orchestrator.domain.cell import LeaseState
from orchestrator.domain.charges import (
    NOT_STATED,
    PRICE_UNKNOWN,
    SEVERAL,
    STATED,
    is_priced,
    why_no_cost,
)
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.cost_response import usd_by_phase
from orchestrator.domain.run_record import CellRecord, LeaseRecord
from reports.model.money import (
    CostBreakdown,
    Costs,
    CostShare,
    Money,
    MoneyRow,
)
from reports.model.values import Absent

_NOTHING = Decimal(0)


def money_of(cell: CellRecord) -> Money:
    """Return the bill of each machine, and their sum in every breakdown."""
    rows = tuple(_row(lease) for lease in cell.leases)
    held = [row.seconds for row in rows if not isinstance(row.seconds, Absent)]
    charged = [
        lease
        for lease, row in zip(cell.leases, rows, strict=True)
        if not isinstance(row.bill, Absent)
    ]
    without = [row.bill for row in rows if isinstance(row.bill, Absent)]
    nothing = without[-1] if without else _no_machine(cell)
    return Money(
        rows=rows,
        seconds=sum(held) if held else nothing,
        costs=_costs(cell, charged) if charged else nothing,
    )


def _no_machine(cell: CellRecord) -> Absent:
    told = "no machine was asked for" if cell.ingested is None else NOT_STATED
    return Absent(told)


def _row(lease: LeaseRecord) -> MoneyRow:
    none = _without_machine(lease)
    price = none or _price(lease)
    return filled(
        MoneyRow,
        lease,
        seconds=none or lease.seconds,
        billed_s=price if isinstance(price, Absent) else lease.billed_s,
        price_usd_per_hour=price,
        bill=price if isinstance(price, Absent) else _bill([lease.bill]),
    )


def _without_machine(lease: LeaseRecord) -> Absent | None:
    """Return why a lease has no seconds and no cost; None if it had a machine."""
    if lease.seconds or lease.cost_usd:
        return None
    if lease.state == STATED:
        return Absent("its duration is not stated")
    if lease.machine_id:
        return None
    gone = lease.state == LeaseState.GONE.value
    return Absent("no machine was rented" if gone else "no machine yet")


def _price(lease: LeaseRecord) -> Decimal | Absent:
    price = lease.price_usd_per_hour
    if is_priced(lease) and price is not None:
        return price
    return Absent(why_no_cost(lease) or PRICE_UNKNOWN)


def _costs(cell: CellRecord, charged: list[LeaseRecord]) -> Costs:
    bill = _bill(lease.bill for lease in charged)
    jobs = cell.job_costs
    counts = cell.counts
    return Costs(
        bill=bill,
        phases=_shares(usd_by_phase(lease) for lease in charged),
        jobs=tuple(CostShare(name, usd) for name, usd in jobs.by_job.items()),
        overhead_usd=jobs.overhead_usd,
        validated=counts.passed + counts.failed,
        usd_per_validated=_each(bill.total_usd, counts.passed + counts.failed),
    )


def total_costs(costs: Iterable[Costs | Absent], *, validated: int) -> Costs | Absent:
    """Return the sum over the cells that have a cost.

    `validated` are the tests of all cells that passed or failed, the free ones' too.
    """
    costs = tuple(costs)
    known = [one for one in costs if not isinstance(one, Absent)]
    if not known:
        reasons = {one.reason for one in costs if isinstance(one, Absent)}
        return Absent(reasons.pop() if len(reasons) == 1 else SEVERAL)
    bill = _bill(one.bill for one in known)
    return Costs(
        bill=bill,
        phases=_shares({share.name: share.usd for share in one.phases} for one in known),
        jobs=_shares({share.name: share.usd for share in one.jobs} for one in known),
        overhead_usd=sum((one.overhead_usd for one in known), _NOTHING),
        validated=validated,
        usd_per_validated=_each(bill.total_usd, validated),
    )


def _bill(bills: Iterable[money.Bill | CostBreakdown]) -> CostBreakdown:
    found = list(bills)
    machine = sum((bill.machine_usd for bill in found), _NOTHING)
    disk = sum((bill.disk_usd for bill in found), _NOTHING)
    address = sum((bill.address_usd for bill in found), _NOTHING)
    return CostBreakdown(machine, disk, address, machine + disk + address)


def _shares(parts: Iterable[Mapping[str, Decimal]]) -> tuple[CostShare, ...]:
    return tuple(CostShare(name, usd) for name, usd in money.sum_by_name(parts).items())


def _each(total_usd: Decimal, validated: int) -> Decimal | Absent:
    if not validated:
        return Absent("no test passed or failed")
    return (total_usd / validated).quantize(Decimal("0.000001"))
