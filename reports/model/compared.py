"""Comparisons of single metrics, laid out as tables: platforms below each other, a column each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.grouping import columns_of, layout_of, split_name
from reports.model.metrics import KEYS_SHOWN, MetricColumn, Params, samples_in
from reports.model.values import Absent

COLUMNS_SHOWN = 6
"""Metrics that stand beside each other; the next ones get a table of their own."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One cell's value of a compared metric."""

    cell: str
    accelerator: str
    stack: str
    median: float
    low: float
    high: float
    n: int
    spread: str
    """``iqr``, ``range`` or ``none``."""
    relative: float | Absent
    """Derived from unrounded medians: above 1 is better than the reference, whatever the unit."""
    overlaps: bool
    """Derived: whether the spread touches the reference's."""
    same_stack: bool
    """Derived: whether torch and its runtime are the reference's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric with the same parameters on several cells."""

    job: str
    title: str
    metric: str
    unit: str
    direction: str
    baseline: str
    """What a ratio is relative to; empty where the metric is no ratio."""
    reference: str
    """The cell that the others are set against."""
    params: Params
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A figure in a table of comparisons."""

    row: ComparedRow
    is_reference: bool


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One platform with one set of parameters."""

    prefix: str
    params: Params
    cells: tuple[ComparedCell | None, ...]
    """By column."""

    @property
    def known(self) -> tuple[ComparedRow, ...]:
        """The cells that hold something."""
        return tuple(cell.row for cell in self.cells if cell is not None)

    @property
    def n(self) -> int:
        """Samples of each figure, where that is one number."""
        return self.known[0].n


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """The comparisons of one job."""

    title: str
    columns: tuple[MetricColumn, ...]
    named: bool
    keys: tuple[str, ...]
    fixed: Params
    rows: tuple[ComparedLine, ...]

    @property
    def packed(self) -> bool:
        """Whether the parameters that differ share one column."""
        return len(self.keys) > KEYS_SHOWN

    @property
    def samples_in(self) -> str:
        """Where the number of samples is said."""
        return samples_in([[row.n for row in line.known] for line in self.rows])


def tables_of(
    comparisons: Sequence[Comparison], cells: Sequence[str]
) -> tuple[ComparisonTable, ...]:
    """Lay comparisons out by job, the cells in their order."""
    jobs: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        jobs.setdefault(comparison.job, []).append(comparison)
    return tuple(table for job in jobs.values() for table in _of_job(job, cells))


def _key(comparison: Comparison) -> tuple[str, str, str, str]:
    leaf = split_name(comparison.metric)[1]
    return leaf, comparison.unit, comparison.direction, comparison.baseline


def _of_job(job: Sequence[Comparison], cells: Sequence[str]) -> Iterator[ComparisonTable]:
    keys = list(dict.fromkeys(_key(comparison) for comparison in job))
    for start in range(0, len(keys), COLUMNS_SHOWN):
        chosen = keys[start : start + COLUMNS_SHOWN]
        yield _table([c for c in job if _key(c) in chosen], chosen, cells)


def _table(
    job: Sequence[Comparison], keys: Sequence[tuple[str, str, str, str]], cells: Sequence[str]
) -> ComparisonTable:
    found: dict[tuple[str, Params], dict[tuple[str, int], ComparedCell]] = {}
    for comparison in job:
        row = found.setdefault((split_name(comparison.metric)[0], comparison.params), {})
        for measured in comparison.rows:
            cell = ComparedCell(measured, measured.cell == comparison.reference)
            row[measured.cell, keys.index(_key(comparison))] = cell
    layout = layout_of(list(found))
    lines = (
        ComparedLine(prefix, params, tuple(row.get((cell, at)) for at in range(len(keys))))
        for (prefix, params), row in found.items()
        for cell in cells
        if any(name == cell for name, _ in row)
    )
    return ComparisonTable(
        job[0].title, columns_of(keys), layout.named, layout.keys, layout.fixed, tuple(lines)
    )
