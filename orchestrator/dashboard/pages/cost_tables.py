"""The tables of the page about costs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from orchestrator.application.cost_summary import (
    RUNS_SHOWN,
    Dimension,
    Forecast,
    Idleness,
    PhaseCost,
    Spending,
)
from orchestrator.application.ports.cost_aggregates import RunSum, Sum
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import (
    Badge,
    Column,
    Moment,
    Number,
    Row,
    Span,
    Table,
    Text,
    Usd,
)
from orchestrator.domain.units import usd

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


def cost_tables(spending: Spending) -> Sequence[Table]:
    """All but those of runs and of nights."""
    sums = [_sums_table(by, spending.by[by]) for by in Dimension]
    return (*sums, _phases_table(spending), _idle_table(spending.idle), _refusals_table(spending))


def share_of(part: Decimal, whole: Decimal) -> str:
    """A part in hundredths; nothing of nothing is no part."""
    if not whole:
        return "–"
    hundredths = 100 * part / whole
    return "<1%" if 0 < hundredths < 1 else f"{hundredths:.0f}%"


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
    return Number(one.machines), Span(one.seconds), Usd(one.usd)


def _phases_table(spending: Spending) -> Table:
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


def _refusals_table(spending: Spending) -> Table:
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
                    Text(one.reason, note=one.last_said.partition(": ")[2]),
                    Number(one.count),
                    Moment(one.last_at),
                )
            )
            for one in spending.refusals
        ],
        empty="No provider refused a machine in these days.",
    )


def runs_table(asked: Asked, spending: Spending, skip: int) -> Table:
    """The dearest first, a page of them."""
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
        next=asked.here(skip=str(skip + RUNS_SHOWN)) if has_more else "",
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
    """What schedules will come to."""
    return Table(
        id="forecast",
        caption="Expected cost of the next scheduled runs",
        columns=(
            Column("schedule", "Schedule"),
            Column("next_at", "Next"),
            Column("likely_usd", "Likely", is_number=True),
            Column("from_usd", "Lowest", is_number=True),
            Column("to_usd", "Highest", is_number=True),
            Column("of", "Of the last"),
        ),
        rows=[_night_row(one) for one in nights],
        empty="Nothing is scheduled.",
        command='seatrial schedule add nightly --cron "0 2 * * *" --tz UTC --matrix MATRIX',
    )


def _night_row(one: Forecast) -> Row:
    known = len(one.costs)
    of = ", ".join(usd(cost) for cost in one.costs) if known else "no run of it is over yet"
    return Row(
        (
            Text(one.schedule.name, urls.schedule_url(one.schedule.name)),
            Moment(one.next_at) if one.next_at else Text("paused"),
            _known(one.likely_usd),
            _known(min(one.costs) if known else None),
            _known(max(one.costs) if known else None),
            Text(of),
        )
    )


def _known(amount: Decimal | None) -> Usd | Text:
    return Usd(amount) if amount is not None else Text("–")
