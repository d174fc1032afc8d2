"""The results report: every platform of one run side by side."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, RunRecord
from reports.format import plural, version
from reports.model.blocks import Hardware
from reports.model.results import (
    JobCell,
    JobGroup,
    JobLine,
    PlatformColumn,
    ResultsReport,
    Section,
)
from reports.model.values import Absent, Claim, Footer, Rate
from reports.views.authored import authored_of
from reports.views.commands import commands_of
from reports.views.job_across_platforms import figures_of, gaps_of, lacks_job, section_of, slower_of
from reports.views.machine import (
    accelerator_of,
    cell_status,
    heading_of,
    instance_of,
    short_name,
)
from reports.views.money import money_of, total_costs
from reports.views.origin import run_date
from reports.views.phases import run_digest
from reports.views.probe import hardware_of
from reports.views.provenance import SIMULATED
from reports.views.status_phrases import degraded_claim, run_claim
from reports.views.suites import rate, suites_of
from reports.views.summary import run_status, unfinished_run

TEMPLATE = "results 1"

KINDS = ("use-case", "suite", "demo", "benchmark")
"""In the order of the report."""


def results_view(evidence: Evidence, _cell_id: str = "") -> ResultsReport:
    """Tell what every platform of a run said."""
    record = evidence.record
    run, counts = record.run, record.counts
    columns = _columns(record)
    groups = tuple(group for kind in KINDS if (group := _group(kind, record.cells)).lines)
    sections = _sections(record, columns)
    passed = rate(
        sum(column.status.code == "passed" for column in columns),
        len(columns),
        nothing="the run has no cell",
    )
    return ResultsReport(
        kind="results",
        title=_title(record),
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=_conclusion(record, groups, sections, passed),
        footer=Footer(run.id, run_digest(record), TEMPLATE),
        date=run_date(record),
        dated=_is_dated(record),
        status=run_status(record),
        passed_cells=passed,
        columns=columns,
        reference=columns[_reference([c.hardware for c in columns])].cell if columns else "",
        groups=groups,
        sections=sections,
        gaps=gaps_of(sections),
        slower=slower_of(sections),
        costs=total_costs(
            (column.money.costs for column in columns), validated=counts.passed + counts.failed
        ),
        notes=authored_of(evidence),
    )


def _is_dated(record: RunRecord) -> bool:
    told = [cell.ingested for cell in record.cells]
    return any(one is None or one.is_dated for one in told) or not told


def _title(record: RunRecord) -> str:
    run = record.run
    simulated = sum(cell.simulated for cell in record.cells)
    which = "" if simulated == len(record.cells) else f"{simulated} of {len(record.cells)} cells "
    mark = f" ({which}{SIMULATED})" if simulated else ""
    return f"{run.subject_name} {version(run.subject_version)} — Validation Results{mark}"


def _columns(record: RunRecord) -> tuple[PlatformColumn, ...]:
    probed = [hardware_of(cell, subject=record.run.subject_name) for cell in record.cells]
    at = _reference(probed)
    return tuple(
        _column(cell, record, hardware, same_stack=hardware.stack == probed[at].stack)
        for cell, hardware in zip(record.cells, probed, strict=True)
    )


def _reference(probed: Sequence[Hardware]) -> int:
    """The first platform with a device, else the first one."""
    return next((at for at, hardware in enumerate(probed) if hardware.devices), 0)


def _column(
    cell: CellRecord, record: RunRecord, hardware: Hardware, *, same_stack: bool
) -> PlatformColumn:
    instance = instance_of(cell, hardware)
    named = "" if isinstance(instance, Absent) else f" {instance}"
    return PlatformColumn(
        cell=cell.id,
        heading=column_heading(cell, record),
        platform=f"{short_name(cell)}{named}",
        accelerator=accelerator_of(cell, hardware),
        hardware=hardware,
        same_stack=same_stack,
        status=cell_status(cell),
        detail=cell.detail,
        provenance=provenance_words(cell),
        simulated=cell.simulated,
        optional=cell.platform.optional,
        money=money_of(cell),
    )


def column_heading(cell: CellRecord, record: RunRecord) -> str:
    """``AWS A10G``; where two cells would be called the same, their ids."""
    said = [_short(other, record) for other in record.cells]
    own = _short(cell, record)
    return own if said.count(own) == 1 else cell.id


def _short(cell: CellRecord, record: RunRecord) -> str:
    promised = cell.platform.accelerator
    if promised is not None:
        return f"{short_name(cell)} {promised.name}"
    return heading_of(cell, hardware_of(cell, subject=record.run.subject_name))


def provenance_words(cell: CellRecord) -> str:
    """``agent``, ``transcribed`` ..."""
    return cell.ingested.provenance.value if cell.ingested is not None else "agent"


def _group(kind: str, cells: Sequence[CellRecord]) -> JobGroup:
    titles = {job.id: job.title or job.id for c in cells for job in c.jobs if job.kind == kind}
    by_cell = [_of_cell(cell, kind) for cell in cells]
    lines = tuple(
        JobLine(
            name,
            title,
            tuple(
                jobs.get(name) or _no_job(cell) for jobs, cell in zip(by_cell, cells, strict=True)
            ),
        )
        for name, title in titles.items()
    )
    return JobGroup(kind, lines, tuple(_total(list(jobs.values())) for jobs in by_cell))


_NO_SUITE = Absent("it is no suite")
_NO_COMMAND = Absent("a suite makes no checks")


def _no_job(cell: CellRecord) -> JobCell:
    none = lacks_job(cell)
    return JobCell(none, none, none, 0, none)


def _of_cell(cell: CellRecord, kind: str) -> dict[str, JobCell]:
    figures = {job.id: figures_of(job) for job in cell.jobs}
    if kind == "suite":
        return {
            row.id: JobCell(row.status, _NO_COMMAND, row.tally, figures[row.id], row.duration_s)
            for row in suites_of(cell).rows
        }
    return {
        row.id: JobCell(row.status, row.checks, _NO_SUITE, figures[row.id], row.duration_s)
        for row in commands_of(cell, kind).rows
    }


def _total(jobs: Sequence[JobCell]) -> Rate:
    known = [job.status for job in jobs if not isinstance(job.status, Absent)]
    passed = sum(status.code == "passed" for status in known)
    return rate(passed, len(known), nothing="it was to run none")


def _sections(record: RunRecord, columns: Sequence[PlatformColumn]) -> tuple[Section, ...]:
    """A section for each job that said something, anywhere."""
    headings = [column.heading for column in columns]
    ordered = sorted(
        {job.id: job for cell in record.cells for job in cell.jobs if _says(job)}.values(),
        key=lambda job: KINDS.index(job.kind) if job.kind in KINDS else len(KINDS),
    )
    return tuple(section_of(job.id, record.cells, headings) for job in ordered)


def _says(job: JobRecord) -> bool:
    return bool(job.checks or job.metrics)


def _conclusion(
    record: RunRecord, groups: Sequence[JobGroup], sections: Sequence[Section], passed: Rate
) -> tuple[Claim, ...]:
    degraded = [
        (job.id, job.degraded)
        for cell in record.cells
        for job in cell.jobs
        if job.degraded is not None
    ]
    claims = [_kind_claim(group) for group in groups]
    gaps, slower = gaps_of(sections), slower_of(sections)
    if gaps:
        said = f"{plural(gaps, 'value')} of one platform were not measured on another."
        claims.append(Claim("gaps", (gaps,), said))
    if slower:
        said = f"{plural(slower, 'figure')} came out worse than the baseline beside it."
        claims.append(Claim("slower", (slower,), said))
    return (*claims, *degraded_claim(degraded), run_claim(run_status(record), passed))


def _kind_claim(group: JobGroup) -> Claim:
    part = sum(total.part for total in group.totals)
    whole = sum(total.whole for total in group.totals)
    name = group.kind.replace("-", " ")
    said = f"{part:,} of {plural(whole, name)} passed on the platforms together."
    return Claim(f"jobs.{group.kind}", (part, whole), said)
