"""What a report repeats of jobs, machines and files, against what is stored of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord
from reports.model.blocks import CommandRow, FileRow, Hardware, SuiteRow
from reports.model.compare import CompareReport
from reports.model.platform import PlatformReport
from reports.model.summary import CellRow, SummaryReport
from reports.model.values import Absent, ReportModel, Status, Tally
from reports.rules.blocks import OUTCOMES, Said, close, differs


def recorded_rule(report: ReportModel, evidence: Evidence) -> Iterator[Said]:
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


def _footer(report: ReportModel, evidence: Evidence) -> Iterator[Said]:
    """The digest is of the very evidence that the rest is held against."""
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


def _brought(cell: CellRecord) -> str:
    came = {artifact.name: artifact.digest for artifact in cell.artifacts}
    return came.get("events.jsonl") or (cell.ingested.fingerprint if cell.ingested else "")


def _platform(report: PlatformReport, cell: CellRecord) -> Iterator[Said]:
    rows: list[SuiteRow | CommandRow] = [*report.suites.rows]
    for table in (report.demos, report.use_cases, report.benchmarks):
        rows += table.rows
    told = sorted(row.id for row in rows)
    yield from differs("recorded", "jobs", told, sorted(job.id for job in cell.jobs))
    jobs = {job.id: job for job in cell.jobs}
    for row in rows:
        if row.id in jobs:
            yield from _job(row, jobs[row.id])
    yield from _status("the cell", report.status, cell.outcome)
    yield from differs("simulated", cell.id, report.provenance.simulated, cell.simulated)
    yield from _hardware(report.hardware, cell.probed)
    yield from _files(report.files, cell)


def _job(row: SuiteRow | CommandRow, job: JobRecord) -> Iterator[Said]:
    yield from _status(row.id, row.status, job.outcome)
    if job.outcome is not None:
        yield from differs("degraded", f"{row.id}: the mark", row.status.degraded, job.degraded)
    yield from _duration(row, job.duration_s)
    if isinstance(row, SuiteRow):
        yield from _tally(row.id, row.tally, job.counts)
    elif not isinstance(row.checks, Absent):
        for name in ("passed", "failed", "skipped"):
            found = len([check for check in job.checks if check.outcome == name])
            yield from differs("recorded", f"{row.id}: {name}", getattr(row.checks, name), found)


def _duration(row: SuiteRow | CommandRow, found: float | None) -> Iterator[Said]:
    said = row.duration_s
    if not isinstance(said, Absent) and found is not None and not close(said, found):
        yield "error", "recorded", f"{row.id} took {said} s, recorded {found} s"


def _status(what: str, status: Status, outcome: Outcome | None) -> Iterator[Said]:
    if outcome is not None:
        yield from differs("recorded", f"{what}: the outcome", status.code, outcome.value)


def _tally(what: str, tally: Tally | Absent, counts: Counts) -> Iterator[Said]:
    if isinstance(tally, Absent):
        finished = counts.collected - counts.missing - counts.not_run
        yield from differs("recorded", f"{what}: tests behind no tally", 0, finished)
        return
    for name in OUTCOMES:
        said, found = getattr(tally, name), getattr(counts, name)
        yield from differs("recorded", f"{what}: {name}", said, found)


def _hardware(hardware: Hardware, probed: Mapping[str, object]) -> Iterator[Said]:
    for name in ("torch", "python"):
        said, found = getattr(hardware, name), probed.get(name)
        if not isinstance(said, Absent) and isinstance(found, str):
            yield from differs("recorded", name, said, found)


def _files(files: Sequence[FileRow], cell: CellRecord) -> Iterator[Said]:
    known = {artifact.name: artifact for artifact in cell.artifacts}
    for file in files:
        artifact = known.get(file.name)
        if artifact is None:
            yield "error", "recorded", f"{file.name} is listed, and did not come home"
            continue
        size = artifact.size_bytes
        yield from differs("recorded", f"bytes of {file.name}", file.size_bytes, size)
        yield from differs("recorded", f"sha256 of {file.name}", file.sha256, artifact.digest)


def _row(row: CellRow, cell: CellRecord) -> Iterator[Said]:
    yield from _status(row.cell, row.status, cell.outcome)
    yield from differs("simulated", row.cell, row.provenance.simulated, cell.simulated)
    yield from _tally(row.cell, row.tally, cell.counts)
    told = sorted(why for _, why in row.degraded)
    found = sorted(job.degraded for job in cell.jobs if job.degraded is not None)
    yield from differs("degraded", f"{row.cell}: degraded jobs", told, found)
    yield from _hardware(row.hardware, cell.probed)
