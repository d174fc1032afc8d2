"""Comparisons of two runs as phrases: changes of tests, of metrics and of environments."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from reports import format as fmt
from reports import side_by_side_text
from reports.model.backend import (
    BackendPlatform,
    ClassCell,
    MetricComparison,
    MetricEntry,
    TestCell,
)
from reports.model.comparison import MetricDelta
from reports.model.metrics import MetricFigure
from reports.model.origin import Origin, bare, letters
from reports.model.results import MetricAcross
from reports.model.values import Absent, ReportModel, Status
from reports.side_by_side_text import exact_figure

SKIPS_NAMED = 3
"""Maximum skipped tests that a cell of the class table names."""

_TIMES = frozenset({"s", "ms", "us", "µs", "ns", "min"})


def class_cell(cell: ClassCell | None) -> str:
    """``✅ PASSED, 1 skipped (test_a)``; a dash where the platform has no such class."""
    if cell is None:
        return "—"
    tally = cell.tally
    said = [fmt.outcome(cell.code)]
    for name in ("failed", "error", "missing", "not_run", "xfailed", "xpassed"):
        n = getattr(tally, name)
        said += [fmt.counted(n, name)] if n else []
    if tally.skipped:
        said.append(f"{fmt.count(tally.skipped)} skipped{_named(cell)}")
    return ", ".join(said)


def _named(cell: ClassCell) -> str:
    shown = cell.skipped[:SKIPS_NAMED]
    more = cell.tally.skipped - len(shown)
    rest = [f"and {fmt.count(more)} more"] if more else []
    return f" ({', '.join([*shown, *rest])})" if shown else ""


def test_cell(cell: TestCell | None) -> str:
    """``skipped (requires specific GPU)``; a dash where the platform has no such test."""
    if cell is None:
        return "—"
    word = fmt.test_outcome(cell.outcome)
    return f"{word} ({cell.reason})" if cell.reason else word


def measured_entry(entry: MetricFigure | None, unit: str = "") -> str:
    """Format a measured value with its spread: ``0.2956 ms``."""
    if entry is None:
        return "—"
    joint = "" if unit in ("x", "×", "") else " "
    if isinstance(entry.median, Absent) or entry.n == 1:
        return f"{exact_figure(entry)}{joint}{unit}"
    head, _, rest = exact_figure(entry).partition(" (")
    return f"{head}{joint}{unit} ({rest}"


def entry_name(entry: MetricEntry | MetricComparison) -> str:
    """Return the metric's name with its parameters."""
    return f"{entry.name}, {fmt.pairs(entry.params)}" if entry.params else entry.name


def difference(contrast: MetricComparison, platforms: Sequence[BackendPlatform]) -> str:
    """``AWS NVIDIA A10G 5.8% faster †``, a part for each platform but the reference."""
    labels = {platform.cell: platform.label for platform in platforms}
    many = len(contrast.differences) > 1
    every = range(len(contrast.differences))
    return "; ".join(_difference(contrast, index, labels, many) for index in every)


def _difference(contrast: MetricComparison, index: int, labels: dict[str, str], many: bool) -> str:
    said = contrast.differences[index]
    mark = "" if said.same_stack else " †"
    if isinstance(said.percent, Absent):
        return fmt.absent(said.percent)
    apart = fmt.percent(said.percent)
    if said.similar or not said.better:
        word = "Similar" if said.similar else "Differs"
        whose = f"{labels[said.cell]}: " if many else ""
        return f"{whose}{word} ({apart}){mark}"
    against = f" than {labels[contrast.reference if said.better == said.cell else said.cell]}"
    return f"{labels[said.better]} {apart} {_better(contrast)}{against if many else ''}{mark}"


def _better(contrast: MetricComparison) -> str:
    if contrast.direction == "higher":
        return "higher"
    return "faster" if contrast.unit in _TIMES else "lower"


def stamped(stamp: str, report: ReportModel) -> str:
    """Return the fault of a name and version in a file; empty without one."""
    name, _, version = stamp.rpartition(" ")
    wrong = ["name"] if letters(name) != letters(report.subject) else []
    wrong += ["version"] if bare(version) != bare(report.version) else []
    return f"Another {' and another '.join(wrong)}"


def counted(value: int | Absent) -> str:
    """Return ``48``; a dash where it is unknown."""
    return "—" if isinstance(value, Absent) else fmt.count(value)


def evidence_line(origin: Origin) -> str:
    """``7 files ingested, parsed text; not attested``."""
    if not origin.files:
        return "a person's word, and no file; not attested"
    said = f"{fmt.plural(origin.files, 'file')} ingested"
    if len(origin.kinds) == 1:
        return f"{said}, {origin.kinds[0][0]}; not attested"
    parts = ", ".join(f"{fmt.count(n)} {kind}" for kind, n in origin.kinds)
    return f"{said}{f' ({parts})' if parts else ''}; not attested"


_CATEGORIES = {
    "new_failure": "New failures",
    "still_failing": "Still failing",
    "fixed": "Fixed",
    "newly_skipped": "Newly skipped",
    "missing": "Missing",
    "hidden": "Unknown: only counted, or behind a collection error",
    "changed": "Changed otherwise",
    "new": "Newly collected",
    "gone": "Gone",
}


def category_name(category: str) -> str:
    """Return a category's heading: ``New failures``."""
    return _CATEGORIES.get(category, category)


@fmt.or_absent
def change_usd(value: Decimal) -> str:
    """Format a change of costs: ``+$0.0120``."""
    sign = "-" if value < 0 else "+"
    return f"{sign}{fmt.part(abs(value))}"


@fmt.or_absent
def signed_percent(value: float) -> str:
    """Format a relative change: ``+5.8%``."""
    return f"{value:+.1f}%" if abs(value) >= 0.1 or value == 0 else f"{value:+.2g}%"


def status_or_absent(value: Status | Absent) -> str:
    """Return a status, or why there is none."""
    return fmt.absent(value) if isinstance(value, Absent) else fmt.status(value)


def delta_name(row: MetricDelta) -> str:
    """``MoE Benchmark: time (ms, lower is better), hidden=512``."""
    named = MetricAcross(row.metric, row.unit, row.direction, row.params, row.against, "", (), ())
    return f"{row.title}: {side_by_side_text.metric_name(named)}"
