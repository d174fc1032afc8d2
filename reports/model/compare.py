"""The compare report: what changed between two runs, cell by cell and test by test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from reports.model.metrics import MetricFigure, Params
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
    date: datetime
    status: Status
    cells: int
    cost_usd: Decimal | Absent


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """Something about the machine or its software that differs."""

    what: str
    base: str
    head: str


@dataclass(frozen=True, slots=True)
class Change:
    """One test, or one check, that is not as it was."""

    job: str
    name: str
    before: str | Absent
    after: str | Absent
    message: str


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Everything of one category."""

    category: str
    count: int
    """Derived: ``len(shown) + hidden``."""
    shown: tuple[Change, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The tests of two cells, or their checks, by name."""

    base: int
    """Derived: with those that came and without those that went, it comes to ``head``."""
    head: int
    same: tuple[tuple[str, int], ...]
    """By outcome, how many are as they were."""
    groups: tuple[ChangeGroup, ...]
    """One for each category. Derived: with the same ones they are all names of both sides."""
    came: int
    """Names that only the head has, in whatever group they are."""
    went: int
    """Names that only the base has."""
    confirmed: int
    """Names of the base that stand under their new ones, as persons confirmed them."""
    maybe: tuple[tuple[str, str, str], ...]
    """(old, new, change): names that may be one test that was moved; nobody confirmed it."""

    def of(self, category: str) -> ChangeGroup:
        """The group of a category; an empty one where it has none."""
        mine = (group for group in self.groups if group.category == category)
        return next(mine, ChangeGroup(category, 0, (), 0))

    @property
    def unchanged(self) -> int:
        """How many are as they were."""
        return sum(count for _, count in self.same)

    @property
    def notable(self) -> tuple[ChangeGroup, ...]:
        """Groups that hold something."""
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
    """What a ratio is relative to; empty where the metric is no ratio."""
    params: Params
    base: MetricFigure
    head: MetricFigure
    percent: float | Absent
    """Derived from unrounded medians: ``100 * (head / base - 1)``."""
    relative: float | Absent
    """Derived from unrounded medians: above 1 the head is better, whatever the unit."""
    overlaps: bool
    """Derived: whether the spreads touch."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``alike`` or why that cannot be said."""
        if self.base.n < 2 or self.head.n < 2:
            return "a single sample says nothing of spread"
        if self.overlaps:
            return "alike: the spreads touch"
        if isinstance(self.relative, Absent):
            return "differs"
        return "better" if self.relative > 1 else "worse"


@dataclass(frozen=True, slots=True)
class CellPair:
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
    same_stack: bool
    """Derived: whether torch and its runtime are the same."""
    base_stack: str
    head_stack: str
    jobs: tuple[JobChange, ...]
    jobs_same: int
    tests: Changes
    unnamed_base: int
    """Tests that the base counts without naming them: nothing can be said of each."""
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


@dataclass(frozen=True, slots=True)
class Lonely:
    """A cell that only one of the runs has."""

    cell: str
    heading: str
    status: Status
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReport(ReportModel):
    """Two runs."""

    base: Side
    head: Side
    pairs: tuple[CellPair, ...]
    base_only: tuple[Lonely, ...]
    head_only: tuple[Lonely, ...]
    totals: tuple[tuple[str, int], ...]
    """By category. Derived: tests of all pairs."""
    unchanged: int
    """Derived: tests of all pairs that are as they were."""
    better: int
    """Derived: metrics whose spreads do not touch, and that are better."""
    worse: int
    usd_difference: Decimal | Absent
    """Derived: head - base."""
