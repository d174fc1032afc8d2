"""A launch that has not happened: cells, places, money and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from orchestrator.application.plan_run import Plan, PlannedCell
from orchestrator.dashboard.table import Badge, Cell, Column, Number, Row, Several, Table, Text, Usd
from orchestrator.domain.machine import Place
from orchestrator.domain.quota import Headroom, Room
from orchestrator.domain.units import plural, price, usd

_PLACES = 6
_CELLS = (
    Column("cell", "Cell"),
    Column("provider", "Provider"),
    Column("jobs", "Jobs"),
    Column("places", "Places, in this order"),
    Column("worst_usd", "At most", is_number=True),
)
_HEADROOM = (
    Column("quota", "Quota"),
    Column("where", "Where"),
    Column("needed", "Needs", is_number=True),
    Column("free", "Free"),
    Column("room", "Room"),
    Column("ask", "What to ask for"),
)


def cell_table(plan: Plan) -> Table:
    """What would be rented where, and what that can cost."""
    return Table(
        id="plan",
        caption="Cells",
        columns=_CELLS,
        rows=[_row(cell) for cell in plan.cells],
        is_caption_hidden=True,
        is_passing=True,
    )


def _row(planned: PlannedCell) -> Row:
    cell = planned.cell
    jobs = ", ".join(cell.jobs) or "none"
    environment = "" if cell.environment == "image" else cell.environment
    return Row(
        (
            Text(cell.id, note=environment),
            Text(cell.platform.provider, note="optional" if cell.platform.optional else ""),
            Text(plural(len(cell.jobs), "job"), note=jobs),
            Text(planned.note) if planned.note else Several(list(_places(planned))),
            Usd(planned.worst_usd),
        ),
        tone="warn" if planned.note or planned.worst_usd is None else "",
    )


def _places(planned: PlannedCell) -> Iterator[Cell]:
    for place in planned.places[:_PLACES]:
        yield Text(place.name, note=_about(place))
    if len(planned.places) > _PLACES:
        yield Text(f"and {len(planned.places) - _PLACES} more")


def _about(place: Place) -> str:
    total = place.usd_per_hour
    cost = "price unknown" if total is None else f"{price(total)}/h" if total else "free"
    return ", ".join(part for part in (place.instance_type, place.market, cost) if part)


def headroom_table(plan: Plan) -> Table:
    """Every quota that the matrix takes of."""
    return Table(
        id="headroom",
        caption="Quotas",
        columns=_HEADROOM,
        rows=[_headroom(one) for one in plan.headroom],
        is_caption_hidden=True,
        is_passing=True,
    )


def _headroom(found: Headroom) -> Row:
    quota, level = found.quota, found.level
    is_known = level.limit is not None and level.used is not None
    free = f"{max(0, (level.limit or 0) - (level.used or 0))} of {level.limit}"
    return Row(
        (
            Text(f"{quota.provider} {quota.name}", note=quota.code),
            Text(quota.scope),
            Number(found.needed, quota.unit),
            Text(free if is_known else "unknown"),
            Badge(_WORDS[found.room]),
            Text("" if found.room is Room.OK else found.sentence),
        ),
        tone="" if found.room is Room.OK else "warn",
    )


_WORDS = {Room.OK: "ok", Room.SHORT: "short", Room.UNKNOWN: "unknown"}


def total(plan: Plan) -> str:
    """``5 cells, 25 jobs, at most $4.02 an attempt (limit $12.00)``."""
    jobs = sum(len(cell.cell.jobs) for cell in plan.cells)
    most = plan.matrix.limits.max_usd
    limit = f" (limit {usd(most)})" if most is not None else ""
    worst = plan.worst_usd
    cost = "free" if worst == 0 else f"at most {usd(worst)} an attempt{limit}"
    return f"{plural(len(plan.cells), 'cell')}, {plural(jobs, 'job')}, {cost}"


def warnings(plan: Plan) -> list[str]:
    """What a person should know before it starts."""
    most = plan.matrix.limits.max_usd
    known = sum((cell.worst_usd for cell in plan.cells if cell.worst_usd), Decimal(0))
    found = []
    if most is not None and known > most:
        found.append(
            f"limits.max_usd of {usd(most)} does not cover one attempt of every cell"
            f" ({usd(known)}): what does not fit when its turn comes is not rented."
        )
    short = sum(one.room is Room.SHORT for one in plan.headroom)
    if short:
        found.append(f"{plural(short, 'quota is', 'quotas are')} too small for this.")
    return found
