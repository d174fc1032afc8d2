"""Tables of platforms side by side, in words: cells, their marks, and the notes below them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Protocol

from orchestrator.domain.event_facts import CheckFact
from reports import format as fmt
from reports import metric_text
from reports.model.metrics import MetricFigure, Params
from reports.model.results import JobCell, MetricAcross, ResultsReport, SpeedUp, is_partial
from reports.model.values import Absent

DIGITS_KEPT = 6
"""Significant digits; a figure that was reported with fewer is printed as reported."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_OUTCOMES = frozenset({"passed", "failed", "skipped"})
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_KINDS = {
    "use-case": ("Use Case Results", "Use Case"),
    "suite": ("Test Suite Results", "Test Suite"),
    "demo": ("Demo Results", "Demo"),
    "benchmark": ("Benchmark Results", "Benchmark"),
}


class Footnoted(Protocol):
    """A report with notes below its tables."""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Reasons, in their order."""


def kind_heading(kind: str) -> str:
    """Return the heading of a kind of job: ``Use Case Results``."""
    return _KINDS.get(kind, (f"{kind} Results", kind))[0]


def kind_name(kind: str) -> str:
    """Return the name of a kind of job: ``Use Case``."""
    return _KINDS.get(kind, ("", kind))[1]


def note_mark(number: int) -> str:
    """Return the mark of a footnote: ``¹``."""
    return str(number).translate(_SUPERSCRIPT)


def _dash(value: Absent, report: Footnoted) -> str:
    return f"—{note_mark(report.footnotes.index(value.reason) + 1)}"


def noted(value: str | Absent, report: Footnoted, before: str = "") -> str:
    """Return a text; for an absent value, a dash with the number of its footnote."""
    if isinstance(value, Absent):
        return _dash(value, report)
    return f"{before} {value}".strip()


def memory_noted(value: int | Absent, report: Footnoted) -> str:
    """Format bytes in decimal and binary units."""
    return _dash(value, report) if isinstance(value, Absent) else fmt.memory(value)


def job_cell(cell: JobCell, report: Footnoted) -> str:
    """``✅ PASSED, 14/14 checks``."""
    if isinstance(cell.status, Absent):
        return _dash(cell.status, report)
    said = [fmt.status(cell.status)]
    if not isinstance(cell.checks, Absent):
        said.append(fmt.checks(cell.checks))
    if not isinstance(cell.tests, Absent):
        said.append(f"{fmt.share(cell.tests.rate)} judged tests")
        beside = (("skipped", cell.tests.skipped), ("missing", cell.tests.missing))
        said += [f"{fmt.count(n)} {name}" for name, n in beside if n]
    if cell.figures:
        said.append(fmt.plural(cell.figures, "figure"))
    return ", ".join(said) + (" §" if cell.bare else "")


def check_cell(cell: CheckFact | Absent, report: Footnoted) -> str:
    """``✅ PASSED: 0.000355 max_diff ‡``."""
    if isinstance(cell, Absent):
        return _dash(cell, report)
    said = fmt.outcome(cell.outcome) if cell.outcome in _OUTCOMES else cell.outcome
    if is_partial(cell):
        said = "◐ PARTIAL"
    if cell.value:
        said += f": {_sentence(cell)}{f' {cell.unit}' if cell.unit else ''}"
        if cell.tolerance:
            said += f", tolerance {cell.tolerance}"
        elif _is_measured(cell.value):
            said += " ‡"
    return f"{said} ({cell.reason})" if cell.reason else said


def _sentence(cell: CheckFact) -> str:
    return cell.value if _digits(cell.value) <= DIGITS_KEPT else metric_text.check_value(cell)


def _is_measured(value: str) -> bool:
    """Whether it is a number and no count."""
    return bool(_NUMBER.fullmatch(value)) and not value.lstrip("+-").isdigit()


def _digits(value: str) -> int:
    if not _NUMBER.fullmatch(value):
        return 0
    return len(value.lower().partition("e")[0].replace(".", "").strip("+-").lstrip("0"))


def metric_name(row: MetricAcross, fixed: Params = ()) -> str:
    """Format a metric's name: ``latency (ms, lower is better), hidden=512``."""
    said = [row.unit] if row.unit else []
    said += [f"vs {row.against}"] if row.against else []
    said += [f"{row.direction} is better"] if row.direction else []
    beside = f" ({', '.join(said)})" if said else ""
    own = metric_text.differing(row.params, fixed)
    return f"{row.name}{beside}{f', {fmt.pairs(own)}' if own else ''}"


def metric_cell(row: MetricAcross, at: int, report: Footnoted) -> str:
    """``2,016.6 (1.01x vs Baseline latency)``."""
    cell = row.cells[at]
    if isinstance(cell, Absent):
        return _dash(cell, report)
    if isinstance(cell.median, Absent):
        return _dash(cell.median, report)
    speed_up = row.speed_ups[at] if row.speed_ups else Absent("")
    said = exact_figure(cell, with_n=cell.n > 1)
    return said if isinstance(speed_up, Absent) else f"{said}{_against(row, speed_up)}"


def _against(row: MetricAcross, speed_up: SpeedUp) -> str:
    if isinstance(speed_up.ratio, Absent):
        return f", {fmt.absent(speed_up.ratio)}"
    said = f", {fmt.ratio(speed_up.ratio)} of {row.baseline}"
    if speed_up.n < 2:
        return f"{said} (n={fmt.count(speed_up.n)})"
    word = "worse" if speed_up.ratio < 1 else "better" if speed_up.ratio > 1 else "the same"
    return f"{said}: {word}{' ≈' if speed_up.overlaps else ''}"


def exact_figure(cell: MetricFigure | None, *, with_n: bool = False) -> str:
    """Format a single value as it was reported if that is short, else rounded."""
    if cell is None or isinstance(cell.median, Absent) or cell.n != 1:
        return metric_text.figure(cell, with_n=with_n)
    return exact(cell.median)


def exact(value: float) -> str:
    """``2,045.8``: as reported where that has few digits, else four of them."""
    said = repr(value)
    short = math.isfinite(value) and _digits(said.removesuffix(".0")) <= DIGITS_KEPT
    if not short or not (value == 0 or 1e-4 <= abs(value) < 1e15):
        return fmt.number(value)
    plain = Decimal(said.removesuffix(".0"))
    return f"{plain:,f}"


def marked(report: ResultsReport) -> str:
    """Return the marks in the report's tables of checks and metrics."""
    cells = [check_cell(x, report) for s in report.sections for row in s.checks for x in row.cells]
    for section in report.sections:
        for row in section.metrics:
            cells += [metric_cell(row, at, report) for at in range(len(row.cells))]
    for group in report.groups:
        cells += [job_cell(cell, report) for line in group.lines for cell in line.cells]
    return "".join(mark for mark in "§‡≈" if any(mark in cell for cell in cells))
