"""Rules about metrics: figures from samples, tables from rows, throughput from times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.domain.run_record import CellRecord
from reports.model.comparison import ComparedRow, Comparison
from reports.model.metrics import MetricColumn, MetricFigure, MetricLine, MetricTable, PairedFigure
from reports.model.values import Absent
from reports.rules.blocks import RuleFinding, close, differs

TOLERANCE = 0.01
_TOKENS = frozenset({"tok/s", "token/s", "tokens/s"})
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BATCH = ("batch", "batch_size")
_SEQUENCE = ("seq", "seq_len", "sequence", "sequence_length")


def throughput_rule(tables: Sequence[MetricTable]) -> Iterator[RuleFinding]:
    """Check that a throughput is explained by a time of the same job and parameters.

    Where a table does not show every figure, the time that explains it may be among the others.
    """
    for table in tables:
        for line in table.rows if not table.hidden else ():
            for column, figure in zip(table.columns, line.cells, strict=False):
                if figure is not None and column.unit.lower() in _TOKENS:
                    yield from _judge(table, line, column, figure)


def _judge(
    table: MetricTable, line: MetricLine, column: MetricColumn, figure: MetricFigure
) -> Iterator[RuleFinding]:
    found = list(_expected(line, table))
    if found and not any(_agrees(figure, expected) for expected in found):
        params = ", ".join(f"{k}={v}" for k, v in line.params)
        message = (
            f"{table.job}: {figure.name} ({params}) is {figure.median} {column.unit}, "
            f"but batch x sequence / time is {found[0]:.6g}"
        )
        yield "warning", "throughput", message


def _agrees(figure: MetricFigure, expected: float) -> bool:
    return not isinstance(figure.median, Absent) and (
        abs(figure.median - expected) <= TOLERANCE * abs(expected)
    )


def _expected(line: MetricLine, table: MetricTable) -> Iterator[float]:
    tokens = _tokens(dict(line.params))
    for other in table.rows:
        if tokens is None or other.params != line.params:
            continue
        for column, figure in zip(table.columns, other.cells, strict=False):
            scale = _SECONDS.get(column.unit)
            if scale is None or figure is None or isinstance(figure.median, Absent):
                continue
            if figure.median:
                yield tokens / (figure.median * scale)


def _tokens(params: Mapping[str, str]) -> float | None:
    batch = _first(params, _BATCH)
    sequence = _first(params, _SEQUENCE)
    return batch * sequence if batch is not None and sequence is not None else None


def _first(params: Mapping[str, str], names: Sequence[str]) -> float | None:
    said = next((params[name] for name in names if name in params), "")
    return float(said) if said.isdigit() else None


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation; shares 0 and 1 are the extremes."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def figure_rule(part: MetricFigure) -> Iterator[RuleFinding]:
    """Number of samples, middle and spread."""
    yield from differs("samples", "n", part.n, len(part.samples))
    if isinstance(part.median, Absent) or not part.samples:
        measured = bool(part.samples) and all(abs(s) < 1e300 for s in part.samples)
        yield from differs("samples", "absent", isinstance(part.median, Absent), not measured)
        return
    ordered = sorted(part.samples)
    low, high = (0.25, 0.75) if len(ordered) >= 5 else (0.0, 1.0)
    for name, share in (("low", low), ("median", 0.5), ("high", high)):
        said, found = getattr(part, name), quantile(ordered, share)
        if isinstance(said, Absent) or not close(said, found):
            yield "error", "samples", f"{name} is {said}, recomputed {found}"
    kind = "none" if len(ordered) == 1 else "iqr" if len(ordered) >= 5 else "range"
    yield from differs("samples", "kind of spread", part.spread, kind)


def table_rule(part: MetricTable) -> Iterator[RuleFinding]:
    """Check that figures are in their metric's column, and parameters are shown once."""
    for line in part.rows:
        yield from _line(line, part)
    for column in part.columns:
        yield from _column(column, part.job)
    if not part.rows:
        yield "error", "table", f"{part.job} has a table without a row"
        return
    shared = set(part.rows[0].params).intersection(*(row.params for row in part.rows))
    yield from differs("table", f"{part.job}: shared parameters", set(part.fixed), shared)
    own = {name for row in part.rows for name, _ in set(row.params) - shared}
    yield from differs("table", f"{part.job}: differing parameters", set(part.keys), own)
    said = [(row.params, row.prefix if part.named else "") for row in part.rows]
    yield from differs("table", f"{part.job}: rows that differ", len(set(said)), len(part.rows))
    if part.hidden < 0 or part.repeated < 0:
        yield "error", "table", f"{part.job} has fewer figures than are shown"


