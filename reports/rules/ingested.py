"""Rules about ingested results, and about failures grouped by signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, ended_mark, flaky_mark
from reports.model.blocks import CommandRow, FileRow, Hardware, SuiteRow
from reports.model.comparison import ComparedRow, CompareReport, Comparison
from reports.model.metrics import MetricTable
from reports.model.origin import Catalogued, Origin
from reports.model.platform import PlatformReport
from reports.model.results import FailureGroupRow, FailureTable
from reports.model.summary import SummaryReport, SummaryRow
from reports.model.values import Absent, ReportModel, Status, Tally
from reports.rules.blocks import ARCHITECTURE_OF, OUTCOMES, RuleFinding, close, differs
from reports.rules.metrics import compared_rule


def recorded_rule(report: ReportModel, evidence: Evidence) -> Iterator[RuleFinding]:
    """Look everything up that no other figure of the report would betray."""
    cells = {cell.id: cell for cell in evidence.record.cells}
    yield from _footer(report, evidence)
    if isinstance(report, PlatformReport) and report.cell in cells:
        yield from _platform(report, cells[report.cell])
    elif isinstance(report, SummaryReport):
        told = sorted(row.cell for row in report.rows)
        yield from differs("recorded", "cells", told, sorted(cells))
        for row in report.rows:
            yield from _row(row, cells[row.cell]) if row.cell in cells else ()


def _footer(report: ReportModel, evidence: Evidence) -> Iterator[RuleFinding]:
    """Check that the digest is of the evidence that the report was checked against."""
    said = report.footer.evidence_sha256
    known = {cell.id: _brought(cell) for cell in evidence.record.cells}
    if isinstance(report, PlatformReport):
        found = known.get(report.cell, "")
    else:
        if evidence.base is not None and isinstance(report, CompareReport):
            base = evidence.base.record.cells
            known |= {f"base {cell.id}": _brought(cell) for cell in base}
        listed = sorted((f"{name} {digest or '-'}\n".encode()) for name, digest in known.items())
        found = sha256(b"".join(listed)).hexdigest() if any(known.values()) else ""
    told = "" if isinstance(said, Absent) else said
    yield from differs("evidence", "the sha256 of the evidence", told, found)
    wheel = report.footer.wheel_sha256
    told = "" if isinstance(wheel, Absent) else wheel
    yield from differs("evidence", "the subject's wheel", told, evidence.record.subject.wheel)


def _brought(cell: CellRecord) -> str:
    came = {artifact.name: artifact.digest for artifact in cell.artifacts}
    return came.get("events.jsonl") or (cell.ingested.fingerprint if cell.ingested else "")


def _platform(report: PlatformReport, cell: CellRecord) -> Iterator[RuleFinding]:
    rows: list[SuiteRow | CommandRow] = [*report.suites.rows]
    for table in (report.demos, report.use_cases, report.benchmarks):
        rows += table.rows
    told = sorted(row.id for row in rows)
    yield from differs("recorded", "jobs", told, sorted(job.id for job in cell.jobs))
    jobs = {job.id: job for job in cell.jobs}
    for row in rows:
        if row.id in jobs:
            yield from _job(row, jobs[row.id])
    yield from _status("the cell", report.status, cell)
    yield from differs("simulated", cell.id, report.provenance.simulated, cell.simulated)
    yield from _hardware(report.hardware, cell.probed)
    yield from _files(report.files, cell)


def _job(row: SuiteRow | CommandRow, job: JobRecord) -> Iterator[RuleFinding]:
    yield from _status(row.id, row.status, job)
    if job.outcome is not None:
        yield from differs("degraded", f"{row.id}: the mark", row.status.degraded, job.degraded)
    yield from _duration(row, job.duration_s)
    if isinstance(row, SuiteRow):
        yield from _tally(row.id, row.tally, job.counts)
    elif not isinstance(row.checks, Absent):
        for name in ("passed", "failed", "skipped"):
            found = len([check for check in job.checks if check.outcome == name])
            yield from differs("recorded", f"{row.id}: {name}", getattr(row.checks, name), found)


def _duration(row: SuiteRow | CommandRow, figure: float | None) -> Iterator[RuleFinding]:
    said = row.duration_s
    if not isinstance(said, Absent) and figure is not None and not close(said, figure):
        yield "error", "recorded", f"{row.id} took {said} s, recorded {figure} s"


def _status(what: str, status: Status, job_record: CellRecord | JobRecord) -> Iterator[RuleFinding]:
    if job_record.outcome is not None:
        yield from differs(
            "recorded", f"{what}: the outcome", status.code, job_record.outcome.value
        )
        mark = job_record.counts.nothing_passed
        yield from differs("recorded", f"{what}: that no test passed", status.nothing_passed, mark)
        ended = ended_mark(job_record)
        yield from differs("recorded", f"{what}: what ended it", status.ended_by, ended)
        yield from differs("recorded", f"{what}: flaky", status.flaky, flaky_mark(job_record))


def _tally(what: str, tally: Tally | Absent, counts: Counts) -> Iterator[RuleFinding]:
    if isinstance(tally, Absent):
        finished = counts.collected - counts.missing - counts.not_run
        yield from differs("recorded", f"{what}: tests behind no tally", 0, finished)
        return
    for name in OUTCOMES:
        said, found = getattr(tally, name), getattr(counts, name)
        yield from differs("recorded", f"{what}: {name}", said, found)


def _hardware(hardware: Hardware, probed: Mapping[str, object]) -> Iterator[RuleFinding]:
    for name in ("torch", "python"):
        said, found = getattr(hardware, name), probed.get(name)
        if not isinstance(said, Absent) and isinstance(found, str):
            yield from differs("recorded", name, said, found)


def _files(files: Sequence[FileRow], cell: CellRecord) -> Iterator[RuleFinding]:
    known = {artifact.name: artifact for artifact in cell.artifacts}
    for file in files:
        artifact = known.get(file.name)
        if artifact is None:
            yield "error", "recorded", f"{file.name} is listed, and did not come home"
            continue
        size = artifact.size_bytes
        yield from differs("recorded", f"bytes of {file.name}", file.size_bytes, size)
        yield from differs("recorded", f"sha256 of {file.name}", file.sha256, artifact.digest)


def _row(row: SummaryRow, cell: CellRecord) -> Iterator[RuleFinding]:
    yield from _status(row.cell, row.status, cell)
    yield from differs("simulated", row.cell, row.provenance.simulated, cell.simulated)
    yield from _tally(row.cell, row.tally, cell.counts)
    told = sorted(why for _, why in row.degraded)
    found = sorted(job.degraded for job in cell.jobs if job.degraded is not None)
    yield from differs("degraded", f"{row.cell}: degraded jobs", told, found)
    yield from _hardware(row.hardware, cell.probed)


BAD = ("failed", "error")


def origin_rule(part: Origin) -> Iterator[RuleFinding]:
    """Check that listed and hidden files add up to the total, and so do the files of each kind."""
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


def catalogued_rule(part: Catalogued) -> Iterator[RuleFinding]:
    """Check that the architecture matches the compute capability."""
    if isinstance(part.compute_capability, Absent) or isinstance(part.architecture, Absent):
        return
    found = ARCHITECTURE_OF.get(part.compute_capability)
    yield from differs("architecture", "the catalogue's architecture", part.architecture, found)


def failure_group_rule(part: FailureGroupRow) -> Iterator[RuleFinding]:
    """Check that each test has a result in one of the cells, and at most one in each."""
    tests = len(part.tests) + part.hidden
    if part.hidden < 0 or len(set(part.tests)) < len(part.tests):
        yield "error", "failure_groups", f"{part.id} names a test twice"
    if not 0 < tests <= part.count <= tests * len(part.cells):
        told = f"{part.count} results of {tests} tests on {len(part.cells)} cells"
        yield "error", "failure_groups", f"{part.id} has {told}"


def failures_rule(part: FailureTable) -> Iterator[RuleFinding]:
    """Check that the failure groups add up to the failing results."""
    found = sum(row.count for row in part.rows) + part.hidden
    yield from differs("failure_groups", "failing results", part.failing, found)
    if part.hidden < 0 or part.signatures < len(part.rows):
        yield "error", "failure_groups", "more is listed than there is"
    elif not part.hidden:
        yield from differs("failure_groups", "signatures", part.signatures, len(part.rows))


def platform_origin_rule(report: PlatformReport) -> Iterator[RuleFinding]:
    """Check that failures do not exceed the suites', and recompute comparisons."""
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


