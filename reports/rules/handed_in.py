"""Rules about what was handed in, and about failures that were gathered by signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchestrator.domain.ingested import SourceState
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.model.compared import ComparedRow, Comparison
from reports.model.failures import FailureGroupRow, FailureTable
from reports.model.metrics import MetricTable
from reports.model.origin import Catalogued, Origin
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport
from reports.model.values import Absent
from reports.rules.blocks import ARCHITECTURE_OF, Said, close, differs

BAD = ("failed", "error")


def origin_rule(part: Origin) -> Iterator[Said]:
    """Files are listed or counted, and come to their kinds."""
    yield from differs("files", "files", part.files, len(part.sources) + part.hidden)
    yield from differs("files", "files by kind", sum(n for _, n in part.kinds), part.files)
    if min(part.hidden, part.repeated, part.disputed_hidden) < 0:
        yield "error", "files", "a number of files or tests is negative"
    stamps = {(source.name, stamp) for source in part.sources for stamp in source.stamps}
    if not part.hidden and not set(part.stamps) <= stamps:
        yield "error", "files", "a stamp is told of that no file bears"
    for source in part.sources:
        said = {n for n in (source.named, source.announced, source.summed) if isinstance(n, int)}
        if source.state == "read" and source.provenance != "transcribed" and len(said) > 1:
            yield "warning", "files", f"{source.name} has {sorted(said)} tests by its own words"


def catalogued_rule(part: Catalogued) -> Iterator[Said]:
    """The architecture belongs to the compute capability."""
    if isinstance(part.compute_capability, Absent) or isinstance(part.architecture, Absent):
        return
    found = ARCHITECTURE_OF.get(part.compute_capability)
    yield from differs("architecture", "the catalogue's architecture", part.architecture, found)


def failure_group_rule(part: FailureGroupRow) -> Iterator[Said]:
    """Results are named or counted."""
    yield from differs(
        "failure_groups", f"results of {part.id}", part.count, len(part.tests) + part.hidden
    )
    if part.hidden < 0 or not part.count:
        yield "error", "failure_groups", f"{part.id} names more tests than it counts"


def failures_rule(part: FailureTable) -> Iterator[Said]:
    """The failure groups come to the failing results."""
    found = sum(row.count for row in part.rows) + part.hidden
    yield from differs("failure_groups", "failing results", part.failing, found)
    if part.hidden < 0 or part.signatures < len(part.rows):
        yield "error", "failure_groups", "more is listed than there is"
    elif not part.hidden:
        yield from differs("failure_groups", "signatures", part.signatures, len(part.rows))


def told_of_platform(report: PlatformReport) -> Iterator[Said]:
    """Failures are no more than the suites', and comparisons are recomputed."""
    total = report.suites.total
    if report.failures is not None and not isinstance(total, Absent):
        bad = total.failed + total.error
        if report.failures.failing > bad:
            yield "error", "failure_groups", f"{report.failures.failing} results fail, of {bad}"
    for comparison in report.comparisons:
        first = next(row for row in comparison.rows if row.cell == comparison.reference)
        for row in comparison.rows:
            yield from _compared(comparison, row, first)
        mine = [row for row in comparison.rows if row.cell == report.cell]
        yield from _measured(comparison, mine, report.metrics)
    if report.origin is not None:
        yield from slower_rule(report.metrics)


def told_of_summary(report: SummaryReport) -> Iterator[Said]:
    """Failures are no more than the cells'."""
    if report.failures is not None and not isinstance(report.total.tally, Absent):
        bad = report.total.tally.failed + report.total.tally.error
        if report.failures.failing > bad:
            yield "error", "failure_groups", f"{report.failures.failing} results fail, of {bad}"
    for row in report.rows:
        if not isinstance(row.tally, Absent) and not 0 <= row.unnamed <= row.tally.collected:
            yield "error", "unnamed", f"{row.unnamed} of {row.tally.collected} have no name"


def _compared(comparison: Comparison, row: ComparedRow, first: ComparedRow) -> Iterator[Said]:
    if not isinstance(row.relative, Absent):
        a, b = row.median, first.median
        found = a / b if comparison.direction == "higher" else b / a
        if not close(row.relative, found):
            message = f"{row.cell}: {comparison.metric} is {row.relative}x, recomputed {found}x"
            yield "error", "comparison", message
    overlaps = max(row.low, first.low) <= min(row.high, first.high)
    yield from differs("comparison", f"{row.cell}: overlap", row.overlaps, overlaps)
    same = row.stack == first.stack
    yield from differs("comparison", f"{row.cell}: same stack", row.same_stack, same)


