"""The results report: every platform of one run side by side, and its failures by signature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from orchestrator.domain.event_facts import CheckFact
from orchestrator.domain.lint_findings import CheckedAnnotation
from reports.model.blocks import Hardware
from reports.model.metrics import MetricFigure, MetricTable, Params
from reports.model.money import Costs, Money
from reports.model.values import Absent, CheckTally, Rate, ReportModel, Status, Tally


@dataclass(frozen=True, slots=True)
class FailureGroupRow:
    """Failing results of one signature."""

    id: str
    kind: str
    """Whose failure it probably is."""
    description: str
    """The exception, its location, and its masked message."""
    count: int
    tests: tuple[str, ...]
    """Some of them."""
    hidden: int
    """Other failing tests of this signature."""
    cells: tuple[str, ...]
    first_seen: datetime | Absent
    known_issues: tuple[str, ...]
    quarantines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureTable:
    """Every failing result that has a name."""

    rows: tuple[FailureGroupRow, ...]
    hidden: int
    """Results of signatures that are not listed."""
    failing: int
    """Derived: the sum of the rows and what is hidden."""
    signatures: int
    """Different ones."""


@dataclass(frozen=True, slots=True)
class QuarantinedFailure:
    """A failing test in quarantine."""

    id: str
    nodeid: str
    cell: str
    job: str
    reason: str
    owner: str
    expires: datetime
    state: str
    """Its state when the report was made: ``active`` or ``expired``."""


@dataclass(frozen=True, slots=True)
class IssueRow:
    """A known issue and its matches in these results."""

    id: str
    title: str
    state: str
    count: int
    owner: str
    url: str
    expires: date


@dataclass(frozen=True, slots=True)
class PlatformColumn:
    """One platform: a row of the platform table, and a column of every other one."""

    cell: str
    heading: str
    """``AWS A10G``."""
    platform: str
    """Provider and machine, ``AWS g5.xlarge``."""
    accelerator: str
    hardware: Hardware
    same_stack: bool
    """Derived: whether torch and its runtime are those of the reference."""
    status: Status
    detail: str
    provenance: str
    """The provenance of its results."""
    simulated: bool
    optional: bool
    money: Money

    @property
    def confounded(self) -> bool:
        """Whether its software is known, and not the reference's."""
        return not self.same_stack and not isinstance(self.hardware.torch, Absent)


@dataclass(frozen=True, slots=True)
class JobCell:
    """One job on one platform."""

    status: Status | Absent
    """Absent where the platform was not to run it."""
    checks: CheckTally | Absent
    tests: Tally | Absent
    figures: int
    """Metrics that it reported, each set of parameters for itself."""
    duration_s: float | Absent

    @property
    def bare(self) -> bool:
        """Whether it passed and has no results but the outcome."""
        passed = isinstance(self.status, Status) and self.status.code == "passed"
        said = not isinstance(self.checks, Absent) or not isinstance(self.tests, Absent)
        return passed and not said and not self.figures


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job on every platform."""

    id: str
    title: str
    cells: tuple[JobCell, ...]
    """By platform."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Every job of one kind."""

    kind: str
    lines: tuple[JobLine, ...]
    totals: tuple[Rate, ...]
    """Derived, by platform: jobs that passed, of those that it was to run."""


@dataclass(frozen=True, slots=True)
class CheckAcross:
    """One check on every platform."""

    name: str
    cells: tuple[CheckFact | Absent, ...]


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """A figure set against its baseline on the same platform."""

    ratio: float | Absent
    """Derived from the unrounded medians of both: above 1 is better, in every unit."""
    overlaps: bool
    """Derived: whether the spreads touch."""
    n: int
    """Derived: samples of the one that has fewer. One alone allows no verdict."""


@dataclass(frozen=True, slots=True)
class MetricAcross:
    """One metric with one set of parameters on every platform."""

    name: str
    unit: str
    direction: str
    params: Params
    against: str
    """The baseline that a ratio names; empty for other metrics."""
    baseline: str
    """Another metric of the job that this one is set against; empty without one."""
    cells: tuple[MetricFigure | Absent, ...]
    speed_ups: tuple[SpeedUp | Absent, ...]
    """By platform; empty without a baseline."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Figures of one job and one platform that differ in their parameters."""

    cell: str
    heading: str
    table: MetricTable | Absent