def summary_origin_rule(report: SummaryReport) -> Iterator[RuleFinding]:
    """Check that failure groups and unnamed tests are no more than the tests of the cells."""
    if report.failures is not None and not isinstance(report.total.tally, Absent):
        bad = report.total.tally.failed + report.total.tally.error
        if report.failures.failing > bad:
            yield "error", "failure_groups", f"{report.failures.failing} results fail, of {bad}"
    for row in report.rows:
        if not isinstance(row.tally, Absent) and not 0 <= row.unnamed <= row.tally.collected:
            yield "error", "unnamed", f"{row.unnamed} of {row.tally.collected} have no name"


def _compared(
    comparison: Comparison, row: ComparedRow, first: ComparedRow
) -> Iterator[RuleFinding]:
    yield from compared_rule(comparison, row, first)
    same = row.stack == first.stack
    yield from differs("comparison", f"{row.cell}: same stack", row.same_stack, same)


def _measured(
    comparison: Comparison, rows: Sequence[ComparedRow], tables: Sequence[MetricTable]
) -> Iterator[RuleFinding]:
    mine = [table for table in tables if table.job == comparison.job]
    cells = [cell for table in mine for line in table.rows for cell in line.cells]
    known = {(c.name, c.median, c.low, c.high, c.n, c.spread) for c in cells if c is not None}
    for row in rows:
        said = (comparison.metric, row.median, row.low, row.high, row.n, row.spread)
        if said not in known and not any(table.hidden for table in mine):
            yield "error", "comparison", f"{comparison.metric} is {said}, which was not measured"


def slower_rule(tables: Sequence[MetricTable]) -> Iterator[RuleFinding]:
    """Yield findings on speed-ups over a baseline that are slowdowns: ratios below 1."""
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


def origin_evidence(
    report: PlatformReport | SummaryReport, evidence: Evidence
) -> Iterator[RuleFinding]:
    """Check that the origin of ingested evidence is as stored."""
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


def _as_stored(origin: Origin | None, cell: CellRecord) -> Iterator[RuleFinding]:
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


INGESTED_PARTS: dict[type, Callable[[Any], Iterator[RuleFinding]]] = {
    Origin: origin_rule,
    Catalogued: catalogued_rule,
    FailureGroupRow: failure_group_rule,
    FailureTable: failures_rule,
}
"""By the type of the part."""
