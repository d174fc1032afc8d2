"""Bills and prices on a terminal. Parts have four decimals, totals are in cents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.glyphs import sign_of, word
from orchestrator.cli.view.provenance import SIMULATED
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.domain.charges import is_priced
from orchestrator.domain.cost_response import (
    CellCost,
    ProviderCost,
    RunCost,
    RunTotal,
    Spending,
)
from orchestrator.domain.money import Bill
from orchestrator.domain.prices import Price, Refreshed
from orchestrator.domain.units import cents_of_cents, duration, plural, price, usd

_PARTS = ("machine", "disk", "address", "total")
_PLATFORMS = Layout(
    titles=("platform", "market", "price/h", "held", *_PARTS, "per test"),
    first_to_go=("per test", "market", "price/h", "held", "disk"),
    together=_PARTS[:-1],
    whole=("platform", "held", "price/h", *_PARTS, "per test"),
    right=("price/h", "held", *_PARTS, "per test"),
)
_PROVIDERS = Layout(
    titles=("provider", "machines", "held", *_PARTS),
    first_to_go=("machines", "held", "disk"),
    together=_PARTS[:-1],
    whole=("held", *_PARTS),
    right=("machines", "held", *_PARTS),
)
_RUNS = Layout(
    titles=("run", "launched (UTC)", "matrix", "outcome", "total"),
    first_to_go=("matrix", "launched (UTC)", "outcome"),
    whole=("run", "launched (UTC)", "total"),
    right=("total",),
)
_PRICES = Layout(
    titles=("provider", "item", "place", "market", "per hour", "as of", "source"),
    first_to_go=("source", "as of", "market", "provider"),
    whole=("per hour", "as of"),
    right=("per hour",),
)
_ALL = "all"


def run_cost(console: Console, costs: RunCost) -> Iterator[RenderableType]:
    """Return the bill of one run."""
    yield Text(_headline(costs), style="bold")
    if costs.simulated:
        yield Text(f"{SIMULATED}, and nothing was charged for these machines", style="bold red")
    rows = [_platform(row) for row in costs.platforms]
    yield fitting(console, _PLATFORMS, [*rows, _total(costs)])
    spent = [_share(word(phase), usd) for phase, usd in costs.phases.items() if usd]
    if spent:
        yield Text("by state: " + ", ".join(spent))
    if costs.jobs:
        parts = [_share(job, usd) for job, usd in costs.jobs.items()]
        parts.append(f"none of them {cents_of_cents(costs.overhead_usd)}")
        yield Text("by job: " + ", ".join(parts))


def _why_nothing(costs: Spending) -> str:
    """Return why the runs have no bill, with the number of runs for each reason."""
    reasons = Counter(run.no_cost or usd(run.total_usd) for run in costs.runs)
    if not costs.no_cost or len(reasons) < 2:
        return costs.no_cost
    return ", ".join(f"{why} ({plural(many, 'run')})" for why, many in reasons.most_common())


def spending(console: Console, costs: Spending) -> Iterator[RenderableType]:
    """Return the costs of several days."""
    runs = plural(len(costs.runs), "run")
    total = _why_nothing(costs) or usd(costs.bill.total_usd)
    yield Text(f"{runs} since {costs.since:%Y-%m-%d}: {total}", style="bold")
    if costs.unknown_cost_runs:
        yield Text(f"{plural(costs.unknown_cost_runs, 'run')} with an unknown cost, no part of it")
    if costs.simulated_usd:
        amount = usd(costs.simulated_usd)
        yield Text(f"SIMULATED machines are {amount} of it: nothing was charged", style="bold red")
    if costs.stated_usd:
        yield Text(f"ingested runs state {usd(costs.stated_usd)}, which is no part of it")
    for use in costs.budgets:
        percent = f" ({use.warn_percent} % or more)" if use.warn_percent else ""
        yield Text(f"{use}{percent}", style="yellow" if use.warn_percent else "")
    if costs.providers:
        yield fitting(console, _PROVIDERS, [_provider(row) for row in costs.providers])
    if costs.runs:
        yield Text()
        yield fitting(console, _RUNS, [_run(row) for row in costs.runs])


def prices_table(console: Console, prices: Iterable[Price]) -> Table:
    """Return a table of every price in use."""
    return fitting(console, _PRICES, [_price(one) for one in prices])


def refreshed(found: Refreshed) -> list[str]:
    """Describe the result of refreshing prices."""
    lines = [f"{plural(len(found.kept), 'price')} read"]
    for uncertain in found.uncertain:
        one = uncertain.price
        named = " ".join(part for part in (one.provider, one.item, one.place, one.market) if part)
        lines.append(
            f"not used: {one_line(named)} {price(one.usd_per_hour)}: {one_line(uncertain.reason)}"
        )
    lines += [
        f"{one_line(name)} keeps its prices: {one_line(why)}" for name, why in found.unread.items()
    ]
    return lines


def _headline(costs: RunCost) -> str:
    limit = f" (limit {price(costs.max_usd)})" if costs.max_usd is not None else ""
    going = "" if costs.settled else ", so far"
    per = costs.usd_per_validated_test
    each = f"; {_tiny(per)} a validated test" if per is not None else ""
    total = usd(costs.bill.total_usd) if costs.bill else costs.no_cost
    return f"run {one_line(costs.run)}: {total}{limit}{going}{each}"


def _platform(row: CellCost) -> dict[str, Text]:
    rates = list(dict.fromkeys(price(m.price_usd_per_hour) for m in row.machines if is_priced(m)))
    markets = list(dict.fromkeys(m.market for m in row.machines if m.market))
    name = one_line(row.cell) + (" SIMULATED" if row.simulated else "")
    per = row.usd_per_validated_test
    return {
        "platform": Text(name, style="bold red" if row.simulated else "bold"),
        "market": Text(one_line(", ".join(markets)) or "–"),
        "price/h": Text(", ".join(rates) or "–"),
        "held": Text(duration(row.seconds) if row.seconds or row.bill else "–"),
        **_parts(row.bill),
        "per test": Text(_tiny(per) if per is not None else "–"),
    }


def _total(costs: RunCost) -> dict[str, Text]:
    per, held = costs.usd_per_validated_test, sum(row.seconds for row in costs.platforms)
    return {
        "platform": Text(_ALL, style="bold"),
        "market": Text(),
        "price/h": Text(),
        "held": Text(duration(held) if held or costs.bill else "–"),
        **_parts(costs.bill),
        "per test": Text(_tiny(per) if per is not None else "–"),
    }


def _parts(bill: Bill | None) -> dict[str, Text]:
    if bill is None:
        return dict.fromkeys(_PARTS, Text("–"))
    amounts = (bill.machine_usd, bill.disk_usd, bill.address_usd, bill.total_usd)
    return {n: Text(cents_of_cents(a)) for n, a in zip(_PARTS, amounts, strict=True)}


def _tiny(amount: Decimal) -> str:
    return f"${amount:.6f}" if amount else usd(amount)


def _share(name: str, amount: Decimal) -> str:
    return f"{one_line(name)} {cents_of_cents(amount)}"


def _provider(row: ProviderCost) -> dict[str, Text]:
    return {
        "provider": Text(one_line(row.provider), style="bold"),
        "machines": Text(str(row.machines)),
        "held": Text(duration(row.seconds)),
        **_parts(row.bill),
    }


def _run(row: RunTotal) -> dict[str, Text]:
    sign = sign_of(row.outcome, active=True)
    said = f"{sign.glyph} {word(row.outcome or 'running')}"
    return {
        "run": Text(one_line(row.run)),
        "launched (UTC)": Text(f"{row.created_at:%Y-%m-%d %H:%M}"),
        "matrix": Text(one_line(row.matrix)),
        "outcome": Text(said, style=sign.style),
        "total": Text("–" if row.total_usd is None else usd(row.total_usd)),
    }


def _price(one: Price) -> dict[str, Text]:
    return {
        "provider": Text(one_line(one.provider)),
        "item": Text(one_line(one.item)),
        "place": Text(one_line(one.place)),
        "market": Text(one_line(one.market)),
        "per hour": Text(price(one.usd_per_hour)),
        "as of": Text(f"{one.as_of:%Y-%m-%d}"),
        "source": Text(one_line(one.source)),
    }
