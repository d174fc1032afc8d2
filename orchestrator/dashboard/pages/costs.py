"""Where the money went, what was paid for waiting, and what tonight will come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.cost_summary import (
    Dimension,
    Spending,
    forecast,
    review_spending,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, columns
from orchestrator.dashboard.pages.cost_tables import (
    cost_tables,
    forecast_table,
    runs_table,
    share_of,
)
from orchestrator.dashboard.responses import Asked, AskedDep, Page
from orchestrator.domain.units import plural, usd

_DAYS = 30
_MOST_DAYS = 1100
_PRESETS = (7, 30, 90, 365)
_SHOWN_DAYS = 92
"""More days are drawn as weeks."""
_WEEK = 7

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Span:
    """Some days, both ends counted, in UTC."""

    first: date
    last: date

    @property
    def since(self) -> datetime:
        """The beginning of the first."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def until(self) -> datetime:
        """The end of the last."""
        return datetime.combine(self.last, time(), UTC) + timedelta(days=1)

    @property
    def days(self) -> list[date]:
        """Each of them."""
        many = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(many)]


@router.get(urls.COSTS)
def show_costs(
    asked: AskedDep,
    since: date | None = None,
    until: date | None = None,
    skip: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Of machines that were rented on some days."""
    span = _span(asked.now.astimezone(UTC).date(), since, until)
    spending = review_spending(asked.context, span.since, span.until, skip_runs=skip)
    nights = forecast(asked.context)
    tables = (
        *cost_tables(spending),
        runs_table(asked, spending, skip),
        forecast_table(nights),
    )
    facts = {
        "span": span,
        "presets": _presets(asked),
        "spending": spending,
        "tiles": _tiles(spending),
        "chart": _chart(span, spending),
        "parts": {table.id: table for table in tables},
        "project": asked.context.janitor.project,
    }
    page = Page(
        template="costs.html.j2",
        title="Costs",
        tables=tables,
        facts=facts,
        data=_data(span, spending),
        section=urls.COSTS,
    )
    return asked.answer(page)


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that is read first."""

    title: str
    value: str
    note: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Money by day or by week."""

    picture: Picture
    title: str
    most: str
    first: str
    last: str
    label: str


def _data(span: Span, spending: Spending) -> Mapping[str, object]:
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


def _span(today: date, since: date | None, until: date | None) -> Span:
    last = min(until or today, today)
    first, last = sorted((since or last - timedelta(days=_DAYS - 1), last))
    return Span(max(first, last - timedelta(days=_MOST_DAYS)), last)


def _presets(asked: Asked) -> list[tuple[str, str]]:
    today = asked.now.astimezone(UTC).date()
    return [
        (
            f"{days} days",
            urls.with_query(
                urls.COSTS,
                since=(today - timedelta(days=days - 1)).isoformat(),
                until=today.isoformat(),
            ),
        )
        for days in _PRESETS
    ]


def _tiles(spending: Spending) -> Sequence[Tile]:
    total = spending.total
    paid = sum((one.usd for one in spending.phases), Decimal(0))
    idle = share_of(spending.idle_usd, paid)
    hours = f"{total.seconds / 3600:,.1f} h"
    now = plural(len(spending.unsettled), "machine")
    return (
        Tile("Spent", usd(total.usd), f"{plural(total.machines, 'machine')}, {hours}"),
        Tile("Of it idle", usd(spending.idle_usd), f"{idle} was paid while no job ran"),
        Tile(
            "Cost",
            share_of(total.usd, total.reserved_usd),
            f"of the {usd(total.reserved_usd)} that was reserved",
        ),
        Tile(
            "Running now",
            usd(spending.unsettled_usd),
            f"so far, by {now}; at most {usd(spending.reserved_usd)}",
            "busy" if spending.unsettled else "",
        ),
    )


def _chart(span: Span, spending: Spending) -> Chart | None:
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
        most=usd(top),
        first=span.first.isoformat(),
        last=span.last.isoformat(),
        label=f"Spend by {unit}, {span.first} to {span.last}: at most {usd(top)}",
    )
