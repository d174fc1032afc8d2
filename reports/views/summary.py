"""The summary report, every cell of a run and what may be added up; the comment, a run in short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.domain import catalogue
from orchestrator.domain.cell import RunState
from orchestrator.domain.event_facts import MetricFact, TestFact
from orchestrator.domain.known_issue import FailingResult, states_by_result
from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.quarantine import active_ids
from orchestrator.domain.run_record import CellRecord, Evidence, RunRecord
from orchestrator.domain.unexplained_failures import CellFailure, cell_failures
from reports.format import moment, status, version
from reports.model.blocks import Hardware
from reports.model.summary import (
    CommentCell,
    CommentReport,
    FailingEntry,
    SummaryReport,
    SummaryRow,
    Total,
)
from reports.model.values import Absent, Claim, Rate
from reports.rules.authored import authored_of
from reports.views.benchmarks import compare, metrics_of, paired_of
from reports.views.cell_timeline import commands_of, footer_of, run_digest
from reports.views.claims import counted_tests_claim, degraded_claim, run_claim
from reports.views.failures import blame_of, failures_of, issues_of, quarantined_of
from reports.views.machine import (
    accelerator_of,
    cell_status,
    hardware_of,
    heading_of,
    instance_of,
    job_status,
    place_of,
    run_status,
    short_name,
)
from reports.views.money import money_of, total_costs
from reports.views.origin import (
    SIMULATED,
    catalogued_of,
    elsewhere_of,
    origin_of,
    provenance_of,
    reuse_of,
    run_date,
)
from reports.views.suites import rate, skips_of, slowest_of, suites_of, sum_tallies

TEMPLATE = "summary 2"


def summary_view(evidence: Evidence, _cell_id: str = "") -> SummaryReport:
    """Return the report of a whole run."""
    record = evidence.record
    run, counts = record.run, record.counts
    authored = authored_of(evidence)
    rows = tuple(_rows(evidence, authored))
    everything = total_of("all platforms", rows, [])
    accelerators = total_of("accelerators only", rows, _not_accelerators(rows))
    passed = _passed_cells(rows)
    comparisons, hidden = compare(measured(rows, record.cells))
    return SummaryReport(
        kind="summary",
        title=_title(record),
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=_conclusion(record, rows, (everything, accelerators), passed),
        footer=footer_of(record, run_digest(record), TEMPLATE),
        matrix=run.matrix_name,
        date=run_date(record),
        finished_at=run.finished_at or Absent("the run is not finished"),
        status=run_status(record),
        rows=rows,
        total=everything,
        accelerators=accelerators,
        concerns_accelerators=concerns_accelerators(record.cells, rows),
        distinct_tests=len({(t.job, t.nodeid) for tests in evidence.tests.values() for t in tests}),
        passed_cells=passed,
        comparisons=comparisons,
        comparisons_hidden=hidden,
        costs=total_costs(
            (row.money.costs for row in rows), validated=counts.passed + counts.failed
        ),
        authored=authored,
        failures=failures_of(evidence),
        issues=issues_of(record),
        quarantined=quarantined_of(record),
        blame=blame_of(record),
        pruned=tuple(part.of(run.id) for part in record.pruned),
    )


def _rows(evidence: Evidence, authored: Sequence[CheckedAnnotation]) -> Iterator[SummaryRow]:
    """Yield the row of each cell, with what its tests tell beside their counts."""
    for cell in evidence.record.cells:
        tests = evidence.tests.get(cell.id, ())
        row = cell_row(cell, evidence.record, authored)
        yield replace(row, skips=skips_of(cell, tests), slowest=slowest_of(tests))


def _passed_cells(rows: Sequence[SummaryRow]) -> Rate:
    passed = sum(row.status.code == "passed" for row in rows)
    return rate(passed, len(rows), nothing="the run has no cell")


def concerns_accelerators(cells: Sequence[CellRecord], rows: Sequence[SummaryRow]) -> bool:
    """Return whether any cell was promised an accelerator, or has one."""
    return any(
        concerns_accelerator(cell, row.hardware) for cell, row in zip(cells, rows, strict=True)
    )


def concerns_accelerator(cell: CellRecord, hardware: Hardware) -> bool:
    """Return whether a cell was promised an accelerator, by matrix or by its id, or has one."""
    platform = cell.platform
    return bool(
        platform.accelerator
        or platform.accelerator_type
        or (platform.expect and platform.expect.accelerator)
        or catalogued_of(cell) is not None
        or catalogue.promised(platform.id).device
        or hardware.devices
        or hardware.is_accelerator_evidence
    )


def measured(
    rows: Sequence[SummaryRow], cells: Sequence[CellRecord]
) -> list[tuple[SummaryRow, list[MetricFact]]]:
    """Return each row with the measurements of its cell."""
    return [
        (row, [metric for job in cell.jobs for metric in job.metrics])
        for row, cell in zip(rows, cells, strict=True)
    ]


def _title(record: RunRecord) -> str:
    run = record.run
    said = f"{run.subject_name} {version(run.subject_version)} Validation Summary"
    simulated = sum(cell.simulated for cell in record.cells)
    if not simulated:
        return said
    which = "" if simulated == len(record.cells) else f"{simulated} of {len(record.cells)} cells "
    return f"{said} ({which}{SIMULATED})"


def cell_row(
    cell: CellRecord, record: RunRecord, authored: Sequence[CheckedAnnotation] = ()
) -> SummaryRow:
    """Return the summary row of one cell of a run."""
    subject, version_ = record.run.subject_name, record.run.subject_version
    hardware = hardware_of(cell, subject=subject)
    jobs = [(job.title or job.id, job, job_status(job, cell)) for job in cell.jobs]
    return SummaryRow(
        cell=cell.id,
        heading=heading_of(cell, hardware),
        platform=short_name(cell),
        place=place_of(cell),
        instance=instance_of(cell, hardware),
        accelerator=accelerator_of(cell, hardware),
        hardware=hardware,
        status=cell_status(cell),
        detail=cell.detail,
        optional=cell.platform.optional,
        tally=suites_of(cell).total,
        demos=commands_of(cell, "demo").checks,
        use_cases=commands_of(cell, "use-case").checks,
        degraded=tuple((title, job.degraded) for title, job, _ in jobs if job.degraded is not None),
        not_passed=tuple((title, said) for title, _, said in jobs if said.code != "passed"),
        metrics=metrics_of(cell),
        paired=paired_of(cell),
        money=money_of(cell),
        provenance=provenance_of(cell),
        files=tuple(sorted(artifact.name for artifact in cell.artifacts)),
        origin=origin_of(cell, subject=subject, version=version_),
        elsewhere=elsewhere_of(record, cell),
        unnamed=sum(job.unnamed.collected for job in cell.jobs),
        notes=tuple(a for a in authored if a.cell == cell.id and a.kind == "note"),
        reuse=reuse_of(cell),
    )


def _not_accelerators(rows: Sequence[SummaryRow]) -> list[tuple[str, str]]:
    return [
        (row.cell, row.hardware.why) for row in rows if not row.hardware.is_accelerator_evidence
    ]


def total_of(name: str, rows: Sequence[SummaryRow], outside: Sequence[tuple[str, str]]) -> Total:
    """Return the sum over the cells with a tally, and the names of the others."""
    excluded = dict(outside)
    for row in rows:
        if isinstance(row.tally, Absent) and row.cell not in excluded:
            excluded[row.cell] = f"{status(row.status)}; {row.tally.reason}"
    inside = [row for row in rows if row.cell not in excluded]
    tally = sum_tallies((row.tally for row in inside), nothing="no cell has such results")
    return Total(
        name=name,
        cells=tuple(row.cell for row in inside),
        outside=tuple((row.cell, excluded[row.cell]) for row in rows if row.cell in excluded),
        tally=tally,
    )


def unfinished_run(record: RunRecord) -> str | None:
    """Return why the figures may still change; None if they are final."""
    if record.run.state is RunState.FINISHED:
        return None
    done = sum(cell.state.value == "done" for cell in record.cells)
    cells = len(record.cells)
    return f"as of {moment(record.as_of)} {done} of {cells} cells are done; figures may change"


def _conclusion(
    record: RunRecord, rows: Sequence[SummaryRow], totals: tuple[Total, Total], passed: Rate
) -> tuple[Claim, ...]:
    """Return the claims; none about accelerators where the run concerns none."""
    everything, accelerators = totals
    claims = [counted_tests_claim("total", everything.tally, over=" on the platforms together")]
    if concerns_accelerators(record.cells, rows):
        claims.append(
            counted_tests_claim("accelerators", accelerators.tally, over=" on accelerators")
        )
    degraded = [pair for row in rows for pair in row.degraded]
    return (*claims, *degraded_claim(degraded), run_claim(run_status(record), passed))


COMMENT_TEMPLATE = "comment 1"
FAILING_SHOWN = 10
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)


def comment_view(evidence: Evidence, _cell: str) -> CommentReport:
    """Return the model of the comment report."""
    record = evidence.record
    entries = list(_entries(evidence))
    passed = sum(cell_status(cell).code == "passed" for cell in record.cells)
    share = rate(passed, len(record.cells), nothing="the run has no cell")
    run = record.run
    return CommentReport(
        kind="comment",
        title=f"{run.subject_name} {version(run.subject_version)}",
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=(run_claim(run_status(record), share),),
        footer=footer_of(record, run_digest(record), COMMENT_TEMPLATE),
        matrix=run.matrix_name,
        status=run_status(record),
        cells=tuple(
            CommentCell(
                cell.id, cell_status(cell), cell.detail, suites_of(cell).total, cell.simulated
            )
            for cell in record.cells
        ),
        failing=tuple(entries[:FAILING_SHOWN]),
        failing_hidden=max(len(entries) - FAILING_SHOWN, 0),
    )


def _entries(evidence: Evidence) -> Iterator[FailingEntry]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for cell in evidence.record.cells:
        for failure in cell_failures(cell, _failing(evidence.tests.get(cell.id, ()))):
            found.setdefault((failure.job, failure.error), []).append((failure.test, cell.id))
    held = active_ids(evidence.record.quarantined)
    matched = states_by_result(evidence.record.known_issues)
    for (job, said), places in found.items():
        tests, cells = (tuple(dict.fromkeys(names)) for names in zip(*places, strict=True))
        named = tuple(test for test in tests if test)
        by = [held[cell, job, test] for test, cell in places if (cell, job, test) in held]
        known = [matched.get(FailingResult(cell, job, test), {}) for test, cell in places]
        issues = {f"{issue} ({state})" for one in known for issue, state in one.items()}
        yield FailingEntry(
            job=job,
            tests=named,
            description=said,
            cells=cells,
            results=len(places),
            quarantines=tuple(sorted(set(by))),
            quarantined=len(by),
            known_issues=tuple(sorted(issues)),
            known=sum(1 for one in known if one),
        )


def _failing(tests: Iterable[TestFact]) -> Iterator[CellFailure]:
    for test in tests:
        if test.final and test.outcome in _BAD:
            yield CellFailure(test.job, test.nodeid, test.outcome.word, test.message or test.reason)
