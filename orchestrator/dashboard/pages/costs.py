"""Costs of runs, platforms and phases, and a forecast of scheduled runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.cost_summary import (
    RUNS_SHOWN,
    CostSummary,
    Dimension,
    Forecast,
    Idleness,
    cost_summary,
    forecast,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, columns
from orchestrator.dashboard.responses import Page, PageRequest, PageRequestDep
from orchestrator.dashboard.table import Badge, Column, Moment, Number, Row, Span, Table, Text, Usd
from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.money import first_of_days
from orchestrator.domain.units import most_usd, percent, plural, usd
from orchestrator.store.costs import PhaseCost, RunSum, Sum

_TITLES = {
    Dimension.DAY: "Day (UTC)",
    Dimension.PLATFORM: "Platform",
    Dimension.PROVIDER: "Provider",
    Dimension.VERSION: "Version",
}
_MONEY = (
    Column("machines", "Machines", is_number=True),
    Column("held_s", "Held", is_number=True),
    Column("spent_usd", "Spent", is_number=True),
)
_NOTHING = "No machine that cost money was settled in these days."
_SUMS_SHOWN = 20


def cost_tables(spending: CostSummary) -> Sequence[Table]:
    """Return the cost tables, without those of single runs and schedules."""
    sums = [_sums_table(by, spending.by[by]) for by in Dimension]
    return (*sums, _phases_table(spending), _idle_table(spending.idle), _refusals_table(spending))


def share_of(part: Decimal, whole: Decimal) -> str:
    """Format a part of a whole as a percentage; empty if the whole is zero."""
    return percent(Fraction(part) / Fraction(whole)) if whole else "–"


def _sums_table(by: Dimension, sums: Sequence[tuple[str, Sum]]) -> Table:
    shown = sums if by is Dimension.DAY else sums[:_SUMS_SHOWN]
    part = f", the dearest {len(shown)} of {len(sums)}" if len(shown) < len(sums) else ""
    return Table(
        id=f"by_{by}",
        caption=f"Spend by {by}{part}",
        columns=(Column(by.value, _TITLES[by]), *_MONEY),
        rows=[Row((Text(key), *_money(one))) for key, one in shown],
        empty=_NOTHING,
        total=len(sums),
    )


def _money(one: Sum) -> tuple[Number, Span, Usd]:
    return Number(one.machines), Span(one.seconds), Usd.of(one.cost)


def _phases_table(spending: CostSummary) -> Table:
    paid = sum((one.usd for one in spending.phases), Decimal(0))
    return Table(
        id="phases",
        caption="Cost by phase",
        columns=(
            Column("phase", "Phase"),
            Column("held_s", "Time", is_number=True),
            Column("spent_usd", "Spent", is_number=True),
            Column("share", "Share", is_number=True),
        ),
        rows=[_phase_row(one, paid) for one in spending.phases if one.seconds],
        empty=_NOTHING,
    )


def _phase_row(one: PhaseCost, paid: Decimal) -> Row:
    note = "idle" if one.is_idle else ""
    return Row(
        (
            Text(one.phase.value, note=note),
            Span(one.seconds),
            Usd(one.usd),
            Text(share_of(one.usd, paid)),
        )
    )


def _idle_table(idle: Sequence[Idleness]) -> Table:
    return Table(
        id="idle",
        caption="Idle time by platform",
        columns=(
            Column("platform", "Platform"),
            Column("paid_s", "Paid time", is_number=True),
            Column("idle_s", "Idle time", is_number=True),
            Column("idle_share", "Share", is_number=True),
            Column("idle_usd", "Idle cost", is_number=True),
        ),
        rows=[
            Row(
                (
                    Text(one.platform),
                    Span(one.seconds),
                    Span(one.idle_seconds),
                    Text(share_of(Decimal(one.idle_seconds), Decimal(one.seconds))),
                    Usd(one.idle_usd),
                )
            )
            for one in idle[:_SUMS_SHOWN]
        ],
        empty=_NOTHING,
    )


def _refusals_table(spending: CostSummary) -> Table:
    return Table(
        id="refusals",
        caption="Refused placements: capacity, quota and others",
        columns=(
            Column("provider", "Provider"),
            Column("place", "Place"),
            Column("reason", "Reason"),
            Column("times", "Times", is_number=True),
            Column("last_at", "Last"),
        ),
        rows=[
            Row(
                (
                    Text(one.provider),
                    Text(one.place),
                    Text(one.reason, note=one.last_message.partition(": ")[2]),
                    Number(one.count),
                    Moment(one.last_at),
                )
            )
            for one in spending.refusals
        ],
        empty="No provider refused a machine in these days.",
    )


def runs_table(request: PageRequest, spending: CostSummary, skip: int) -> Table:
    """Return a page of runs by cost, highest first."""
    shown = spending.runs[:RUNS_SHOWN]
    has_more = len(spending.runs) > len(shown)
    return Table(
        id="runs",
        caption="Runs, the dearest first",
        columns=(
            Column("run", "Run"),
            Column("outcome", "Outcome"),
            Column("subject", "Subject"),
            Column("matrix", "Matrix"),
            *_MONEY,
            Column("launched_at", "Launched"),
        ),
        rows=[_run_row(one) for one in shown],
        empty=_NOTHING,
        next=request.here(skip=str(skip + RUNS_SHOWN)) if has_more else "",
    )


def _run_row(one: RunSum) -> Row:
    href = urls.run_url(one.run)
    return Row(
        (
            Text(one.run, href, is_code=True),
            Badge(one.outcome or one.state, href),
            Text(one.subject, note=one.version),
            Text(one.matrix),
            *_money(one.sum),
            Moment(one.launched_at),
        )
    )


def forecast_table(nights: Sequence[Forecast]) -> Table:
    """Return the table of expected costs of scheduled runs."""
    return Table(
        id="forecast",
        caption="Expected cost of the next scheduled runs",
        columns=(
            Column("schedule", "Schedule"),
            Column("next_at", "Next"),
            Column("likely_usd", "Expected", is_number=True),
            Column("from_usd", "Lowest", is_number=True),
            Column("to_usd", "Highest", is_number=True),
            Column("of", "Of the last"),
        ),
        rows=[_night_row(one) for one in nights],
        empty="Nothing is scheduled.",
        command='seatrial schedule add nightly --cron "0 2 * * *" --tz UTC --matrix MATRIX',
    )


def budgets_table(uses: Sequence[BudgetUse]) -> Table:
    """Return the table of budgets across runs, in their present periods."""
    return Table(
        id="budgets",
        caption="Budgets",
        columns=(
            Column("period", "Of the"),
            Column("limit_usd", "Budget", is_number=True),
            Column("settled_usd", "Spent", is_number=True),
            Column("reserved_usd", "Reserved", is_number=True),
            Column("share", "Used", is_number=True),
        ),
        rows=[_budget_row(use) for use in uses],
        empty="No budget across runs is set.",
    )


def _budget_row(use: BudgetUse) -> Row:
    warned = f"{use.warn_percent} % or more" if use.warn_percent else ""
    return Row(
        (
            Text(use.budget.period, note=use.budget.setting),
            Usd(use.budget.limit_usd, is_most=True),
            Usd(use.settled_usd),
            Usd(use.reserved_usd, is_most=True),
            Text(share_of(use.used_usd, use.budget.limit_usd), note=warned),
        )
    )


def _night_row(one: Forecast) -> Row:
    known = len(one.costs)
    of = ", ".join(usd(cost) for cost in one.costs) if known else "no run with a cost is over yet"
    return Row(
        (
            Text(one.schedule.name, urls.schedule_url(one.schedule.name)),
            Moment(one.next_at) if one.next_at else Text("paused"),
            _known(one.likely_usd),
            _known(min(one.costs) if known else None),
            _known(max(one.costs) if known else None, is_most=True),
            Text(of),
        )
    )


def _known(amount: Decimal | None, *, is_most: bool = False) -> Usd | Text:
    return Usd(amount, is_most=is_most) if amount is not None else Text("–")


_DAYS = 30
_MOST_DAYS = 1100
_PRESETS = (7, 30, 90, 365)
_SHOWN_DAYS = 92
"""Maximum number of days that are drawn as days; more are drawn as weeks."""
_WEEK = 7

router = APIRouter()


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of UTC days that includes its first and its last day."""

    first: date
    last: date

    @property
    def since(self) -> datetime:
        """The beginning of the first day."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def until(self) -> datetime:
        """The end of the last day."""
        return datetime.combine(self.last, time(), UTC) + timedelta(days=1)

    @property
    def days(self) -> list[date]:
        """The days of the range, in order."""
        many = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(many)]


@router.get(urls.COSTS)
def show_costs(
    request: PageRequestDep,
    since: date | None = None,
    until: date | None = None,
    skip: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Show the costs of machines that were rented in a range of days."""
    span = _span(request.now.astimezone(UTC).date(), since, until)
    spending = cost_summary(request.context, span.since, span.until, skip_runs=skip)
    nights = forecast(request.context)
    uses = request.context.stores.leases.budget_uses(request.context.budgets, request.now)
    tables = (
        *cost_tables(spending),
        runs_table(request, spending, skip),
        forecast_table(nights),
        budgets_table(uses),
    )
    facts = {
        "span": span,
        "presets": _presets(request),
        "spending": spending,
        "tiles": _tiles(spending),
        "chart": _chart(span, spending),
        "parts": {table.id: table for table in tables},
        "project": request.context.project,
    }
    page = Page(
        template="costs.html.j2",
        title="Costs",
        tables=tables,
        facts=facts,
        data=_data(span, spending),
        section=urls.COSTS,
    )
    return request.answer(page)


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure at the top of the page."""

    title: str
    value: str
    note: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the costs by day or by week."""

    picture: Picture
    title: str
    most: str
    first: str
    last: str
    label: str


