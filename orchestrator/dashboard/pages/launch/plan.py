"""A launch that has not happened: cells, places, money and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from orchestrator.application.plan_run import Plan, PlannedCell
from orchestrator.dashboard.table import Badge, Cell, Column, Number, Row, Several, Table, Text, Usd
from orchestrator.domain.machine import Place
from orchestrator.domain.plan_text import free_of, hourly, limit_warning, totals
from orchestrator.domain.quota import Headroom, Room
from orchestrator.domain.units import plural

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
    Column("quota_status", "Quota status"),
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
    parts = (place.instance_type, place.market, hourly(place.usd_per_hour))
    return ", ".join(part for part in parts if part)


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
    return Row(
        (
            Text(f"{quota.provider} {quota.name}", note=quota.code),
            Text(quota.scope),
            Number(found.needed, quota.unit),
            Text(free_of(level.limit, level.used)),
            Badge("insufficient" if found.room is Room.SHORT else found.room),
            Text("" if found.room is Room.OK else found.sentence),
        ),
        tone="" if found.room is Room.OK else "warn",
    )


def total(plan: Plan) -> str:
    """``5 cells, 25 jobs, at most $4.02 an attempt (limit $12.00)``."""
    jobs = sum(len(cell.cell.jobs) for cell in plan.cells)
    return totals(len(plan.cells), jobs, plan.worst_usd, plan.matrix.limits.max_usd)


def warnings(plan: Plan) -> list[str]:
    """What a person should know before it starts."""
    known = sum((cell.worst_usd for cell in plan.cells if cell.worst_usd), Decimal(0))
    limit = limit_warning(known, plan.matrix.limits.max_usd)
    found = [f"{limit}."] if limit else []
    short = sum(one.room is Room.SHORT for one in plan.headroom)
    if short:
        found.append(f"{plural(short, 'quota is', 'quotas are')} too small for this.")
    return found
