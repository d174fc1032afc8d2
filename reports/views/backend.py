"""The backend report: suites and benchmarks of a run, test by test and platform beside platform."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.run_record import CellRecord, Evidence, RunRecord
from reports.format import version
from reports.model.backend import BackendPlatform, BackendReport, BenchmarkCount, Block
from reports.model.blocks import Hardware
from reports.model.values import Absent, Claim, Footer, Rate
from reports.views.authored import authored_of
from reports.views.benchmark_comparison import benchmark_jobs, block_of, contrasts_of, entries_of
from reports.views.machine import cell_status, heading_of, instance_of, job_status, place_of
from reports.views.origin import catalogued_of, origin_of, run_date
from reports.views.phases import run_digest
from reports.views.probe import hardware_of
from reports.views.status_phrases import degraded_claim, judged_claim, run_claim
from reports.views.suites import rate, suites_of
from reports.views.summary import run_status, unfinished_run
from reports.views.test_classes import suites_beside

TEMPLATE = "backend 1"


def backend_view(evidence: Evidence, _cell_id: str = "") -> BackendReport:
    """Tell the suites and benchmarks of a run."""
    record, run = evidence.record, evidence.record.run
    begun = [cell for cell in record.cells if _began(cell)]
    read = [(cell, hardware_of(cell, subject=run.subject_name)) for cell in begun]
    labels = _labels(read)
    platforms = tuple(_platform(cell, hw, labels[cell.id], record) for cell, hw in read)
    contrasts, hidden = contrasts_of(read)
    return BackendReport(
        kind="backend",
        title=f"{run.subject_name} Backend Test Report ({version(run.subject_version)})",
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=_conclusion(record, platforms),
        footer=Footer(run.id, run_digest(record), TEMPLATE),
        matrix=run.matrix_name,
        date=run_date(record),
        status=run_status(record),
        platforms=platforms,
        not_started=tuple(
            (cell.id, cell_status(cell), cell.detail) for cell in record.cells if cell not in begun
        ),
        suites=suites_beside([(cell, evidence.tests.get(cell.id, ())) for cell in begun]),
        blocks=_blocks(begun, labels),
        contrasts=contrasts,
        contrasts_hidden=hidden,
        authored=authored_of(evidence),
    )


def _began(cell: CellRecord) -> bool:
    return any(j.started_at for j in cell.jobs if j.kind in ("suite", "benchmark"))


def _labels(read: Sequence[tuple[CellRecord, Hardware]]) -> dict[str, str]:
    """``GCP NVIDIA L4``; with the cell's id where two would be called the same."""
    said = {cell.id: heading_of(cell, hardware) for cell, hardware in read}
    twice = {name for name in said.values() if list(said.values()).count(name) > 1}
    return {id_: f"{name}, {id_}" if name in twice else name for id_, name in said.items()}


def _platform(
    cell: CellRecord, hardware: Hardware, label: str, record: RunRecord
) -> BackendPlatform:
    run = record.run
    jobs = [j for j in cell.jobs if j.kind in ("suite", "benchmark")]
    said = [(j.title or j.id, job_status(j, cell)) for j in jobs]
    return BackendPlatform(
        cell=cell.id,
        label=label,
        status=cell_status(cell),
        detail=cell.detail,
        tally=suites_of(cell).total,
        benchmarks=_count(cell),
        hardware=hardware,
        place=place_of(cell),
        instance=instance_of(cell, hardware),
        origin=origin_of(cell, subject=run.subject_name, version=run.subject_version),
        catalogued=catalogued_of(cell),
        not_passed=tuple(pair for pair in said if pair[1].code != "passed"),
        degraded=tuple((j.title or j.id, j.degraded) for j in jobs if j.degraded is not None),
    )


def _count(cell: CellRecord) -> BenchmarkCount | Absent:
    every = [job for job in cell.jobs if job.kind == "benchmark"]
    if not every:
        return Absent("it has no benchmark")
    entries = [entry for job in every for entry in entries_of(job).values()]
    passed = sum(job_status(job, cell).code == "passed" for job in every)
    return BenchmarkCount(
        jobs=_rate(passed, len(every)),
        metrics=len(entries),
        samples=sum(entry.figure.n for entry in entries),
    )


def _rate(passed: int, jobs: int) -> Rate:
    return rate(passed, jobs, nothing="there is none")


def _blocks(cells: Sequence[CellRecord], labels: dict[str, str]) -> tuple[Block, ...]:
    """Shared benchmarks platform by platform, then those that one platform alone has."""
    owners = [job.id for cell in cells for job in benchmark_jobs(cell)]
    made = [
        block_of(
            cell, job, label=labels[cell.id], alone=len(cells) > 1 and owners.count(job.id) == 1
        )
        for cell in cells
        for job in benchmark_jobs(cell)
    ]
    return tuple(sorted(made, key=lambda block: block.alone))


def _conclusion(record: RunRecord, platforms: Sequence[BackendPlatform]) -> tuple[Claim, ...]:
    codes = [cell_status(cell).code for cell in record.cells]
    passed = rate(codes.count("passed"), len(codes), nothing="the run has no cell")
    degraded = [pair for platform in platforms for pair in platform.degraded]
    return (
        *(judged_claim(f"tests.{p.cell}", p.tally, over=f" on {p.cell}") for p in platforms),
        *degraded_claim(degraded),
        run_claim(run_status(record), passed),
    )
