"""Suites test by test and class by class, platform beside platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.domain.facts import TestFact
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.model.backend import (
    BackendSuite,
    ClassCell,
    ClassRow,
    ClassTest,
    SuiteColumn,
    TestCell,
)
from reports.views.machine import job_status
from reports.views.suites import settled, suite_tally, tally_of

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


def suites_beside(columns: Sequence[Column]) -> tuple[BackendSuite, ...]:
    """Every suite of every platform, in the order in which they are first asked for."""
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
    """Module, class and name; a class is empty where the test stands in none."""
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


def _row(found: _Class, asked: Sequence[JobRecord | None], room: int) -> ClassRow:
    rows = tuple(
        ClassTest(name, nodeid, tuple(_test(by_column.get(i)) for i in range(len(asked))))
        for name, (nodeid, by_column) in found.tests.items()
    )
    shown = _kept(rows, room)
    cells = tuple(_cell(found, i, job, shown) for i, job in enumerate(asked))
    return ClassRow(found.title, len(rows), cells, shown, len(rows) - len(shown))


def _kept(rows: Sequence[ClassTest], room: int) -> tuple[ClassTest, ...]:
    """As many as there is room for, in their order; those that did not pass before the others."""
    ranked = sorted(range(len(rows)), key=lambda n: (not _is_bad(rows[n]), n))[: max(0, room)]
    return tuple(rows[n] for n in sorted(ranked))


def _is_bad(row: ClassTest) -> bool:
    said = {cell.outcome for cell in row.cells if cell is not None}
    return bool(said & {"failed", "error", "missing", "not_run"})


def _test(fact: TestFact | None) -> TestCell | None:
    return None if fact is None else TestCell(settled(fact).word, fact.reason or fact.message)


def _cell(
    found: _Class, column: int, job: JobRecord | None, shown: Sequence[ClassTest]
) -> ClassCell | None:
    facts = [by[column] for _, by in found.tests.values() if column in by]
    if not facts or job is None:
        return None
    counts = Counts.of(Counter(settled(fact) for fact in facts))
    skipped = [r.name for r in shown if (c := r.cells[column]) and c.outcome == "skipped"]
    return ClassCell(_code(counts, over=job.outcome is not None), tally_of(counts), tuple(skipped))


def _code(counts: Counts, *, over: bool) -> str:
    if counts.failed or counts.error or (over and counts.bad):
        return "failed"
    if counts.bad:
        return "running"
    return "passed" if counts.passed + counts.xfailed + counts.xpassed else "skipped"
