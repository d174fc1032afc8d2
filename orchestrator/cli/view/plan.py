"""A launch that has not happened, on a terminal: cells, places, money and quotas."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.responses import PlannedCell, PlannedPlace, ShownPlan
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain import plan_text
from orchestrator.domain.plan_text import free_of, hourly, limit_warning
from orchestrator.domain.units import plural, price, usd

_PLAN = Layout(
    titles=("cell", "provider", "environment", "jobs", "places", "at most"),
    first_to_go=("environment", "provider"),
    right=("at most",),
)
_QUOTA_STYLES = {"ok": "green", "short": "bold red", "unknown": "yellow"}


def plan_table(console: Console, plan: ShownPlan) -> Table:
    """The cells, where they would run, and what that can cost."""
    return fitting(console, _PLAN, [_row(cell) for cell in plan.cells])


def _row(cell: PlannedCell) -> dict[str, Text]:
    texts = (
        Text(one_line(cell.id), style="bold"),
        Text(one_line(cell.provider)),
        Text(one_line(cell.environment)),
        Text(", ".join(one_line(job) for job in cell.jobs) or "none"),
        Text(one_line(cell.note), style="yellow") if cell.note else _expecting(cell),
        Text(usd(cell.worst_usd)),
    )
    return dict(zip(_PLAN.titles, texts, strict=True))


def headroom_table(plan: ShownPlan) -> Table:
    """Every quota that the matrix takes of."""
    table = _empty("quota", "where", "needs", "free", "status")
    for found in plan.headroom:
        table.add_row(
            Text(f"{one_line(found.provider)} {one_line(found.name)}"),
            Text(one_line(found.scope)),
            Text(f"{found.needed} {one_line(found.unit)}"),
            Text(free_of(found.limit, found.used)),
            Text(one_line(found.status), style=_QUOTA_STYLES.get(found.status, "")),
        )
    return table


def shortages(plan: ShownPlan) -> list[Text]:
    """What a person should know before it starts: quotas, a low limit, and the plan's warnings."""
    limit = limit_warning(plan.known_usd, plan.max_usd)
    others = [Text(f"note: {one_line(text)}", style="yellow") for text in plan.warnings]
    return [*_quotas(plan), *([Text(f"short: {limit}")] if limit else []), *others]


def _quotas(plan: ShownPlan) -> list[Text]:
    return [
        Text(f"{one_line(found.status)}: {one_line(found.provider)} {one_line(found.sentence)}")
        for found in plan.headroom
        if found.status != "ok"
    ]


def totals(plan: ShownPlan) -> str:
    """One line: how much there is to do, and the most it can cost."""
    jobs = sum(len(cell.jobs) for cell in plan.cells)
    return plan_text.totals(len(plan.cells), jobs, plan.worst_usd, plan.max_usd)


def _empty(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for title in titles:
        right = title in ("needs", "free")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table


def _expecting(cell: PlannedCell) -> Text:
    expect = f", must be {one_line(cell.expect)}" if cell.expect else ""
    return Text(_places(cell).plain + expect)


def _places(cell: PlannedCell) -> Text:
    """The first one, how many there are, and what the dearest takes."""
    if not cell.places:
        return Text("–")
    first = cell.places[0]
    text = one_line(first.name) + _rate(first)
    if len(cell.places) == 1:
        return Text(text)
    text += f", first of {len(cell.places)}"
    prices = [place.total_usd for place in cell.places]
    known = [amount for amount in prices if amount is not None]
    if len(known) < len(prices):
        return Text(f"{text}, {plural(len(prices) - len(known), 'price')} unknown")
    dearest = max(known, default=None)
    return Text(f"{text}, up to {price(dearest)}/h" if dearest != first.total_usd else text)


def _rate(place: PlannedPlace) -> str:
    return "" if place.total_usd == 0 else f" {hourly(place.total_usd)}"