def _data(span: DateRange, spending: CostSummary) -> Mapping[str, object]:
    return {
        "since": span.first.isoformat(),
        "until": span.last.isoformat(),
        "settled_usd": format(spending.total.usd, "f"),
        "reserved_for_settled_usd": format(spending.total.reserved_usd, "f"),
        "idle_usd": format(spending.idle_usd, "f"),
        "unsettled_usd": format(spending.unsettled_usd, "f"),
        "reserved_usd": format(spending.reserved_usd, "f"),
        "simulated_usd": format(spending.simulated_usd, "f"),
    }


def _span(today: date, since: date | None, until: date | None) -> DateRange:
    last = min(until or today, today)
    first, last = sorted((since or last - timedelta(days=_DAYS - 1), last))
    return DateRange(max(first, last - timedelta(days=_MOST_DAYS)), last)


def _presets(request: PageRequest) -> list[tuple[str, str]]:
    today = request.now.astimezone(UTC).date()
    return [
        (
            f"{days} days",
            urls.with_query(
                urls.COSTS,
                since=first_of_days(request.now, days).date().isoformat(),
                until=today.isoformat(),
            ),
        )
        for days in _PRESETS
    ]


def _tiles(spending: CostSummary) -> Sequence[Tile]:
    total = spending.total
    paid = sum((one.usd for one in spending.phases), Decimal(0))
    idle = share_of(spending.idle_usd, paid)
    now = plural(len(spending.unsettled), "machine")
    return (
        Tile("Spent", *_spent(total)),
        Tile("Of it idle", usd(spending.idle_usd), f"{idle} was paid while no job ran"),
        Tile(
            "Cost",
            share_of(total.usd, total.reserved_usd),
            f"of the {most_usd(total.reserved_usd)} that was reserved"
            if total.reserved_usd
            else "nothing was reserved",
        ),
        Tile(
            "Running now",
            usd(spending.unsettled_usd),
            f"so far, by {now}; at most {most_usd(spending.reserved_usd)}",
            "busy" if spending.unsettled else "",
        ),
    )


def _spent(total: Sum) -> tuple[str, str]:
    """Return the amount, or a dash, and a note with machines, hours and why there is no cost."""
    told = f"{plural(total.machines, 'machine')}, {total.seconds / 3600:,.1f} h"
    why = total.cost.no_cost
    return ("–", f"{told}; {why}") if why else (usd(total.usd), told)


def _chart(span: DateRange, spending: CostSummary) -> Chart | None:
    spent = {day: one.usd for day, one in spending.by[Dimension.DAY]}
    if not spent:
        return None
    by_day = [spent.get(day.isoformat(), Decimal(0)) for day in span.days]
    is_weeks = len(by_day) > _SHOWN_DAYS
    step = _WEEK if is_weeks else 1
    amounts = [sum(by_day[at : at + step], Decimal(0)) for at in range(0, len(by_day), step)]
    top = max(amounts)
    unit = "week" if is_weeks else "day"
    return Chart(
        picture=columns([float(amount) for amount in amounts]),
        title=f"Spend by {unit}",
        most=most_usd(top),
        first=span.first.isoformat(),
        last=span.last.isoformat(),
        label=f"Spend by {unit}, {span.first} to {span.last}: at most {most_usd(top)}",
    )