def _measured(
    comparison: Comparison, rows: Sequence[ComparedRow], tables: Sequence[MetricTable]
) -> Iterator[Said]:
    mine = [table for table in tables if table.job == comparison.job]
    cells = [cell for table in mine for line in table.rows for cell in line.cells]
    known = {(c.name, c.median, c.low, c.high, c.n, c.spread) for c in cells if c is not None}
    for row in rows:
        said = (comparison.metric, row.median, row.low, row.high, row.n, row.spread)
        if said not in known and not any(table.hidden for table in mine):
            yield "error", "comparison", f"{comparison.metric} is {said}, which was not measured"


def slower_rule(tables: Sequence[MetricTable]) -> Iterator[Said]:
    """What is called a speed-up and is none."""
    for table in tables:
        for index, column in enumerate(table.columns):
            if not isinstance(column.baseline, str) or column.direction != "higher":
                continue
            cells = [row.cells[index] for row in table.rows]
            every = [c.median for c in cells if c is not None and not isinstance(c.median, Absent)]
            below = [value for value in every if value < 1]
            if column.ratio and below:
                rows = f"{len(below)} of {len(every)} rows"
                low, high = f"{min(below):.4g}x", f"{max(below):.4g}x"
                between = low if low == high else f"{low} to {high}"
                yield (
                    "warning",
                    "slower",
                    (
                        f"{column.name} of {table.title} is {between} in {rows}: "
                        f"worse than {column.baseline}, which it is set against"
                    ),
                )


def told_evidence(report: PlatformReport | SummaryReport, evidence: Evidence) -> Iterator[Said]:
    """What was handed in is told of as it is stored."""
    pairs = [(report.cell, report.origin)] if isinstance(report, PlatformReport) else []
    if isinstance(report, SummaryReport):
        pairs = [(row.cell, row.origin) for row in report.rows]
        for row in report.rows:
            cell = evidence.record.cell(row.cell)
            found = sum(job.unnamed.collected for job in cell.jobs) if cell is not None else 0
            yield from differs("unnamed", f"{row.cell}: without a name", row.unnamed, found)
    for name, origin in pairs:
        cell = evidence.record.cell(name)
        if cell is not None:
            yield from _as_stored(origin, cell)
    if report.failures is not None:
        cells = [report.cell] if isinstance(report, PlatformReport) else list(evidence.tests)
        tests = [test for name in cells for test in evidence.tests.get(name, ())]
        found = sum(test.final and test.outcome.word in BAD for test in tests)
        yield from differs("failure_groups", "failing results", report.failures.failing, found)


def _as_stored(origin: Origin | None, cell: CellRecord) -> Iterator[Said]:
    stored = cell.ingested
    if origin is None or stored is None:
        yield from differs("files", f"{cell.id}: handed in", origin is None, stored is None)
        return
    yield from differs("files", f"{cell.id}: files", origin.files, len(stored.sources))
    loud = sum(source.state is SourceState.INCONSISTENT for source in stored.sources)
    yield from differs("files", f"{cell.id}: inconsistent", len(origin.inconsistent), loud)
    disputed = len(origin.disputed) + origin.disputed_hidden
    yield from differs("files", f"{cell.id}: disputed", disputed, len(stored.disagreements))
    yield from differs("files", f"{cell.id}: repeated", origin.repeated, stored.repeated)
    said = [(s.name, s.named, s.announced, s.summed, s.size_bytes) for s in stored.sources]
    for s in origin.sources:
        told = [None if isinstance(n, Absent) else n for n in (s.named, s.announced, s.summed)]
        if (s.name, *told, s.size_bytes) not in said:
            yield "error", "files", f"{cell.id}: {s.name} is not told of as it is stored"


TOLD_PARTS: dict[type, Callable[[Any], Iterator[Said]]] = {
    Origin: origin_rule,
    Catalogued: catalogued_rule,
    FailureGroupRow: failure_group_rule,
    FailureTable: failures_rule,
}
"""By the type of the part."""