def _line(line: MetricLine, table: MetricTable) -> Iterator[RuleFinding]:
    yield from differs("table", "cells of a row", len(line.cells), len(table.columns))
    for column, cell in zip(table.columns, line.cells, strict=False):
        if cell is not None:
            name = f"{line.prefix}/{column.name}" if line.prefix else column.name
            yield from differs("table", "the metric of a cell", cell.name, name)
    if not any(line.cells):
        yield "error", "table", f"a row of {table.job} has no figure"


def _column(column: MetricColumn, job: str) -> Iterator[RuleFinding]:
    """Check that a ratio names its baseline, and a column its direction."""
    if isinstance(column.baseline, Absent):
        yield "warning", "baseline", f"{column.name} of {job} is a ratio that names no baseline"
    elif column.ratio and not column.baseline:
        yield "error", "baseline", f"{column.name} of {job} is a ratio of nothing"
    if column.direction not in ("higher", "lower"):
        yield "warning", "direction", f"{column.name} of {job} does not say what is better"


def reported_rule(tables: Sequence[MetricTable], cell: CellRecord) -> Iterator[RuleFinding]:
    """Check that every value was reported, and that hidden ones are counted."""
    for table in tables:
        facts = [fact for job in cell.jobs if job.id == table.job for fact in job.metrics]
        known = Counter((f.name, f.unit, f.direction, _exact(f.samples)) for f in facts)
        shown = 0
        for line in table.rows:
            for column, figure in zip(table.columns, line.cells, strict=False):
                if figure is None:
                    continue
                shown += 1
                key = (figure.name, column.unit, column.direction, _exact(figure.samples))
                if not known[key]:
                    yield "error", "reported", f"{figure.name} of {table.job} was not reported so"
        found = len(facts) - shown
        yield from differs("reported", "figures not shown", table.hidden + table.repeated, found)


def compared_rule(
    comparison: Comparison, row: ComparedRow, first: ComparedRow
) -> Iterator[RuleFinding]:
    """Check a platform's ratio to the reference, and whether their spreads overlap."""
    if not isinstance(row.relative, Absent):
        a, b = row.median, first.median
        found = a / b if comparison.direction == "higher" else b / a
        if not close(row.relative, found):
            message = f"{row.cell}: {comparison.metric} is {row.relative}x, recomputed {found}x"
            yield "error", "comparison", message
    overlaps = max(row.low, first.low) <= min(row.high, first.high)
    yield from differs("comparison", f"{row.cell}: overlap", row.overlaps, overlaps)


def paired_rule(figures: Sequence[PairedFigure], cell: CellRecord) -> Iterator[RuleFinding]:
    """Check each change against the turns of both arms."""
    turns = {
        (job.id, pairs.metric): list(zip(pairs.subject, pairs.baseline, strict=True))
        for job in cell.jobs
        for pairs in job.pairs
    }
    yield from differs("reported", "paired metrics", len(figures), len(turns))
    for one in figures:
        pairs = turns.get((one.job, one.metric), [])
        shown = list(zip(one.subject.samples, one.baseline.samples, strict=True))
        yield from differs("reported", f"{one.job}: turns of {one.metric}", shown, pairs)
        higher = one.direction == "higher"
        slower = sorted((b / s if higher else s / b) for s, b in pairs)
        if slower and not close(one.slower_percent, 100 * (quantile(slower, 0.5) - 1)):
            yield "error", "comparison", f"{one.metric} is {one.slower_percent}% slower"


def _exact(samples: Sequence[float]) -> tuple[str, ...]:
    """Return samples as text, since not-a-number does not equal itself."""
    return tuple(repr(sample) for sample in samples)


METRIC_RULES: dict[type, Callable[[Any], Iterator[RuleFinding]]] = {
    MetricFigure: figure_rule,
    MetricTable: table_rule,
}
"""By the type of the part."""
