"""The platform report: one cell, from its evidence."""

from __future__ import annotations

from typing import Any

from orchestrator.domain.cell import CellState
from orchestrator.domain.run_record import CellRecord, Evidence, RunRecord
from reports.format import moment, version
from reports.model.blocks import Hardware
from reports.model.comparison import Comparison
from reports.model.platform import PlatformReport
from reports.model.values import Absent, Claim
from reports.rules.authored import authored_of
from reports.views.benchmarks import compare, metrics_of, paired_of
from reports.views.cell_timeline import (
    attempts_of,
    commands_of,
    evidence_digest,
    files_of,
    footer_of,
    notices_of,
    timeline_of,
)
from reports.views.claims import (
    commands_claims,
    degraded_claim,
    hardware_claim,
    outcome_claim,
    suites_claim,
)
from reports.views.failures import blame_of, failures_of, issues_of, quarantined_of
from reports.views.machine import (
    cell_status,
    hardware_of,
    heading_of,
    instance_of,
    long_name,
    place_of,
)
from reports.views.money import money_of
from reports.views.origin import (
    SIMULATED,
    catalogued_of,
    date_of,
    elsewhere_of,
    origin_of,
    provenance_of,
    reuse_of,
)
from reports.views.suites import problems_of, skips_of, suites_of
from reports.views.summary import cell_row, concerns_accelerator, measured

TEMPLATE = "platform 2"


def platform_view(evidence: Evidence, cell_id: str) -> PlatformReport:
    """Return the report of one cell. Raises LookupError if the run has no such cell."""
    record = evidence.record
    cell = record.cell(cell_id)
    if cell is None:
        raise LookupError(cell_id)
    return _report(evidence, cell)


def _report(evidence: Evidence, cell: CellRecord) -> PlatformReport:
    record, run = evidence.record, evidence.record.run
    tests = evidence.tests.get(cell.id, ())
    hardware = hardware_of(cell, subject=run.subject_name)
    notices, hidden = notices_of(cell)
    said = f"{heading_of(cell, hardware)} Validation Report"
    return PlatformReport(
        kind="platform",
        title=f"{said} - {run.subject_name} {version(run.subject_version)}{_mark(cell)}",
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_cell(record, cell),
        conclusion=_conclusion(cell, hardware),
        footer=footer_of(record, evidence_digest(cell), TEMPLATE),
        cell=cell.id,
        platform=long_name(cell),
        place=place_of(cell),
        instance=instance_of(cell, hardware),
        environment=cell.environment,
        date=date_of(cell.ingested, run.created_at),
        finished_at=run.finished_at or Absent("the run is not finished"),
        status=cell_status(cell),
        detail=cell.detail,
        attempts=attempts_of(cell),
        suites=suites_of(cell),
        problems=problems_of(cell, tests),
        skips=skips_of(cell, tests),
        demos=commands_of(cell, "demo"),
        use_cases=commands_of(cell, "use-case"),
        benchmarks=commands_of(cell, "benchmark"),
        metrics=metrics_of(cell),
        hardware=hardware,
        provenance=provenance_of(cell),
        timeline=timeline_of(cell, as_of=record.as_of),
        money=money_of(cell),
        notices=notices,
        notices_hidden=hidden,
        files=files_of(cell),
        **_arguments(evidence, cell, hardware),
    )


def _arguments(evidence: Evidence, cell: CellRecord, hardware: Hardware) -> dict[str, Any]:
    """Return the report's parts about pairs, origin, annotations and comparisons."""
    record, run = evidence.record, evidence.record.run
    failures = failures_of(evidence, cell.id)
    found = {name for row in failures.rows for name in row.known_issues} if failures else set()
    return {
        "paired": paired_of(cell),
        "concerns_accelerator": _concerns(cell, hardware),
        "origin": origin_of(cell, subject=run.subject_name, version=run.subject_version),
        "catalogued": catalogued_of(cell),
        "comparisons": comparison_tables_of(record, cell),
        "elsewhere": elsewhere_of(record, cell),
        "authored": authored_of(evidence, cell.id),
        "failures": failures,
        "issues": issues_of(record, found),
        "quarantined": quarantined_of(record, cell.id),
        "blame": blame_of(record, cell.id),
        "reuse": reuse_of(cell),
    }


def comparison_tables_of(record: RunRecord, cell: CellRecord) -> tuple[Comparison, ...]:
    """Return tables of this cell's metrics against the other cells of its run."""
    if len(record.cells) < 2 or not any(job.metrics for job in cell.jobs):
        return ()
    rows = [cell_row(one, record) for one in record.cells]
    made, _ = compare(measured(rows, record.cells))
    return tuple(c for c in made if any(row.cell == cell.id for row in c.rows))


def _concerns(cell: CellRecord, hardware: Hardware) -> bool:
    return concerns_accelerator(cell, hardware) or not isinstance(hardware.torch, Absent)


def _mark(cell: CellRecord) -> str:
    return f" ({SIMULATED})" if cell.simulated else ""


def unfinished_cell(record: RunRecord, cell: CellRecord) -> str | None:
    """Return why the figures may still change; None if they are final."""
    if cell.state is CellState.DONE:
        return None
    return f"as of {moment(record.as_of)} the cell is {cell.state.value}; its figures may change"


def _conclusion(cell: CellRecord, hardware: Hardware) -> tuple[Claim, ...]:
    tables = [commands_of(cell, kind) for kind in ("demo", "use-case", "benchmark")]
    degraded = [(job.id, job.degraded) for job in cell.jobs if job.degraded is not None]
    return (
        suites_claim(suites_of(cell)),
        *commands_claims(tables),
        *degraded_claim(degraded),
        *((hardware_claim(hardware),) if _concerns(cell, hardware) else ()),
        outcome_claim(cell_status(cell), cell.detail),
    )
