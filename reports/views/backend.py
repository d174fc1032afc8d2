"""The backend report: suites, test classes and benchmarks of a run, platform beside platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, RunRecord
from reports.format import version
from reports.model.backend import (
    BackendPlatform,
    BackendReport,
    BackendSuite,
    BenchmarkBlock,
    BenchmarkCount,
    ClassCell,
    ClassRow,
    ClassTest,
    SuiteColumn,
    TestCell,
)
from reports.model.blocks import Hardware
from reports.model.values import Absent, Claim
from reports.rules.authored import authored_of
from reports.views.benchmarks import benchmark_jobs, block_of, contrasts_of, entries_of
from reports.views.cell_timeline import footer_of, run_digest
from reports.views.claims import counted_tests_claim, degraded_claim, run_claim
from reports.views.machine import (
    cell_status,
    hardware_of,
    heading_of,
    instance_of,
    job_status,
    place_of,
    run_status,
)
from reports.views.origin import catalogued_of, origin_of, run_date
from reports.views.suites import rate, settled, suite_tally, suites_of, tally_of
from reports.views.summary import unfinished_run

TESTS_SHOWN = 500
"""Tests that are listed of one class."""

TESTS_LISTED = 4_000
"""Tests that are listed in one report: more of them no page shows."""

Column = tuple[CellRecord, Sequence[TestFact]]


@dataclass(slots=True)
class _Class:
    """The tests of a class, by name and platform, in the order they were collected."""

    module: str
    title: str
    tests: dict[str, tuple[str, dict[int, TestFact]]] = field(default_factory=dict)


def suites_by_platform(columns: Sequence[Column]) -> tuple[BackendSuite, ...]:
    """Return every suite of every platform, in launch order."""
    jobs = {job.id: None for cell, _ in columns for job in cell.jobs if job.kind == "suite"}
    made: list[BackendSuite] = []
    for job in jobs:
        listed = sum(len(row.rows) for suite in made for row in suite.classes)
        made.append(_suite(job, columns, TESTS_LISTED - listed))
    return tuple(made)


def _suite(name: str, columns: Sequence[Column], room: int) -> BackendSuite:
    asked = [next((j for j in cell.jobs if j.id == name), None) for cell, _ in columns]
    tests = [[test for test in every if test.job == name] for _, every in columns]
    classes: list[ClassRow] = []
    for found in _classes(tests).values():
        left = room - sum(len(row.rows) for row in classes)
        classes.append(_row(found, asked, min(left, TESTS_SHOWN)))
    said = next(job.title or job.id for job in asked if job is not None)
    return BackendSuite(
        id=name,
        title=said,
        columns=tuple(_column(j, c) for j, (c, _) in zip(asked, columns, strict=True)),
        classes=tuple(classes),
        tests=sum(row.tests for row in classes),
    )


def _column(job: JobRecord | None, cell: CellRecord) -> SuiteColumn | None:
    if job is None:
        return None
    unnamed = tally_of(job.unnamed) if job.unnamed.collected else None
    return SuiteColumn(job_status(job, cell), suite_tally(job, cell), unnamed)


def parts_of(nodeid: str) -> tuple[str, str, str]:
    """Return module, class and name; the class is empty for a test outside of a class."""
    path, bracket, params = nodeid.partition("[")
    module, *names = path.split("::")
    name = names.pop() if names else module
    return module, "::".join(names), f"{name}{bracket}{params}"


def _classes(tests: Sequence[Sequence[TestFact]]) -> Mapping[tuple[str, str], _Class]:
    found: dict[tuple[str, str], _Class] = {}
    for column, facts in enumerate(tests):
        for fact in facts:
            module, group, name = parts_of(fact.nodeid)
            kept = found.setdefault((module, group), _Class(module, group or module))
            kept.tests.setdefault(name, (fact.nodeid, {}))[1][column] = fact
    twins = Counter(kept.title for kept in found.values())
    for kept in found.values():
        if twins[kept.title] > 1:
            kept.title = f"{kept.title} ({kept.module})"
    return found


def _row(test_class: _Class, job_records: Sequence[JobRecord | None], room: int) -> ClassRow:
    rows = tuple(
        ClassTest(name, nodeid, tuple(_test(by_column.get(i)) for i in range(len(job_records))))
        for name, (nodeid, by_column) in test_class.tests.items()
    )
    shown = _kept(rows, room)
    cells = tuple(_cell(test_class, i, job, shown) for i, job in enumerate(job_records))
    return ClassRow(test_class.title, len(rows), cells, shown, len(rows) - len(shown))


def _kept(rows: Sequence[ClassTest], room: int) -> tuple[ClassTest, ...]:
    """Return at most `room` rows in their order; rows that did not pass have precedence."""
    ranked = sorted(range(len(rows)), key=lambda n: (not _is_bad(rows[n]), n))[: max(0, room)]
    return tuple(rows[n] for n in sorted(ranked))


def _is_bad(row: ClassTest) -> bool:
    said = {cell.outcome for cell in row.cells if cell is not None}
    return bool(said & {"failed", "error", "missing", "not_run"})


def _test(fact: TestFact | None) -> TestCell | None:
    return None if fact is None else TestCell(settled(fact).word, fact.reason or fact.message)


def _cell(
    test_class: _Class, column: int, job: JobRecord | None, shown: Sequence[ClassTest]
) -> ClassCell | None:
    facts = [by[column] for _, by in test_class.tests.values() if column in by]
    if not facts or job is None:
        return None
    counts = Counts.from_tally(Counter(settled(fact) for fact in facts))
    skipped = [r.name for r in shown if (c := r.cells[column]) and c.outcome == "skipped"]
    return ClassCell(_code(counts, over=job.outcome is not None), tally_of(counts), tuple(skipped))


def _code(counts: Counts, *, over: bool) -> str:
    if counts.failed or counts.error or (over and counts.bad):
        return "failed"
    if counts.bad:
        return "running"
    return "passed" if counts.passed + counts.xfailed + counts.xpassed else "skipped"


TEMPLATE = "backend 2"


def backend_view(evidence: Evidence, _cell_id: str = "") -> BackendReport:
    """Return the report of a run's suites and benchmarks."""
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
        footer=footer_of(record, run_digest(record), TEMPLATE),
        matrix=run.matrix_name,
        date=run_date(record),
        status=run_status(record),
        platforms=platforms,
        not_started=tuple(
            (cell.id, cell_status(cell), cell.detail) for cell in record.cells if cell not in begun
        ),
        suites=suites_by_platform([(cell, evidence.tests.get(cell.id, ())) for cell in begun]),
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
        jobs=rate(passed, len(every), nothing="there is none"),
        metrics=len(entries),
        samples=sum(entry.figure.n for entry in entries),
    )


def _blocks(cells: Sequence[CellRecord], labels: dict[str, str]) -> tuple[BenchmarkBlock, ...]:
    """Return shared benchmarks by platform, then those of single platforms."""
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
        *(counted_tests_claim(f"tests.{p.cell}", p.tally, over=f" on {p.cell}") for p in platforms),
        *degraded_claim(degraded),
        run_claim(run_status(record), passed),
    )
