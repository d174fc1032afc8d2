"""Selects the plots of a report. They are drawn from the linted model alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from reports import format as fmt
from reports import metric_text
from reports.grouping import split_name, telling
from reports.model.backend import BackendReport
from reports.model.blocks import Plot
from reports.model.comparison import ComparedRow, CompareReport, Comparison
from reports.model.metrics import MetricLine, MetricTable
from reports.model.money import CostReport, Costs
from reports.model.platform import PlatformReport
from reports.model.results import ResultsReport
from reports.model.summary import SummaryReport
from reports.model.values import Absent, ReportModel, Tally
from reports.plots.bars import Segment, SpreadRow, StackedRow, StripRow, spreads, stacked, strips
from reports.plots.comparison import changes_plot, metrics_plot

ROWS_SHOWN = 24
"""Rows of one plot; the tables have all."""
_SAMPLES_FROM = 5
"""Fewer samples are no distribution."""
_OUTCOMES = (
    ("passed", "passed"), ("failed", "failed"), ("error", "error"), ("missing", "missing"),
    ("not_run", "missing"), ("skipped", "skipped"), ("xfailed", "other"), ("xpassed", "s3"),
)  # fmt: skip
"""(field of a tally, class of the style), the loud ones before the quiet ones."""


def plots_of(report: ReportModel) -> tuple[Plot, ...]:
    """Return a report's plots in order, each with a unique name."""
    drawn: dict[str, Plot] = {}
    for plot in _drawn(report):
        name = f"{report.kind}-{plot.name}"
        again = sum(known == name or known.startswith(f"{name}-n") for known in drawn)
        name = f"{name}-n{again + 1}" if again else name
        drawn[name] = replace(plot, name=name)
    return tuple(drawn.values())


def _drawn(report: ReportModel) -> Iterator[Plot]:
    if isinstance(report, SummaryReport):
        yield from _of_summary(report)
    elif isinstance(report, PlatformReport):
        yield from _of_platform(report)
    elif isinstance(report, ResultsReport):
        yield from _of_results(report)
    elif isinstance(report, BackendReport):
        yield from _of_backend(report)
    elif isinstance(report, CompareReport):
        yield from (plot for plot in (changes_plot(report), metrics_plot(report)) if plot)
    elif isinstance(report, CostReport):
        yield from _of_cost(report)


def _of_backend(report: BackendReport) -> Iterator[Plot]:
    known = [(p.label, p.tally) for p in report.platforms if not isinstance(p.tally, Absent)]
    if known:
        yield outcomes_plot(known)


def _of_cost(report: CostReport) -> Iterator[Plot]:
    paid = [(cell.cell, cell.money.costs) for cell in report.cells]
    known = [(cell, c) for cell, c in paid if not isinstance(c, Absent) and c.bill.total_usd]
    if known:
        yield cost_plot(known)


def _of_results(report: ResultsReport) -> Iterator[Plot]:
    """Yield plots of the distribution of figures in each platform's sweeps."""
    for sweep in (sweep for section in report.sections for sweep in section.sweeps):
        if not isinstance(sweep.table, Absent):
            yield from _distributions(
                replace(sweep.table, title=f"{sweep.heading}, {sweep.table.title}")
            )


def _of_summary(report: SummaryReport) -> Iterator[Plot]:
    tallies = [(row.cell, row.tally) for row in report.rows if not isinstance(row.tally, Absent)]
    if tallies:
        yield outcomes_plot(tallies)
    throughput = [c for c in report.comparisons if c.unit.endswith("/s")]
    if throughput:
        yield throughput_plot(throughput)
    costs = [(row.cell, row.money.costs) for row in report.rows]
    paid = [(cell, c) for cell, c in costs if not isinstance(c, Absent) and c.bill.total_usd]
    if paid:
        yield cost_plot(paid)


def _of_platform(report: PlatformReport) -> Iterator[Plot]:
    for table in report.metrics:
        yield from _distributions(table)
    costs = report.money.costs
    if not isinstance(costs, Absent) and costs.bill.total_usd:
        yield cost_plot([(report.cell, costs)])


