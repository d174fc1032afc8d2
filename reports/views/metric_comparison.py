"""The same metric on several cells: relative figures, with what else differs said beside them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.facts import MetricFact
from reports.grouping import is_ratio
from reports.model.compared import ComparedRow, Comparison
from reports.model.metrics import MetricFigure, Params
from reports.model.summary import CellRow
from reports.model.values import Absent
from reports.views.benchmarks import baseline_of, metric_figure, params_of

COMPARISONS_SHOWN = 60
"""Metrics that are compared in one report."""

Key = tuple[str, str, str, str, str, Params]


def compare(
    cells: Sequence[tuple[CellRow, Sequence[MetricFact]]],
) -> tuple[tuple[Comparison, ...], int]:
    """Return what is comparable, in the order in which it was first reported, and how many more."""
    found: dict[Key, list[tuple[CellRow, MetricFigure]]] = {}
    for cell, facts in cells:
        for key, row in _last_rows(facts).items():
            found.setdefault(key, []).append((cell, row))
    made = [_comparison(key, rows) for key, rows in found.items() if len(rows) > 1]
    return tuple(made[:COMPARISONS_SHOWN]), max(0, len(made) - COMPARISONS_SHOWN)


def _last_rows(facts: Sequence[MetricFact]) -> dict[Key, MetricFigure]:
    """A metric that was reported again, by a later attempt, stands as it was reported last.

    A ratio that does not name its baseline cannot be compared with anything.
    """
    rows = {}
    for fact in facts:
        row, baseline = metric_figure(fact), baseline_of(fact)
        if isinstance(row.median, Absent) or (is_ratio(fact.unit) and baseline is None):
            continue
        key = (fact.job, fact.name, fact.unit, fact.direction, baseline or "")
        rows[(*key, params_of(fact.params))] = row
    return rows


def _comparison(key: Key, rows: Sequence[tuple[CellRow, MetricFigure]]) -> Comparison:
    job, name, unit, direction, baseline, params = key
    accelerators = [pair for pair in rows if pair[0].hardware.is_accelerator_evidence]
    first_cell, first = (accelerators or rows)[0]
    titles = {table.job: table.title for table in first_cell.metrics}
    return Comparison(
        job=job,
        title=titles.get(job, job),
        metric=name,
        unit=unit,
        direction=direction,
        baseline=baseline,
        reference=first_cell.cell,
        params=params,
        rows=tuple(_row(cell, row, first_cell, first, direction) for cell, row in rows),
    )


def _row(
    cell: CellRow, row: MetricFigure, first_cell: CellRow, first: MetricFigure, direction: str
) -> ComparedRow:
    median, low, high = _figures(row)
    middle, first_low, first_high = _figures(first)
    return ComparedRow(
        cell=cell.cell,
        accelerator=cell.accelerator,
        stack=stack_words(cell),
        median=median,
        low=low,
        high=high,
        n=row.n,
        spread=row.spread,
        relative=relative(median, middle, direction),
        overlaps=low <= first_high and first_low <= high,
        same_stack=cell.hardware.stack == first_cell.hardware.stack,
    )


def relative(value: float, reference: float, direction: str) -> float | Absent:
    """Above 1 is better: `value / reference`, or its inverse where lower is better."""
    if direction not in ("higher", "lower"):
        return Absent("the direction is not known")
    over, under = (value, reference) if direction == "higher" else (reference, value)
    return over / under if under else Absent("division by zero")


def _figures(row: MetricFigure) -> tuple[float, float, float]:
    if (
        isinstance(row.median, Absent)
        or isinstance(row.low, Absent)
        or isinstance(row.high, Absent)
    ):
        raise TypeError("only measured rows are compared")
    return row.median, row.low, row.high


def stack_words(cell: CellRow) -> str:
    """``torch 2.7.0+cu128, CUDA 12.8``."""
    torch, name, runtime = cell.hardware.stack
    has_runtime = not isinstance(cell.hardware.runtime, Absent)
    return f"torch {torch}, {name} {runtime}" if has_runtime else f"torch {torch}"
