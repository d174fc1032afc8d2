"""Metrics of two runs: from unrounded medians, with spreads, sample counts and overlaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.facts import MetricFact
from orchestrator.domain.run_record import CellRecord
from reports.grouping import is_ratio
from reports.model.compare import MetricDelta
from reports.model.metrics import MetricFigure, Params
from reports.model.values import Absent
from reports.views.benchmarks import baseline_of, metric_figure, params_of
from reports.views.metric_comparison import relative

SHOWN = 80
"""Metrics that are listed of one cell; those that got worse by most come first."""

Key = tuple[str, str, str, str, str, Params]
"""Job, name, unit, direction, what it is relative to, parameters."""


@dataclass(frozen=True, slots=True)
class Deltas:
    """The metrics of two cells."""

    shown: tuple[MetricDelta, ...]
    alike: int
    hidden: int
    came: int
    went: int


def deltas_of(old: CellRecord, new: CellRecord, names: Mapping[str, str]) -> Deltas:
    """Compare what both cells measured; `names` says what a job is called in the base."""
    before, after = _facts(old, {}), _facts(new, names)
    titles = {names.get(job.id, job.id): job.title or job.id for job in new.jobs}
    both = [_delta(key, before[key], after[key], titles) for key in after if key in before]
    differing = sorted((delta for delta in both if not _is_alike(delta)), key=_badness)
    return Deltas(
        shown=tuple(differing[:SHOWN]),
        alike=len(both) - len(differing),
        hidden=len(differing[SHOWN:]),
        came=len(after) - len(both),
        went=len(before) - len(both),
    )


def _facts(cell: CellRecord, names: Mapping[str, str]) -> dict[Key, MetricFact]:
    """What was reported again, by a later attempt, stands as it was reported last."""
    return {
        _key(fact, names.get(job.id, job.id)): fact for job in cell.jobs for fact in job.metrics
    }


def _key(fact: MetricFact, job: str) -> Key:
    against = (baseline_of(fact) or "") if is_ratio(fact.unit) else ""
    return job, fact.name, fact.unit, fact.direction, against, params_of(fact.params)


def _delta(key: Key, old: MetricFact, new: MetricFact, titles: Mapping[str, str]) -> MetricDelta:
    job, name, unit, direction, against, params = key
    base, head = metric_figure(old), metric_figure(new)
    return MetricDelta(
        job=job,
        title=titles.get(job, job),
        metric=name,
        unit=unit,
        direction=direction,
        against=against,
        params=params,
        base=base,
        head=head,
        percent=_percent(base.median, head.median),
        relative=_relative(base.median, head.median, direction),
        overlaps=_overlap(base, head),
    )


def _percent(base: float | Absent, head: float | Absent) -> float | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two is not a finite number")
    return 100 * (head / base - 1) if base else Absent("division by zero")


def _relative(base: float | Absent, head: float | Absent, direction: str) -> float | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two is not a finite number")
    return relative(head, base, direction)


def _overlap(base: MetricFigure, head: MetricFigure) -> bool:
    ends = (base.low, base.high, head.low, head.high)
    low, high, other_low, other_high = (0.0 if isinstance(e, Absent) else e for e in ends)
    return low <= other_high and other_low <= high


def _is_alike(delta: MetricDelta) -> bool:
    """Spreads that touch; single samples are alike only where they are equal."""
    unknown = isinstance(delta.base.median, Absent) or isinstance(delta.head.median, Absent)
    return delta.overlaps and not unknown


def _badness(delta: MetricDelta) -> float:
    """Rounded, so that equal ones stay in the order in which they were reported."""
    return 1.0 if isinstance(delta.relative, Absent) else round(delta.relative, 3)
