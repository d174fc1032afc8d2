"""Metrics in words: heads of columns, cells, captions, and one line for a summary."""

from __future__ import annotations

from orchestrator.domain import units
from orchestrator.domain.event_facts import CheckFact
from reports import format as fmt
from reports.grouping import telling
from reports.model.comparison import ComparedCell, ComparisonTable
from reports.model.metrics import MetricColumn, MetricFigure, MetricLine, MetricTable, Params
from reports.model.values import Absent

FIGURES_IN_A_LINE = 6
"""Figures of one row that a summary's line holds."""

KEYS_IN_A_LINE = 3
"""Parameters that a summary's line names."""

_SPREADS = {"iqr": "IQR", "range": "min – max"}


def heading(column: MetricColumn) -> str:
    """``latency (ms, lower is better)``."""
    said = [column.unit] if column.unit else []
    if isinstance(column.baseline, Absent):
        said.append("baseline not named")
    elif column.baseline is not None:
        said = [" ".join([*said, "vs", column.baseline])]
    if column.direction:
        said.append(f"{column.direction} is better")
    return f"{column.name} ({', '.join(said)})" if said else column.name


def figure(cell: MetricFigure | None, *, with_n: bool = False) -> str:
    """Format a figure as ``249.7 (216.5 – 303)``; a dash without a measurement."""
    if cell is None:
        return "—"
    if isinstance(cell.median, Absent):
        return fmt.absent(cell.median)
    return _spread(cell.median, cell.low, cell.high, cell.n if with_n else None, cell.n == 1)


def _spread(
    median: float, low: float | Absent, high: float | Absent, n: int | None, single: bool
) -> str:
    beside = [] if single else [f"{fmt.number(low)} – {fmt.number(high)}"]
    beside += [] if n is None else [f"n={fmt.count(n)}"]
    return f"{fmt.number(median)} ({'; '.join(beside)})" if beside else fmt.number(median)


def compared(cell: ComparedCell | None, *, with_n: bool = False) -> str:
    """``7.806 (7.728 – 7.855), 0.559x ≈ †``."""
    if cell is None:
        return "—"
    row = cell.row
    said = _spread(row.median, row.low, row.high, row.n if with_n else None, row.n == 1)
    if cell.is_reference:
        return f"{said}, reference"
    marks = (" ≈" if row.overlaps else "") + ("" if row.same_stack else " †")
    return f"{said}, {fmt.ratio(row.relative)}{marks}"


def caption(table: MetricTable | ComparisonTable) -> str:
    """Return the meaning of a table's figures: ``Median (IQR) of 50 samples each``."""
    if isinstance(table, ComparisonTable):
        said = [(row.spread, row.n) for line in table.rows for row in line.known]
    else:
        said = [(cell.spread, cell.n) for row in table.rows for cell in row.figures]
    return _caption({kind for kind, _ in said}, {n for _, n in said}, table.samples_in)


def _caption(kinds: set[str], counts: set[int], where: str) -> str:
    spreads = [word for kind, word in _SPREADS.items() if kind in kinds]
    if max(counts) < 2:
        return "One sample each." if counts == {1} else ""
    beside = " or, below five samples, ".join(spreads)
    said = f"Median ({beside})" if beside else "Median"
    if where == "caption" and len(counts) == 1:
        return f"{said} of {fmt.plural(max(counts), 'sample')} each."
    return f"{said} of n samples."


def differing(params: Params, fixed: Params) -> Params:
    """Return the parameters that distinguish a row."""
    return tuple(pair for pair in params if pair not in set(fixed))


def highlight(table: MetricTable, row: MetricLine) -> str:
    """Format a row of metrics as one line: ``MoE Throughput, hidden=512: 16,406 tokens/s``."""
    pairs = list(zip(table.columns, row.cells, strict=True))
    said = [_value(table, column, cell) for column, cell in pairs if cell is not None]
    more = len(said) - FIGURES_IN_A_LINE
    rest = [f"and {fmt.count(more)} more"] if more > 0 else []
    label = ", ".join([table.title, *_label(table, row)])
    return f"{label}: {', '.join(said[:FIGURES_IN_A_LINE] + rest)}"


def _label(table: MetricTable, row: MetricLine) -> list[str]:
    params = dict(row.params)
    keys = [key for key in telling([r.params for r in table.rows], table.keys) if key in params]
    named = [row.prefix] if table.named and row.prefix else []
    if named and len({r.prefix for r in table.rows}) == len(table.rows):
        return named
    return named + [f"{key}={params[key]}" for key in keys[:KEYS_IN_A_LINE]]


def _value(table: MetricTable, column: MetricColumn, cell: MetricFigure) -> str:
    alone = [other.unit for other in table.columns].count(column.unit) == 1
    joint = "" if column.unit in ("x", "×", "") else " "
    unit = "" if isinstance(cell.median, Absent) else f"{joint}{column.unit}"
    said = f"{fmt.number(cell.median)}{unit}"
    if isinstance(column.baseline, str):
        said = f"{said} vs {column.baseline}"
    if column.ratio:
        said = f"{said} (n={fmt.count(cell.n)})"
    return said if alone and column.unit and not column.ratio else f"{column.name} {said}"


def check_value(line: CheckFact) -> str:
    """Format a check's value, never rounded onto its tolerance."""
    return units.measured(line.value, apart_from=line.tolerance) or "—"


def check_tolerance(line: CheckFact) -> str:
    """Format a check's tolerance."""
    return units.measured(line.tolerance) or "—"
