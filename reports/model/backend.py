"""The backend report: every test and every benchmark of a run, platform beside platform."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.event_facts import CheckFact
from orchestrator.domain.lint_findings import CheckedAnnotation
from reports.model.blocks import Hardware
from reports.model.metrics import MetricFigure, Params
from reports.model.origin import Catalogued, Origin
from reports.model.values import Absent, Rate, ReportModel, Status, Tally


@dataclass(frozen=True, slots=True)
class BenchmarkCount:
    """The numbers of measurements."""

    jobs: Rate
    """Benchmark jobs that passed, of all."""
    metrics: int
    """Metrics with their parameters. Derived: the entries of the platform's blocks."""
    samples: int
    """Derived: the sum of the entries' samples."""


@dataclass(frozen=True, slots=True)
class BackendPlatform:
    """One platform: a column of every table."""

    cell: str
    label: str
    """``GCP L4``."""
    status: Status
    detail: str
    tally: Tally | Absent
    """Derived: the sum of its suites."""
    benchmarks: BenchmarkCount | Absent
    hardware: Hardware
    place: str | Absent
    instance: str | Absent
    origin: Origin | None
    catalogued: Catalogued | None
    not_passed: tuple[tuple[str, Status], ...]
    degraded: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TestCell:
    """The result of one test on one platform."""

    __test__ = False

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClassTest:
    """One test of a class, by platform; None if a platform has no such test."""

    name: str
    nodeid: str
    cells: tuple[TestCell | None, ...]


@dataclass(frozen=True, slots=True)
class ClassCell:
    """A class on one platform."""

    code: str
    """Derived from the counts.

    ``passed`` if no test failed, erred, is missing or was not run, and one passed; ``skipped`` if
    none was judged; else ``failed``, or ``running`` before the end.
    """
    tally: Tally
    """Derived: counted over its tests."""
    skipped: tuple[str, ...]
    """Derived: the names of skipped tests among those that are shown."""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class of a suite; the file's name for tests outside of classes."""

    name: str
    tests: int
    """Different tests, on whichever platform."""
    cells: tuple[ClassCell | None, ...]
    rows: tuple[ClassTest, ...]
    hidden: int
    """Derived: tests that are not listed."""


@dataclass(frozen=True, slots=True)
class SuiteColumn:
    """A suite on one platform."""

    status: Status
    tally: Tally | Absent
    """Derived: its classes and what is counted without a name."""
    unnamed: Tally | None
    """Tests that the evidence counts without naming them."""


@dataclass(frozen=True, slots=True)
class BackendSuite:
    """The results of one suite by platform."""

    id: str
    title: str
    columns: tuple[SuiteColumn | None, ...]
    """By platform; None if the suite was not asked of it."""
    classes: tuple[ClassRow, ...]
    tests: int
    """Derived: the sum of the classes' tests."""


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """One metric with one set of parameters."""

    name: str
    params: Params
    unit: str
    direction: str
    figure: MetricFigure


@dataclass(frozen=True, slots=True)
class MetricSection:
    """Metrics that belong together."""

    title: str
    """Empty if the job names none."""
    entries: tuple[MetricEntry, ...]


@dataclass(frozen=True, slots=True)
class BenchmarkBlock:
    """One benchmark job on one platform."""

    cell: str
    label: str
    job: str
    title: str
    status: Status
    sections: tuple[MetricSection, ...]
    checks: tuple[CheckFact, ...]
    hidden: int
    """Metrics and checks that are not listed."""
    alone: bool
    """Whether only this of several platforms has the job."""


@dataclass(frozen=True, slots=True)
class ReferenceDifference:
    """A platform's figure set against the reference's."""

    cell: str
    percent: float | Absent
    """Derived from unrounded medians: ``100 * (1 - smaller / larger)``."""
    better: str
    """Derived: the cell whose figure is the better one; empty if they are equal, or the
    direction is not known."""
    similar: bool
    """Derived: at most `SIMILAR_PERCENT` apart, or the spreads of several samples overlap."""
    same_stack: bool
    """Derived: torch and its runtime are the reference's."""


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric on several platforms."""

    job: str
    section: str
    name: str
    params: Params
    unit: str
    direction: str
    figures: tuple[MetricFigure | None, ...]
    """By platform."""
    reference: str
    differences: tuple[ReferenceDifference, ...]


SIMILAR_PERCENT = 5.0
"""Relative differences up to this percentage are not significant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport(ReportModel):
    """Suites and benchmarks of a run, test by test."""

    matrix: str
    date: datetime
    status: Status
    platforms: tuple[BackendPlatform, ...]
    not_started: tuple[tuple[str, Status, str], ...]
    """Cells without a suite or a benchmark that began: id, status and detail."""
    suites: tuple[BackendSuite, ...]
    blocks: tuple[BenchmarkBlock, ...]
    contrasts: tuple[MetricComparison, ...]
    contrasts_hidden: int
    authored: tuple[CheckedAnnotation, ...]

    @property
    def is_dated(self) -> bool:
        """Whether the production date of all uploaded evidence is known."""
        return all(one.origin is None or one.origin.is_dated for one in self.platforms)
