"""Rules about the results report: sums, ratios, gaps and outcomes, counted again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.event_facts import CheckFact
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.model.metrics import MetricFigure
from reports.model.results import JobCell, JobGroup, MetricAcross, ResultsReport, Section, SpeedUp
from reports.model.values import Absent, Status
from reports.rules.blocks import RuleFinding, close, differs
from reports.rules.money import added_rule, sum_of

SEVERITY = ("passed", "not_available", "cancelled", "errored", "timed_out", "failed")
"""From the best to the worst."""


def run_outcome_rule(code: str, cells: Sequence[tuple[str, bool]]) -> Iterator[RuleFinding]:
    """Check that the run's outcome is its worst cell's.

    Args:
        code: The run's outcome; a run that is not over has none to be checked.
        cells: Each cell's, and whether the cell was optional: then it may be not available.
    """
    if code not in SEVERITY:
        return
    counted = [said for said, optional in cells if not (optional and said == "not_available")]
    codes = counted or [said for said, _ in cells]
    if any(said not in SEVERITY for said in codes):
        yield "error", "outcome", f"the run is {code}, and a cell is not over"
    elif codes:
        yield from differs("outcome", "the run's outcome", code, max(codes, key=SEVERITY.index))


Figures = tuple[int, ...]


def results_rules(report: ResultsReport) -> Iterator[RuleFinding]:
    """Yield the contradictions between the tables of a results report."""
    codes = [column.status.code for column in report.columns]
    yield from differs("total", "passed cells", report.passed_cells.part, codes.count("passed"))
    yield from differs("total", "cells", report.passed_cells.whole, len(codes))
    cells = [(column.status.code, column.optional) for column in report.columns]
    yield from run_outcome_rule(report.status.code, cells)
    with_device = [c for c in report.columns if c.hardware.devices] or list(report.columns)
    first = with_device[0].hardware.stack if with_device else None
    named = with_device[0].cell if with_device else ""
    yield from differs("stack", "the reference", report.reference, named)
    for column in report.columns:
        same = column.hardware.stack == first
        yield from differs("stack", f"{column.cell}: same stack", column.same_stack, same)
    for group in report.groups:
        yield from _group(group, len(report.columns))
    for section in report.sections:
        yield from _section(section, len(report.columns))
    yield from differs("gaps", "values that are missing", report.gaps, _gaps(report))
    yield from differs("slower", "figures below their baseline", report.slower, _slower(report))
    yield from _money(report)


def results_figures(report: ResultsReport) -> Mapping[str, Figures]:
    """Return the numbers that a conclusion may use."""
    known: dict[str, Figures] = {
        "gaps": (_gaps(report),),
        "slower": (_slower(report),),
        "run": (report.passed_cells.part, report.passed_cells.whole),
    }
    degraded = 0
    for group in report.groups:
        cells = [cell.status for line in group.lines for cell in line.cells]
        statuses = [status for status in cells if isinstance(status, Status)]
        passed = [status for status in statuses if status.code == "passed"]
        known[f"jobs.{group.kind}"] = (len(passed), len(statuses))
        degraded += len([status for status in statuses if status.degraded is not None])
    return known | {"degraded": (degraded,)}


def results_reported(report: ResultsReport, evidence: Evidence) -> Iterator[RuleFinding]:
    """Check that the platform of each column reported all of its figures and checks."""
    for at, cell in enumerate(evidence.record.cells):
        known = _Reported(cell)
        for line in (line for group in report.groups for line in group.lines):
            said, found = line.cells[at].figures, known.figures(line.id)
            yield from differs("reported", f"{cell.id}: figures of {line.id}", said, found)
        for section in report.sections:
            yield from _of_platform(section, at, known, cell.id)


def _of_platform(section: Section, at: int, known: _Reported, cell: str) -> Iterator[RuleFinding]:
    shown = [(row.name, row.unit, row.cells[at]) for row in section.metrics]
    for name, unit, figure in shown + list(_swept(section, at)):
        if not known.figure(section.job, name, unit, figure):
            yield "error", "reported", f"{cell}: {name} was not reported so"
    for check in section.checks:
        if not known.check(section.job, check.cells[at]):
            yield "error", "reported", f"{cell}: {check.name} was not reported so"


def _swept(section: Section, at: int) -> Iterator[tuple[str, str, MetricFigure | Absent]]:
    table = section.sweeps[at].table if section.sweeps else Absent("there is no sweep")
    if isinstance(table, Absent):
        return
    for line in table.rows:
        for column, figure in zip(table.columns, line.cells, strict=False):
            if figure is not None:
                yield figure.name, column.unit, figure


class _Reported:
    """The metrics of one platform; samples as text, since NaN equals nothing."""

    def __init__(self, cell: CellRecord) -> None:
        self._metrics = {
            (job.id, fact.name, fact.unit, repr(fact.samples))
            for job in cell.jobs
            for fact in job.metrics
        }
        self._keys = {
            job.id: {
                (f.name, f.unit, f.direction, json.dumps(f.params, sort_keys=True, default=str))
                for f in job.metrics
            }
            for job in cell.jobs
        }
        self._checks = {
            (job.id, c.name, c.outcome, c.value, c.tolerance)
            for job in cell.jobs
            for c in job.checks
        }

    def figures(self, job: str) -> int:
        """Return the number of reported metrics, without repetitions."""
        return len(self._keys.get(job, ()))

    def figure(self, job: str, name: str, unit: str, metric_figure: MetricFigure | Absent) -> bool:
        """Whether it was reported, or is not there."""
        return isinstance(metric_figure, Absent) or (
            (job, name, unit, repr(metric_figure.samples)) in self._metrics
        )

    def check(self, job: str, check_fact: CheckFact | Absent) -> bool:
        """Whether it was reported, or is not there."""
        return isinstance(check_fact, Absent) or (
            (job, check_fact.name, check_fact.outcome, check_fact.value, check_fact.tolerance)
            in self._checks
        )


def _group(group: JobGroup, columns: int) -> Iterator[RuleFinding]:
    yield from differs("total", f"{group.kind}: totals", len(group.totals), columns)
    for at, total in enumerate(group.totals):
        cells = [line.cells[at] for line in group.lines]
        run = [cell.status for cell in cells if isinstance(cell.status, Status)]
        passed = len([status for status in run if status.code == "passed"])
        yield from differs("total", f"{group.kind}: passed", total.part, passed)
        yield from differs("total", f"{group.kind}: jobs", total.whole, len(run))
        for cell in cells:
            yield from _job(cell)


def _job(cell: JobCell) -> Iterator[RuleFinding]:
    if isinstance(cell.status, Absent) or cell.status.code != "passed":
        return
    if not isinstance(cell.checks, Absent) and cell.checks.failed:
        yield "error", "outcome", f"a job passed with {cell.checks.failed} failed checks"
    if not isinstance(cell.tests, Absent) and cell.tests.bad:
        yield "error", "outcome", f"a suite passed with {cell.tests.bad} tests that did not"


_SHARE = re.compile(r"(\d+)\s*/\s*(\d+)")


def _partial(section: Section) -> Iterator[RuleFinding]:
    """Warn of checks that passed with only a part of their items."""
    lines = [(check.name, cell) for check in section.checks for cell in check.cells]
    for name, cell in lines:
        if isinstance(cell, Absent) or cell.outcome != "passed":
            continue
        found = _SHARE.fullmatch(cell.value)
        if found and int(found[1]) != int(found[2]):
            yield "warning", "partial", f"{section.title}: {name} passed with {cell.value}"


def _section(section: Section, columns: int) -> Iterator[RuleFinding]:
    yield from _partial(section)
    widths = [len(check.cells) for check in section.checks]
    widths += [len(metric.cells) for metric in section.metrics]
    for width in widths:
        yield from differs("table", f"{section.job}: columns", width, columns)
    shared = [set(metric.params) for metric in section.metrics]
    fixed = set.intersection(*shared) if shared else set()
    yield from differs("table", f"{section.job}: shared parameters", set(section.fixed), fixed)
    if section.checks_hidden < 0 or section.metrics_hidden < 0:
        yield "error", "table", f"{section.job} has fewer rows than are shown"
    for metric in section.metrics:
        for at, speed_up in enumerate(metric.speed_ups):
            if isinstance(speed_up, SpeedUp):
                yield from _ratio(section, metric, at, speed_up)


def _ratio(
    section: Section, metric: MetricAcross, at: int, speed_up: SpeedUp
) -> Iterator[RuleFinding]:
    own = metric.cells[at]
    base = next(
        (
            other.cells[at]
            for other in section.metrics
            if (other.name, other.params, other.unit)
            == (metric.baseline, metric.params, metric.unit)
        ),
        None,
    )
    if not isinstance(own, MetricFigure) or not isinstance(base, MetricFigure):
        yield "error", "ratio", f"{metric.name} has a ratio of something that is not shown"
        return
    a, b = _numbers(own), _numbers(base)
    if not isinstance(speed_up.ratio, Absent):
        found = a[1] / b[1] if metric.direction == "higher" else b[1] / a[1]
        if not close(speed_up.ratio, found):
            message = (
                f"{metric.name} is {speed_up.ratio}x of {metric.baseline}, recomputed {found}x"
            )
            yield "error", "ratio", message
    overlaps = max(a[0], b[0]) <= min(a[2], b[2])
    yield from differs("ratio", f"{metric.name}: overlap", speed_up.overlaps, overlaps)
    yield from differs("ratio", f"{metric.name}: samples", speed_up.n, min(own.n, base.n))


def _numbers(figure: MetricFigure) -> tuple[float, float, float]:
    values = (figure.low, figure.median, figure.high)
    low, middle, high = (0.0 if isinstance(v, Absent) else v for v in values)
    return low, middle, high


def _gaps(report: ResultsReport) -> int:
    """Return dashes of jobs that the platform was to run."""
    status = {
        (line.id, at): cell.status
        for group in report.groups
        for line in group.lines
        for at, cell in enumerate(line.cells)
    }
    found = 0
    for section in report.sections:
        rows: list[tuple[CheckFact | MetricFigure | Absent, ...]] = [
            *(row.cells for row in section.checks),
            *(row.cells for row in section.metrics),
        ]
        found += sum(
            isinstance(cell, Absent) and isinstance(status.get((section.job, at)), Status)
            for row in rows
            for at, cell in enumerate(row)
        )
        found += sum(
            isinstance(sweep.table, Absent) and isinstance(status.get((section.job, at)), Status)
            for at, sweep in enumerate(section.sweeps)
        )
    return found


def _slower(report: ResultsReport) -> int:
    return sum(
        isinstance(one, SpeedUp)
        and not isinstance(one.ratio, Absent)
        and one.ratio < 1
        and not one.overlaps
        for section in report.sections
        for metric in section.metrics
        for one in metric.speed_ups
    )


def _money(report: ResultsReport) -> Iterator[RuleFinding]:
    known = [c for column in report.columns if not isinstance(c := column.money.costs, Absent)]
    yield from sum_of(report.costs, [costs.bill for costs in known], what="platforms")
    if not isinstance(report.costs, Absent):
        yield from added_rule(report.costs, known)
        tests = [
            cell.tests
            for group in report.groups
            for line in group.lines
            for cell in line.cells
            if not isinstance(cell.tests, Absent)
        ]
        found = sum(tally.passed + tally.failed for tally in tests)
        yield from differs("total", "validated tests", report.costs.validated, found)
