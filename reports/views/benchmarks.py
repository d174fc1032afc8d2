"""Metrics: every sample, its middle and its spread, grouped by what varies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.domain.facts import MetricFact
from orchestrator.domain.record import CellRecord, JobRecord
from reports.model.parts import MetricGroup, MetricRow
from reports.model.values import Absent
from reports.spread import spread_of

ROWS_SHOWN = 100
"""Rows of one metric."""

COLUMNS = 6
"""Parameters that get a column of their own; beyond that they share one."""

RATIO_UNITS = frozenset({"x", "×", "ratio"})
BASELINE_KEYS = ("baseline", "reference", "against", "versus", "vs")
"""Parameters in which a ratio says what it is relative to."""


def metrics_of(cell: CellRecord) -> tuple[MetricGroup, ...]:
    """Every metric of every job, in the order in which they were first reported."""
    groups: list[MetricGroup] = []
    for job in cell.jobs:
        by_key: dict[tuple[str, str, str, str], list[MetricFact]] = {}
        for fact in job.metrics:
            key = (fact.name, fact.unit, fact.direction, baseline_of(fact) or "")
            by_key.setdefault(key, []).append(fact)
        groups += [_group(job, facts) for facts in by_key.values()]
    return tuple(groups)


def baseline_of(fact: MetricFact) -> str | None:
    """What a metric says that it is relative to."""
    named = (fact.params.get(key) for key in BASELINE_KEYS)
    return next((words(value) for value in named if value not in (None, "")), None)


def is_ratio(unit: str) -> bool:
    """Whether the unit is that of a ratio."""
    return unit.strip().lower() in RATIO_UNITS


def words(value: object) -> str:
    """A parameter as text, the same on every database."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def params_of(params: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Parameters sorted by name, without the baseline's name."""
    return tuple((k, words(v)) for k, v in sorted(params.items()) if k not in BASELINE_KEYS)


def _group(job: JobRecord, facts: Sequence[MetricFact]) -> MetricGroup:
    rows = [metric_row(fact) for fact in facts]
    fixed = _shared(rows)
    varying = sorted({pair[0] for row in rows for pair in row.params} - {k for k, _ in fixed})
    first = facts[0]
    return MetricGroup(
        job=job.id,
        title=job.title or job.id,
        name=first.name,
        unit=first.unit,
        direction=first.direction,
        baseline=_baseline(first),
        columns=tuple(varying) if len(varying) <= COLUMNS else (),
        fixed=fixed,
        rows=tuple(rows[:ROWS_SHOWN]),
        hidden=max(0, len(rows) - ROWS_SHOWN),
    )


def _baseline(fact: MetricFact) -> str | Absent | None:
    if not is_ratio(fact.unit):
        return None
    return baseline_of(fact) or Absent("the job does not name it")


def _shared(rows: Iterable[MetricRow]) -> tuple[tuple[str, str], ...]:
    every = [row.params for row in rows]
    return tuple(pair for pair in every[0] if all(pair in params for params in every))


def metric_row(fact: MetricFact) -> MetricRow:
    """One metric with one set of parameters."""
    spread = spread_of(fact.samples)
    none = Absent("no samples" if not fact.samples else "a sample is no finite number")
    return MetricRow(
        params=params_of(fact.params),
        samples=fact.samples,
        n=len(fact.samples),
        median=spread.median if spread else none,
        low=spread.low if spread else none,
        high=spread.high if spread else none,
        spread=spread.kind if spread else "none",
    )
