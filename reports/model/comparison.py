"""The compare report: pairs of cells, and their metrics laid out as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.grouping import grouped
from reports.grouping import columns_of, layout_of, split_name
from reports.model.metrics import (
    KEYS_SHOWN,
    MetricColumn,
    MetricFigure,
    ParameterLine,
    Params,
    samples_in,
)
from reports.model.values import Absent, ReportModel, Status, Tally

CATEGORIES = (
    "new_failure", "still_failing", "fixed", "newly_skipped", "missing", "hidden", "changed", "new",
    "gone",
)  # fmt: skip
"""What may become of a test, the worst first; one that is the same is in none of them."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    run_id: str
    subject: str
    version: str
    wheel_sha256: str | Absent
    payload_sha256: str | Absent
    date: datetime
    status: Status
    cells: int
    cost_usd: Decimal | Absent


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """A difference of the environments."""

    what: str
    base: str
    head: str


@dataclass(frozen=True, slots=True)
class Change:
    """A changed test or check."""

    job: str
    name: str
    before: str | Absent
    after: str | Absent
    message: str


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes of one category."""

    category: str
    count: int
    """Derived: ``len(shown) + hidden``."""
    shown: tuple[Change, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The tests of two cells, or their checks, by name."""

    base: int
    """Derived: ``head`` is this number with the added tests and without the removed ones."""
    head: int
    same: tuple[tuple[str, int], ...]
    """By outcome, how many are as they were."""
    groups: tuple[ChangeGroup, ...]
    """One for each category. Derived: with the same ones they are all names of both sides."""
    came: int
    """Names that only the head has, of all groups."""
    went: int
    """Names that only the base has."""
    confirmed: int
    """Number of names of the base with a confirmed new name."""
    maybe: tuple[tuple[str, str, str], ...]
    """(old, new, change): names that may be one renamed test; unconfirmed."""

    def of(self, category: str) -> ChangeGroup:
        """Return the group of a category; an empty one if it is missing."""
        mine = (group for group in self.groups if group.category == category)
        return next(mine, ChangeGroup(category, 0, (), 0))

    @property
    def unchanged(self) -> int:
        """Return the number of unchanged ones."""
        return sum(count for _, count in self.same)

    @property
    def notable(self) -> tuple[ChangeGroup, ...]:
        """The groups that are not empty."""
        return tuple(group for group in self.groups if group.count)


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job whose outcome, or the way it ran, is not as it was."""

    job: str
    title: str
    before: Status | Absent
    after: Status | Absent


@dataclass(frozen=True, slots=True)
class MetricDelta:
    """One metric with one set of parameters in both runs."""

    job: str
    title: str
    metric: str
    unit: str
    direction: str
    against: str
    """What a ratio is relative to; empty if the metric is no ratio."""
    params: Params
    base: MetricFigure
    head: MetricFigure
    percent: float | Absent
    """Derived from unrounded medians: ``100 * (head / base - 1)``."""
    relative: float | Absent
    """Derived from unrounded medians: above 1 the head is better, in every unit."""
    overlaps: bool
    """Derived: whether the spreads touch."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``alike``, or why the comparison is not possible."""
        if self.base.n < 2 or self.head.n < 2:
            return "a single sample says nothing of spread"
        if self.overlaps:
            return "alike: the spreads touch"
        if isinstance(self.relative, Absent):
            return "differs"
        return "better" if self.relative > 1 else "worse"


@dataclass(frozen=True, slots=True)
class PairedCell:
    """A cell of the base and the one of the head that it is set against."""

    base_cell: str
    head_cell: str
    heading: str
    matched: str
    """``cell id``, ``platform``, or ``only cell`` of both runs."""
    base_status: Status
    head_status: Status
    base_tally: Tally | Absent
    head_tally: Tally | Absent
    environment: tuple[EnvironmentChange, ...]
    environment_hidden: int
    silent: tuple[str, ...]
    """``base``, ``head``: those that did not report their environment; then none is compared."""
    same_stack: bool
    """Derived: whether torch and its runtime are the same."""
    base_stack: str
    head_stack: str
    jobs: tuple[JobChange, ...]
    jobs_same: int
    tests: Changes
    unnamed_base: int
    """Number of the base's tests without names, which cannot be compared one by one."""
    unnamed_head: int
    checks: Changes
    metrics: tuple[MetricDelta, ...]
    """Those that are not alike."""
    metrics_alike: int
    metrics_hidden: int
    metrics_came: int
    metrics_went: int
    base_usd: Decimal | Absent
    head_usd: Decimal | Absent
    usd_difference: Decimal | Absent
    """Derived: head - base."""

    @property
    def is_stack_known(self) -> bool:
        """Whether both sides reported torch and its runtime."""
        return "unknown" not in f"{self.base_stack} {self.head_stack}".split()


@dataclass(frozen=True, slots=True)
class UnmatchedCell:
    """A cell that only one of the runs has."""

    cell: str
    heading: str
    status: Status
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReport(ReportModel):
    """The comparison of two runs."""

    base: Side
    head: Side
    subject_difference: str
    """How the subjects' wheels differ although their versions do not; empty if they do not."""
    pairs: tuple[PairedCell, ...]
    base_only: tuple[UnmatchedCell, ...]
    head_only: tuple[UnmatchedCell, ...]
    totals: tuple[tuple[str, int], ...]
    """By category. Derived: tests of all pairs."""
    unchanged: int
    """Derived: tests of all pairs that are as they were."""
    better: int
    """Derived: metrics whose spreads do not touch, and that are better."""
    worse: int
    usd_difference: Decimal | Absent
    """Derived: head - base."""

    @property
    def extremes(self) -> tuple[tuple[str, PairedCell, MetricDelta], ...]:
        """Return the metric that got worse by most and the one that got better by most, if any."""
        judged = [
            (delta.relative, pair, delta)
            for pair in self.pairs
            for delta in pair.metrics
            if delta.verdict in ("worse", "better") and not isinstance(delta.relative, Absent)
        ]
        worse = [one for one in judged if one[2].verdict == "worse"]
        better = [one for one in judged if one[2].verdict == "better"]
        found = []
        if worse:
            found.append(("worst", *min(worse, key=lambda one: one[0])[1:]))
        if better:
            found.append(("best", *max(better, key=lambda one: one[0])[1:]))
        return tuple(found)


COLUMNS_SHOWN = 6
"""Maximum number of metrics side by side; further ones are in separate tables."""


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
    """Derived from unrounded medians: above 1 is better than the reference, in every unit."""
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
    """What a ratio is relative to; empty if the metric is no ratio."""
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
class ComparedLine(ParameterLine[ComparedCell]):
    """The figures of one set of parameters, each compared with the reference."""

    @property
    def known(self) -> tuple[ComparedRow, ...]:
        """The cells with values."""
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
        """Return the place that shows the number of samples."""
        return samples_in([[row.n for row in line.known] for line in self.rows])


def tables_of(
    comparisons: Sequence[Comparison], cells: Sequence[str]
) -> tuple[ComparisonTable, ...]:
    """Lay comparisons out by job, the cells in their order."""
    jobs = grouped((comparison.job, comparison) for comparison in comparisons)
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
