"""No report lies about a number that it derives: each one is changed here, and found out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

import pytest

from orchestrator.domain.run_record import Evidence
from reports.linter import errors, lint, lint_evidence
from reports.model.values import ReportModel
from reports.registry import model_of
from tests.unit.reports.known_results import evidence_called
from tests.unit.reports.model_leaves import Path, changed, kind_of, numbers
from tests.unit.reports.transcribed import results_evidence

HARDWARE = {
    "cpus", "devices.memory_bytes", "disk_free_bytes", "memory_bytes", "package_count",
}  # fmt: skip
FILES = {
    "disputed_hidden", "repeated", "sources.announced", "sources.confidence", "sources.named",
    "sources.size_bytes", "sources.summed",
}  # fmt: skip


def below(part: str, names: set[str]) -> set[str]:
    return {f"{part}.{name}" for name in names}


CELL = {
    "attempts.number", "benchmarks.rows.duration_s", "demos.rows.duration_s", "files.size_bytes",
    "metrics.hidden", "metrics.repeated", "metrics.rows.cells.samples", "money.rows.attempt",
    "provenance.decisions.attempt", "provenance.decisions_hidden", "notices_hidden",
    "suites.rows.duration_s", "timeline.attempt", "use_cases.rows.duration_s",
    *below("hardware", HARDWARE),
}  # fmt: skip
RUN = {
    "comparisons_hidden", "distinct_tests", "rows.demos.skipped", "rows.unnamed",
    "rows.use_cases.skipped",
    *below("rows", {name for name in CELL if name.startswith(("money", "provenance", "metrics"))}),
    *below("rows.hardware", HARDWARE),
}  # fmt: skip
INGESTED = {
    "catalogued.memory_bytes", "catalogued.memory_gb", "comparisons.rows.high",
    "comparisons.rows.low", "comparisons.rows.n", "failures.signatures", "issues.count",
    *below("origin", FILES),
}  # fmt: skip
MEASURED = {
    "platform": CELL | INGESTED,
    "summary": RUN | INGESTED | below("rows", INGESTED),
    "backend": {
        "contrasts_hidden", "platforms.benchmarks.jobs.whole", "platforms.catalogued.memory_bytes",
        "platforms.catalogued.memory_gb", "blocks.hidden", "blocks.sections.entries.figure.samples",
        "contrasts.figures.samples",
        *below("platforms.hardware", HARDWARE), *below("platforms.origin", FILES),
    },
    "results": {
        "columns.money.rows.attempt", "groups.lines.cells.duration_s", "sections.checks_hidden",
        "sections.metrics_hidden", "groups.lines.cells.checks.skipped",
        "sections.sweeps.table.hidden", "sections.sweeps.table.repeated",
        *below("columns.hardware", HARDWARE),
    },
    "cost": {"cells.money.rows.attempt", "cells.refused.attempt"},
    "compare": {"pairs.jobs_same", "pairs.environment_hidden", "pairs.checks.confirmed"},
}  # fmt: skip
"""Read from the evidence, and derived from nothing else in the report."""
ALONE = ("platform", "summary")
"""Kinds whose own figures contradict a changed one, without a look at the evidence."""
OF_EACH = 3
"""So many numbers of one kind are changed: the first, the last and some between."""


def other(value: int | float | Decimal) -> int | float | Decimal:
    """Another number of the same kind, near enough to look right."""
    if isinstance(value, Decimal):
        return value + Decimal("0.02")
    return value + 1 if isinstance(value, int) else value * 1.01 + 0.01


def of_each_kind(model: ReportModel) -> Iterator[tuple[Path, int | float | Decimal]]:
    found = defaultdict(list)
    for path, value in numbers(model):
        found[kind_of(path)].append((path, value))
    for alike in found.values():
        step = max((len(alike) - 1) / (OF_EACH - 1), 1)
        yield from (alike[round(n * step)] for n in range(min(OF_EACH, len(alike))))


def uncaught(kind: str, evidence: Evidence, cell: str | None = None) -> set[str]:
    model = model_of(kind, evidence, cell=cell)
    found = set()
    for path, value in of_each_kind(model):
        wrong = changed(model, path, other(value))
        more = () if kind in ALONE else lint_evidence(wrong, evidence)
        if not errors((*lint(wrong), *more)):
            found.add(kind_of(path))
    return found


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("platform", "local built-in a10g l4-degraded simulated every-outcome not-available"),
        ("platform", "lost-twice running handed-in"),
        ("summary", "release handed-in"),
        ("backend", "release every-outcome handed-in"),
        ("results", "release local built-in a10g not-available lost-twice running"),
        ("cost", "release local a10g not-available lost-twice running"),
        ("compare", "head swapped itself unnamed"),
    ],
)
def test_any_derived_number_that_is_changed_is_an_error(kind, names):
    for name in names.split():
        cell = "gcp-l4" if (kind, name) == ("platform", "handed-in") else None
        found = uncaught(kind, evidence_called(name), cell)
        assert found <= MEASURED[kind], (name, found - MEASURED[kind])


@pytest.mark.parametrize("kind", ["results", "cost"])
def test_so_is_one_of_figures_that_a_person_typed(kind, tmp_path):
    assert uncaught(kind, results_evidence(tmp_path)) <= MEASURED[kind]


def test_what_counts_as_measured_is_not_caught_by_chance():
    assert {"suites.rows.duration_s", "hardware.memory_bytes"} <= uncaught(
        "platform", evidence_called("local")
    )
