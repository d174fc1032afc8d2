"""A launch plan on a terminal: cells, places, costs and quotas."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain import launch_plan
from orchestrator.domain.launch_plan import (
    HostCheck,
    Plan,
    PlannedCell,
    free_of,
    hourly,
    limit_warning,
    shipments_in_words,
)
from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import ExpectedHardware, hardware_sentence
from orchestrator.domain.quota import QuotaStatus
from orchestrator.domain.units import most_usd, plural, price

_PLAN = Layout(
    titles=("cell", "provider", "environment", "jobs", "places", "at most"),
    first_to_go=("environment", "provider"),
    right=("at most",),
)
_HOSTS = Layout(titles=("platform", "host", "check"), first_to_go=("platform",))
_JOBS_NAMED = 3
_QUOTA_STYLES = {"ok": "green", "short": "bold red", "unknown": "yellow"}


def plan_table(console: Console, plan: Plan) -> Table:
    """Return the table of cells, places and costs."""
    return fitting(console, _PLAN, [_row(cell) for cell in plan.cells])


def _row(cell: PlannedCell) -> dict[str, Text]:
    texts = (
        Text(one_line(cell.cell.id), style="bold"),
        Text(one_line(cell.cell.platform.provider)),
        Text(one_line(cell.cell.environment)),
        Text(_jobs(cell.cell.jobs)),
        Text("none, see below", style="yellow") if cell.note else _expecting(cell),
        Text(most_usd(cell.worst_usd)),
    )
    return dict(zip(_PLAN.titles, texts, strict=True))


def _jobs(jobs: Sequence[str]) -> str:
    """Return the first jobs and the number of the others: ``moe, fp8, export and 22 more``."""
    named = ", ".join(one_line(job) for job in jobs[:_JOBS_NAMED]) or "none"
    more = len(jobs) - _JOBS_NAMED
    return f"{named} and {more} more" if more > 0 else named


def hosts_table(console: Console, plan: Plan) -> Table:
    """Return the table of the user's own hosts, with the facts found or the error."""
    return fitting(console, _HOSTS, [_host(host) for host in plan.hosts])


def _host(host: HostCheck) -> dict[str, Text]:
    found = ", ".join((*host.pythons, *host.devices))
    check = Text(one_line(host.failure), "red") if host.failure else Text(f"ok: {one_line(found)}")
    texts = (Text(one_line(host.platform)), Text(one_line(host.host)), check)
    return dict(zip(_HOSTS.titles, texts, strict=True))


def headroom_table(plan: Plan) -> Table:
    """Return the table of used quotas."""
    table = _empty("quota", "where", "needs", "free", "status")
    for found in plan.headroom:
        table.add_row(
            Text(f"{one_line(found.quota.provider)} {one_line(found.quota.name)}"),
            Text(one_line(found.quota.scope)),
            Text(f"{found.needed} {one_line(found.quota.unit)}"),
            Text(free_of(found.level.limit, found.level.used)),
            Text(one_line(found.status), style=_QUOTA_STYLES.get(found.status, "")),
        )
    return table


def shortages(plan: Plan) -> list[Text]:
    """Return lines about low quotas, a low cost limit, data sent to machines, and warnings."""
    limit = limit_warning(plan.known_usd, plan.max_usd)
    stuck = [
        Text(one_line(f"{cell.cell.id}: {cell.note}"), style="yellow")
        for cell in plan.cells
        if cell.note
    ]
    others = [Text(f"note: {one_line(text)}", style="yellow") for text in plan.warnings]
    sent = [Text(one_line(text)) for text in shipments_in_words(plan.shipments)]
    return [*stuck, *_quotas(plan), *([Text(f"short: {limit}")] if limit else []), *sent, *others]


def _quotas(plan: Plan) -> list[Text]:
    return [
        Text(f"{found.status}: {one_line(found.quota.provider)} {one_line(found.sentence)}")
        for found in plan.headroom
        if found.status is not QuotaStatus.OK
    ]


def totals(plan: Plan) -> str:
    """Return one line: the number of cells and jobs, and the maximum cost."""
    jobs = sum(len(cell.cell.jobs) for cell in plan.cells)
    return launch_plan.totals(len(plan.cells), jobs, plan.worst_usd, plan.max_usd)


def _empty(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for title in titles:
        right = title in ("needs", "free")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table


def _expecting(cell: PlannedCell) -> Text:
    expected = hardware_sentence(cell.cell.platform.expect or ExpectedHardware())
    return Text(_places(cell).plain + (f", must be {one_line(expected)}" if expected else ""))


def _places(cell: PlannedCell) -> Text:
    """Describe the first place, the number of places, and the highest price."""
    if not cell.places:
        return Text("–")
    first = cell.places[0]
    text = one_line(first.name) + _rate(first)
    if len(cell.places) == 1:
        return Text(text)
    text += f", first of {len(cell.places)}"
    prices = [place.usd_per_hour for place in cell.places]
    known = [amount for amount in prices if amount is not None]
    if len(known) < len(prices):
        return Text(f"{text}, {plural(len(prices) - len(known), 'price')} unknown")
    dearest = max(known, default=None)
    return Text(f"{text}, up to {price(dearest)}/h" if dearest != first.usd_per_hour else text)


def _rate(place: Place) -> str:
    return "" if place.usd_per_hour == 0 else f" {hourly(place.usd_per_hour)}"