@dataclass(frozen=True, slots=True)
class Section:
    """All results of one job."""

    job: str
    kind: str
    title: str
    checks: tuple[CheckAcross, ...]
    checks_hidden: int
    metrics: tuple[MetricAcross, ...]
    fixed: Params
    """Derived: parameters that all of the metrics share."""
    metrics_hidden: int
    sweeps: tuple[Sweep, ...]
    degraded: tuple[tuple[str, str], ...]
    """Platforms on which it did not run the way it should have, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsReport(ReportModel):
    """The results of one run: a column for each platform, a row for each job."""

    date: datetime
    dated: bool
    """Whether the date is the production date; else it is the upload date."""
    status: Status
    passed_cells: Rate
    """Derived: platforms that passed, of all."""
    columns: tuple[PlatformColumn, ...]
    reference: str
    """The cell whose software the others' is set against: the first one with a device."""
    groups: tuple[JobGroup, ...]
    sections: tuple[Section, ...]
    gaps: int
    """Derived: values that one platform has, and another has not."""
    slower: int
    """Derived: figures that are worse than their baseline, and whose spreads do not touch."""
    costs: Costs | Absent
    """Derived: the sum of the platforms that have a cost."""
    notes: tuple[CheckedAnnotation, ...]

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Reasons for missing values, in the order of the tables."""
        return tuple(dict.fromkeys(_reasons(self)))

    @property
    def partial(self) -> int:
        """Checks that passed in part."""
        lines = [line for section in self.sections for c in section.checks for line in c.cells]
        return sum(not isinstance(line, Absent) and is_partial(line) for line in lines)

    @property
    def reference_heading(self) -> str:
        """Return the heading of the reference."""
        return next((c.heading for c in self.columns if c.cell == self.reference), "")

    @property
    def stated(self) -> bool:
        """Whether a machine is only stated, without metered costs."""
        return any(row.state == "stated" for c in self.columns for row in c.money.rows)

    @property
    def runtimes(self) -> str:
        """Return the runtimes of the platforms' builds of torch: ``CUDA``, ``CUDA or ROCm``."""
        return " or ".join(dict.fromkeys(c.hardware.runtime_name for c in self.columns))

    @property
    def confounded(self) -> tuple[PlatformColumn, ...]:
        """Platforms whose software is not the reference's."""
        return tuple(column for column in self.columns if column.confounded)


def is_partial(line: CheckFact) -> bool:
    """Return whether a check passed only in part, by its value: `12/14`."""
    part, slash, whole = (word.strip() for word in line.value.partition("/"))
    shares = slash and part.isdecimal() and whole.isdecimal()
    return line.outcome == "passed" and bool(shares) and int(part) < int(whole)


def _reasons(report: ResultsReport) -> Iterator[str]:
    for column in report.columns:
        devices = column.hardware.devices
        facts = (column.hardware.torch, column.hardware.runtime)
        probed = [(d.memory_bytes, d.compute_capability) for d in devices[:1]]
        for fact in (*facts, *(fact for pair in probed for fact in pair)):
            yield from _reason(fact)
    for group in report.groups:
        for line in group.lines:
            for cell in line.cells:
                yield from _reason(cell.status)
    for section in report.sections:
        yield from _of_section(section)
    for column in report.columns:
        yield from () if column.money.rows else _reason(column.money.costs)


def _of_section(section: Section) -> Iterator[str]:
    for check in section.checks:
        for line in check.cells:
            yield from _reason(line)
    for metric in section.metrics:
        for cell in metric.cells:
            yield from _reason(cell if isinstance(cell, Absent) else cell.median)
        for speed_up in metric.speed_ups:
            yield from () if isinstance(speed_up, Absent) else _reason(speed_up.ratio)
    for sweep in section.sweeps:
        yield from _reason(sweep.table)


def _reason(value: object) -> Iterator[str]:
    if isinstance(value, Absent):
        yield value.reason
