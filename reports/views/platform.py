"""The platform report: one cell, from its evidence."""

from __future__ import annotations

from orchestrator.domain.cell import CellState
from orchestrator.domain.facts import TestFact
from orchestrator.domain.record import CellRecord, Evidence, RunRecord
from reports.format import moment, version
from reports.model.parts import Hardware
from reports.model.platform import PlatformReport
from reports.model.values import Absent, Claim, Footer
from reports.views.benchmarks import metrics_of
from reports.views.commands import commands_of
from reports.views.conclusion import (
    commands_claims,
    degraded_claim,
    hardware_claim,
    outcome_claim,
    suites_claim,
)
from reports.views.life import (
    attempts_of,
    evidence_digest,
    files_of,
    notices_of,
    timeline_of,
)
from reports.views.money import money_of
from reports.views.place import cell_status, heading_of, instance_of, long_name, place_of
from reports.views.probe import hardware_of
from reports.views.provenance import SIMULATED, provenance_of
from reports.views.suites import problems_of, skips_of, suites_of

TEMPLATE = "platform 1"


def platform_view(evidence: Evidence, cell_id: str) -> PlatformReport:
    """Tell one cell. Raises LookupError where the run has no such cell."""
    record = evidence.record
    cell = record.cell(cell_id)
    if cell is None:
        raise LookupError(cell_id)
    return _report(record, cell, evidence.tests.get(cell_id, ()))


def _report(record: RunRecord, cell: CellRecord, tests: tuple[TestFact, ...]) -> PlatformReport:
    run = record.run
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
        footer=Footer(run.id, evidence_digest(cell), TEMPLATE),
        cell=cell.id,
        platform=long_name(cell),
        place=place_of(cell),
        instance=instance_of(cell, hardware),
        environment=cell.environment,
        date=run.created_at,
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
    )


def _mark(cell: CellRecord) -> str:
    return f" ({SIMULATED})" if cell.simulated else ""


def unfinished_cell(record: RunRecord, cell: CellRecord) -> str | None:
    """Why the figures may still change."""
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
        hardware_claim(hardware),
        outcome_claim(cell_status(cell), cell.detail),
    )
