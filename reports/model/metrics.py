"""Metrics as tables: a row is a set of parameters, a column is a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from reports.model.values import Absent

Params = tuple[tuple[str, str], ...]
"""By name, sorted."""

KEYS_SHOWN = 6
"""Parameters that get a column each; more of them share one."""


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """The meaning of one column's figures."""

    name: str
    """The last part of the metric's name."""
    unit: str
    direction: str
    ratio: bool
    baseline: str | Absent | None
    """The baseline of a ratio, or a text that distinguishes the column; else None."""


@dataclass(frozen=True, slots=True)
class MetricFigure:
    """One metric with one set of parameters."""

    name: str
    """In full."""
    samples: tuple[float, ...]
    n: int
    median: float | Absent
    low: float | Absent
    high: float | Absent
    spread: str
    """``iqr`` from five samples on, ``range`` below that, ``none`` of one."""

    def overlaps(self, other: MetricFigure) -> bool:
        """Whether both spreads share a value; a bound that is absent counts as 0."""
        bounds = (self.low, self.high, other.low, other.high)
        low, high, other_low, other_high = (0.0 if isinstance(b, Absent) else b for b in bounds)
        return low <= other_high and other_low <= high


Figure = TypeVar("Figure")


@dataclass(frozen=True, slots=True)
class ParameterLine(Generic[Figure]):
    """The line of one set of parameters."""

    prefix: str
    """The metrics' names without their last part."""
    params: Params
    cells: tuple[Figure | None, ...]
    """By column; None if nothing was measured with these parameters."""


@dataclass(frozen=True, slots=True)
class MetricLine(ParameterLine[MetricFigure]):
    """Everything that was measured with one set of parameters."""

    @property
    def figures(self) -> tuple[MetricFigure, ...]:
        """The cells with values."""
        return tuple(cell for cell in self.cells if cell is not None)

    @property
    def n(self) -> int:
        """Samples of each figure, where that is one number."""
        return self.figures[0].n


@dataclass(frozen=True, slots=True)
class MetricTable:
    """The metrics of one job."""

    job: str
    title: str
    kind: str
    """The job's."""
    columns: tuple[MetricColumn, ...]
    named: bool
    """Whether the metric's names distinguish the rows as well."""
    keys: tuple[str, ...]
    """Derived: parameters that differ between the rows."""
    fixed: Params
    """Derived: parameters that all rows share."""
    rows: tuple[MetricLine, ...]
    hidden: int
    """Figures that are not shown."""
    repeated: int
    """Number of figures that a later report of the same metric and parameters replaces."""

    @property
    def packed(self) -> bool:
        """Whether the parameters that differ share one column."""
        return len(self.keys) > KEYS_SHOWN

    @property
    def samples_in(self) -> str:
        """Return the place that shows the number of samples: `caption`, `column` or `cells`."""
        return samples_in([[figure.n for figure in row.figures] for row in self.rows])


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """A metric of a paired benchmark, whose turns alternated with its baseline's."""

    job: str
    title: str
    metric: str
    """With its parameters, where others have its name."""
    unit: str
    direction: str
    subject: MetricFigure
    """A sample for each pair."""
    baseline: MetricFigure
    slower_percent: float
    """Derived: the median over the pairs; negative where the subject is faster."""
    remarks: tuple[str, ...]

    @property
    def change(self) -> str:
        """The change in words: ``1.3% slower``."""
        word = "slower" if self.slower_percent > 0 else "faster"
        return f"{abs(self.slower_percent):.1f}% {word}"


def samples_in(rows: Sequence[Sequence[int]]) -> str:
    """Return `caption` if all counts are equal, `column` if equal per row, else `cells`."""
    if any(len(set(row)) != 1 for row in rows):
        return "cells"
    return "caption" if len({row[0] for row in rows}) == 1 else "column"
