"""Metrics: every sample, its middle and its spread, in one table for each job."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.domain.facts import MetricFact
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.domain.spread import spread_of
from reports.grouping import ColumnKey, RowKey, columns_of, layout_of, split_name
from reports.model.metrics import MetricFigure, MetricLine, MetricTable
from reports.model.values import Absent

ROWS_SHOWN = 40
"""Sets of parameters in one table."""

COLUMNS_SHOWN = 8
"""Metrics in one table."""

BASELINE_KEYS = ("baseline", "reference", "against", "versus", "vs")
"""Parameters in which a ratio says what it is relative to."""

Found = Mapping[RowKey, Mapping[ColumnKey, MetricFact]]


def metrics_of(cell: CellRecord) -> tuple[MetricTable, ...]:
    """The metrics of every job that has some."""
    return tuple(table_of(job) for job in cell.jobs if job.metrics)


def baseline_of(fact: MetricFact) -> str | None:
    """What a metric says that it is relative to."""
    named = (fact.params.get(key) for key in BASELINE_KEYS)
    return next((words(value) for value in named if value not in (None, "")), None)


def words(value: object) -> str:
    """A parameter as text, the same on every database."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def params_of(params: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Parameters sorted by name, without the baseline's name."""
    return tuple((k, words(v)) for k, v in sorted(params.items()) if k not in BASELINE_KEYS)


def table_of(job: JobRecord) -> MetricTable:
    """The metrics of one job, which has some."""
    found = _found(job)
    keys = list(dict.fromkeys(key for row in found.values() for key in row))[:COLUMNS_SHOWN]
    chosen = [row for row, facts in found.items() if any(key in facts for key in keys)][:ROWS_SHOWN]
    rows = tuple(_line(row, [found[row].get(key) for key in keys]) for row in chosen)
    layout = layout_of(chosen)
    distinct = sum(len(facts) for facts in found.values())
    return MetricTable(
        job=job.id,
        title=job.title or job.id,
        kind=job.kind,
        columns=columns_of(keys),
        named=layout.named,
        keys=layout.keys,
        fixed=layout.fixed,
        rows=rows,
        hidden=distinct - sum(len(row.figures) for row in rows),
        repeated=len(job.metrics) - distinct,
    )


def _found(job: JobRecord) -> Found:
    """What was reported again, by a later attempt, stands as it was reported last."""
    found: dict[RowKey, dict[ColumnKey, MetricFact]] = {}
    for fact in job.metrics:
        prefix, leaf = split_name(fact.name)
        row = found.setdefault((prefix, params_of(fact.params)), {})
        row[leaf, fact.unit, fact.direction, baseline_of(fact) or ""] = fact
    return found


def _line(key: RowKey, facts: list[MetricFact | None]) -> MetricLine:
    prefix, params = key
    cells = (None if fact is None else metric_figure(fact) for fact in facts)
    return MetricLine(prefix, params, tuple(cells))


def metric_figure(fact: MetricFact) -> MetricFigure:
    """One metric with one set of parameters."""
    spread = spread_of(fact.samples)
    none = Absent("no samples" if not fact.samples else "a sample is not a finite number")
    return MetricFigure(
        name=fact.name,
        samples=fact.samples,
        n=len(fact.samples),
        median=spread.median if spread else none,
        low=spread.low if spread else none,
        high=spread.high if spread else none,
        spread=spread.kind if spread else "none",
    )