def outcomes_plot(tallies: Sequence[tuple[str, Tally]]) -> Plot:
    """Return the plot of test outcomes by platform."""
    rows = [
        StackedRow(cell, tuple(_segments(tally)), f"{fmt.share(tally.rate)} {fmt.rate(tally.rate)}")
        for cell, tally in tallies[:ROWS_SHOWN]
    ]
    text = "; ".join(f"{row.label}: {row.value} of the judged tests passed" for row in rows)
    return stacked("outcomes", "Tests by outcome", text, rows, shared_scale=False)


def _segments(tally: Tally) -> Iterator[Segment]:
    for name, kind in _OUTCOMES:
        tests = getattr(tally, name)
        yield Segment(kind, fmt.test_outcome(name), tests, fmt.count(tests))


def throughput_plot(comparisons: Sequence[Comparison]) -> Plot:
    """Return the plot of throughput by platform, with the spread of samples."""
    cells = list(dict.fromkeys(row.cell for c in comparisons for row in c.rows))
    rows = [
        _spread(comparison, row, cells.index(row.cell))
        for comparison in comparisons
        for row in comparison.rows
    ][:ROWS_SHOWN]
    text = "; ".join(f"{row.group}, {row.label}: {row.printed}" for row in rows[:8])
    stacks = {row.stack for c in comparisons for row in c.rows}
    note = "Median; whiskers: the samples' spread, where there is more than one."
    if len(stacks) > 1:
        note += " The platforms' software differs too."
    return spreads("throughput", "Throughput by platform", text, rows, note=note)


def _spread(comparison: Comparison, row: ComparedRow, series: int) -> SpreadRow:
    params = [f"{key}={value}" for key, value in comparison.params[:3]]
    leaf = split_name(comparison.metric)[1]
    return SpreadRow(
        label=row.cell,
        group=", ".join([comparison.title, leaf, *params]),
        value=row.median,
        low=row.low,
        high=row.high,
        printed=f"{fmt.number(row.median)} {comparison.unit}",
        series=series,
    )


def _distributions(table: MetricTable) -> Iterator[Plot]:
    """Return a strip plot for each column of times with enough samples."""
    for index, column in enumerate(table.columns):
        if column.ratio or column.direction != "lower":
            continue
        rows = list(_strips(table, index))[:ROWS_SHOWN]
        if rows:
            title = f"{table.title}: {metric_text.heading(column)}"
            text = "; ".join(f"{row.label}: median {row.printed}" for row in rows[:8])
            name = f"samples-{_slug(table.job)}-{_slug(column.name)}"
            yield strips(name, title, text, rows, unit=column.unit)


def _strips(table: MetricTable, index: int) -> Iterator[StripRow]:
    for row in table.rows:
        cell = row.cells[index]
        if cell is None or cell.n < _SAMPLES_FROM or isinstance(cell.median, Absent):
            continue
        finite = tuple(sample for sample in cell.samples if math.isfinite(sample))
        text = f"{fmt.number(cell.median)} {table.columns[index].unit}".strip()
        yield StripRow(_label(table, row), finite, cell.median, text)


def _label(table: MetricTable, row: MetricLine) -> str:
    params = dict(row.params)
    keys = [key for key in telling([r.params for r in table.rows], table.keys) if key in params]
    named = [row.prefix] if table.named and row.prefix else []
    said = named + [f"{key}={params[key]}" for key in keys[: metric_text.KEYS_IN_A_LINE]]
    return ", ".join(said) or table.title


def cost_plot(costs: Sequence[tuple[str, Costs]]) -> Plot:
    """Return the plot of costs by cell and phase."""
    phases = list(dict.fromkeys(share.name for _, cost in costs for share in cost.phases))
    rows = [
        StackedRow(cell, tuple(_phases(cost, phases)), fmt.usd(cost.bill.total_usd))
        for cell, cost in costs[:ROWS_SHOWN]
    ]
    text = "; ".join(f"{row.label}: {row.value}" for row in rows)
    return stacked("cost-by-phase", "Cost by phase", text, rows, shared_scale=True)


def _phases(cost: Costs, order: Sequence[str]) -> Iterable[Segment]:
    by_name = {share.name: share.usd for share in cost.phases}
    for number, name in enumerate(order):
        usd = by_name.get(name, Decimal(0))
        yield Segment(f"s{number % 6}", fmt.test_outcome(name), float(usd), fmt.usd(usd))


def _slug(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")[:60]
