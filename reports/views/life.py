"""The life of a cell: timeline, attempts, money, notices and files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from orchestrator.domain.cell import Attempt, CellState, LeaseState, Transition
from orchestrator.domain.record import CellRecord, LeaseRecord
from reports.model.parts import AttemptRow, FileRow, Money, MoneyRow, NoticeRow, TimelineRow
from reports.model.values import Absent, Status

NOTICES_SHOWN = 50
"""Notices that are listed; the rest are in the evidence."""

_MICRO = Decimal("0.000001")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = 4102444800.0
"""The year 2100."""

_KNOWN_FILES = {
    "environment.json": "everything the machine was probed for, and every installed package",
    "gpu_info.txt": "what the vendor's tool says about the accelerator",
    "events.jsonl": "the raw evidence",
}


def timeline_of(cell: CellRecord, *, as_of: datetime) -> tuple[TimelineRow, ...]:
    """Each transition with the time spent in the state that it led to."""
    rows = []
    for index, step in enumerate(cell.transitions):
        last = index + 1 == len(cell.transitions)
        over = step.target == CellState.DONE.value
        ends = as_of if last else cell.transitions[index + 1].at
        until = Absent("the end") if last and over else ends
        rows.append(_row(step, until))
    return tuple(rows)


def _row(step: Transition, until: datetime | Absent) -> TimelineRow:
    spent = until if isinstance(until, Absent) else (until - step.at).total_seconds()
    return TimelineRow(
        at=step.at,
        attempt=step.attempt,
        origin=step.origin,
        target=step.target,
        reason=step.reason,
        until=until,
        duration_s=spent,
    )


def attempts_of(cell: CellRecord) -> tuple[AttemptRow, ...]:
    """Every try at the cell."""
    return tuple(_attempt(attempt) for attempt in cell.attempts)


def _attempt(attempt: Attempt) -> AttemptRow:
    cause, outcome = attempt.cause, attempt.outcome
    return AttemptRow(
        number=attempt.number,
        id=attempt.id,
        opened_at=attempt.opened_at,
        closed_at=attempt.closed_at or Absent("still open"),
        status=Status(outcome.value if outcome else "running", cause.reason if cause else ""),
        detail=cause.detail if cause else "",
    )


def money_of(cell: CellRecord) -> Money:
    """Each machine's seconds times its price, beside what the ledger says."""
    rows = tuple(_refused(lease) or _money(lease) for lease in cell.leases)
    held = [row.seconds for row in rows if not isinstance(row.seconds, Absent)]
    costs = [row.cost_usd for row in rows if not isinstance(row.cost_usd, Absent)]
    without = [row.cost_usd for row in rows if isinstance(row.cost_usd, Absent)]
    nothing = without[0] if without else Absent("no machine was asked for")
    return Money(
        rows=rows,
        seconds=sum(held) if held else nothing,
        cost_usd=sum(costs, Decimal(0)) if costs else nothing,
    )


def _refused(lease: LeaseRecord) -> MoneyRow | None:
    """A lease that never had a machine has no seconds and no cost, which is not the same as 0."""
    if lease.machine_id or lease.seconds or lease.cost_usd:
        return None
    gone = lease.state == LeaseState.GONE.value
    none = Absent("no machine was given" if gone else "no machine yet")
    return _row_of(lease, seconds=none, price=none, machine=none, cost=none)


def _money(lease: LeaseRecord) -> MoneyRow:
    price = _price(lease)
    machine = price if isinstance(price, Absent) else machine_usd(lease, price)
    return _row_of(lease, seconds=lease.seconds, price=price, machine=machine, cost=_cost(lease))


def _row_of(
    lease: LeaseRecord,
    *,
    seconds: float | Absent,
    price: Decimal | Absent,
    machine: Decimal | Absent,
    cost: Decimal | Absent,
) -> MoneyRow:
    other: Decimal | Absent = Absent("not known")
    if not isinstance(machine, Absent) and not isinstance(cost, Absent):
        other = cost - machine
    return MoneyRow(
        attempt=lease.attempt,
        provider=lease.provider,
        place=lease.place,
        state=lease.state,
        machine_id=lease.machine_id,
        address=lease.address,
        seconds=seconds,
        price_usd_per_hour=price,
        machine_usd=machine,
        other_usd=other,
        cost_usd=cost,
        refusal=lease.refusal,
    )


def machine_usd(lease: LeaseRecord, price: Decimal) -> Decimal:
    """Seconds times the hourly price, to the millionth of a dollar."""
    return (Decimal(str(lease.seconds)) * price / 3600).quantize(_MICRO)


def _price(lease: LeaseRecord) -> Decimal | Absent:
    if lease.price_usd_per_hour is not None:
        return lease.price_usd_per_hour
    own = lease.provider in ("local", "static")
    return Absent("own machine: nothing is charged" if own else "price unknown")


def _cost(lease: LeaseRecord) -> Decimal | Absent:
    price = _price(lease)
    if isinstance(price, Absent) and not lease.cost_usd:
        return price
    return lease.cost_usd


def notices_of(cell: CellRecord) -> tuple[tuple[NoticeRow, ...], int]:
    """What the agent wants a person to know, and how many more there are."""
    shown = tuple(
        NoticeRow(_moment(n.ts), n.job, n.level, n.message) for n in cell.notices[:NOTICES_SHOWN]
    )
    return shown, len(cell.notices) - len(shown)


def _moment(ts: float) -> datetime | Absent:
    if not 0 <= ts < _LAST_S:
        return Absent("the machine's clock is not to be believed")
    return _EPOCH + timedelta(seconds=ts)


def files_of(cell: CellRecord) -> tuple[FileRow, ...]:
    """The raw files beside the report, by name."""
    titles = {job.id: job.title or job.id for job in cell.jobs}
    ordered = sorted(cell.artifacts, key=lambda artifact: artifact.name)
    return tuple(FileRow(a.name, a.size_bytes, a.digest, what(a.name, titles)) for a in ordered)


def what(name: str, titles: dict[str, str]) -> str:
    """What a file of this name holds."""
    if name in _KNOWN_FILES:
        return _KNOWN_FILES[name]
    if name.removesuffix(".txt") in titles and name.endswith(".txt"):
        return f"whole output of {titles[name.removesuffix('.txt')]}"
    owners = [job for job in titles if name.startswith(f"{job}.")]
    return f"left by {titles[max(owners, key=len)]}" if owners else "left by the agent"


def evidence_digest(cell: CellRecord) -> str | Absent:
    """Of the raw events, where they came home."""
    for artifact in cell.artifacts:
        if artifact.name == "events.jsonl":
            return artifact.digest
    return Absent("events.jsonl is not among the artifacts")
