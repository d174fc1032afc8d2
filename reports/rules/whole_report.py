"""Rules about a whole report: consistency of its parts."""

from __future__ import annotations

from collections.abc import Iterator

from reports.format import ended
from reports.model.blocks import CommandTable
from reports.model.comparison import ComparedRow, Comparison
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport, SummaryRow, Total
from reports.model.values import Absent, Tally
from reports.rules.blocks import RuleFinding, differs, total_is
from reports.rules.metrics import compared_rule, throughput_rule
from reports.rules.money import platform_money_rule, summary_money_rule
from reports.rules.results import SEVERITY, run_outcome_rule


def platform_rules(report: PlatformReport) -> Iterator[RuleFinding]:
    """Check that lists match rows, and that the outcome is not better than a job's."""
    yield from _lists(report)
    yield from _outcome(report)
    yield from _timeline(report)
    yield from throughput_rule(report.metrics)
    yield from platform_money_rule(report)
    for table in (report.demos, report.use_cases, report.benchmarks):
        yield from _degraded(table)
    for notice in report.notices:
        if "falling back" in notice.message.lower() or "fallback" in notice.message.lower():
            yield "warning", "fallback", f"the agent saw a fallback in {notice.job or 'no job'}"


def _lists(report: PlatformReport) -> Iterator[RuleFinding]:
    listed = {problem.suite: problem.bad for problem in report.problems}
    skipped = {skips.suite: skips.skipped for skips in report.skips}
    for row in report.suites.rows:
        if isinstance(row.tally, Absent):
            continue
        runs = row.status.code in ("running", "queued")
        bad = row.tally.failed + row.tally.error if runs else row.tally.bad
        yield from differs("listed", f"{row.id}: listed", listed.get(row.id, 0), bad)
        said = skipped.get(row.id, 0)
        yield from differs("skips", f"{row.id}: skipped", said, row.tally.skipped)


def _outcome(report: PlatformReport) -> Iterator[RuleFinding]:
    tables = (report.demos, report.use_cases, report.benchmarks)
    commands = [(row.id, row.status.code) for table in tables for row in table.rows]
    jobs = [(row.id, row.status.code) for row in report.suites.rows] + commands
    code = report.status.code
    if code not in SEVERITY:
        return
    for job, said in jobs:
        if said in SEVERITY and SEVERITY.index(said) > SEVERITY.index(code):
            yield "error", "outcome", f"the cell {ended(code)}, and its job {job} {ended(said)}"
        elif said not in SEVERITY and code == "passed":
            yield "error", "outcome", f"the cell passed, and its job {job} {ended(said)}"


def _timeline(report: PlatformReport) -> Iterator[RuleFinding]:
    for before, after in zip(report.timeline, report.timeline[1:], strict=False):
        yield from differs("timeline", "a step comes from", after.origin, before.target)
        yield from differs("timeline", "a step lasts until", before.until, after.at)


def _degraded(table: CommandTable) -> Iterator[RuleFinding]:
    for row in table.rows:
        if row.status.degraded is not None and row.status.code == "passed":
            yield "warning", "degraded", f"{row.title} passed without running as it should have"


def summary_rules(report: SummaryReport) -> Iterator[RuleFinding]:
    """Check totals against the named cells, and the run's outcome against its worst cell."""
    for total in (report.total, report.accelerators):
        yield from _total(total, report.rows)
    for row in report.rows:
        inside = row.cell in report.accelerators.cells
        if inside and not row.hardware.is_accelerator_evidence:
            yield "error", "denominator", f"{row.cell} is counted, and no accelerator evidence"
    passed = len([row for row in report.rows if row.status.code == "passed"])
    yield from differs("total", "passed cells", report.passed_cells.part, passed)
    yield from differs("total", "cells", report.passed_cells.whole, len(report.rows))
    cells = [(row.status.code, row.optional) for row in report.rows]
    yield from run_outcome_rule(report.status.code, cells)
    yield from _distinct(report)
    yield from summary_money_rule(report)
    for comparison in report.comparisons:
        yield from _comparison(comparison, {row.cell: row for row in report.rows})


def _total(total: Total, rows: tuple[SummaryRow, ...]) -> Iterator[RuleFinding]:
    named = sorted([*total.cells, *(cell for cell, _ in total.outside)])
    cells = sorted(row.cell for row in rows)
    yield from differs("denominator", f"{total.name}: cells named", named, cells)
    inside: list[Tally | Absent] = [row.tally for row in rows if row.cell in total.cells]
    yield from total_is(total.tally, inside)


def _distinct(report: SummaryReport) -> Iterator[RuleFinding]:
    known = [(row.tally, row.unnamed) for row in report.rows]
    sizes = [t.collected - extra for t, extra in known if not isinstance(t, Absent)]
    if not max(sizes, default=0) <= report.distinct_tests <= sum(sizes):
        yield "error", "distinct", f"{report.distinct_tests} distinct tests of {sum(sizes)} results"


def _comparison(comparison: Comparison, cells: dict[str, SummaryRow]) -> Iterator[RuleFinding]:
    unknown = [row.cell for row in comparison.rows if row.cell not in cells]
    if unknown:
        yield "error", "comparison", f"cells that the report has no row of: {', '.join(unknown)}"
        return
    first = next(row for row in comparison.rows if row.cell == comparison.reference)
    for row in comparison.rows:
        yield from compared_rule(comparison, row, first)
        same = cells[row.cell].hardware.stack == cells[first.cell].hardware.stack
        yield from differs("comparison", f"{row.cell}: same stack", row.same_stack, same)
        yield from _is_measured(comparison, row, cells[row.cell])


def _is_measured(
    comparison: Comparison, row: ComparedRow, cell: SummaryRow
) -> Iterator[RuleFinding]:
    tables = [table for table in cell.metrics if table.job == comparison.job]
    measured = [
        (figure.median, figure.low, figure.high, figure.n, figure.spread)
        for table in tables
        for line in table.rows
        for column, figure in zip(table.columns, line.cells, strict=False)
        if figure is not None
        and (figure.name, column.unit) == (comparison.metric, comparison.unit)
        and line.params == comparison.params
    ]
    hidden = any(table.hidden for table in tables)
    said = (row.median, row.low, row.high, row.n, row.spread)
    if said not in measured and not hidden:
        message = f"{row.cell}: {comparison.metric} is {said}, which was not measured"
        yield "error", "comparison", message
