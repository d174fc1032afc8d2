"""Metrics of jobs: samples, median and spread in tables, and comparisons across platforms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.paired_samples import spread_of
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.grouping import ColumnKey, RowKey, columns_of, is_ratio, layout_of, split_name
from reports.model.backend import (
    SIMILAR_PERCENT,
    BenchmarkBlock,
    MetricComparison,
    MetricEntry,
    MetricSection,
    ReferenceDifference,
)
from reports.model.blocks import Hardware
from reports.model.comparison import ComparedRow, Comparison
from reports.model.metrics import MetricFigure, MetricLine, MetricTable, PairedFigure, Params
from reports.model.summary import SummaryRow
from reports.model.values import Absent
from reports.views.machine import job_status

ROWS_SHOWN = 40
"""Sets of parameters in one table."""

COLUMNS_SHOWN = 8
"""Metrics in one table."""

BASELINE_KEYS = ("baseline", "reference", "against", "versus", "vs")
"""Parameters that name the baseline of a ratio."""

Found = Mapping[RowKey, Mapping[ColumnKey, MetricFact]]


def metrics_of(cell: CellRecord) -> tuple[MetricTable, ...]:
    """Return the metrics of each job that has any."""
    return tuple(table_of(job) for job in cell.jobs if job.metrics)


def baseline_of(fact: MetricFact) -> str | None:
    """Return the baseline that a metric names, or None."""
    named = (fact.params.get(key) for key in BASELINE_KEYS)
    return next((words(value) for value in named if value not in (None, "")), None)


def words(value: object) -> str:
    """Format a parameter's value, equally on every database."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def params_of(params: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return parameters sorted by name, without the baseline's name."""
    return tuple((k, words(v)) for k, v in sorted(params.items()) if k not in BASELINE_KEYS)


def table_of(job: JobRecord) -> MetricTable:
    """Return the metrics of one job as a table."""
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
    """Return the metrics by row and column; a repeated metric has its last report."""
    found: dict[RowKey, dict[ColumnKey, MetricFact]] = {}
    for fact in job.metrics:
        prefix, leaf = split_name(fact.name)
        row = found.setdefault((prefix, params_of(fact.params)), {})
        row[leaf, fact.unit, fact.direction, baseline_of(fact) or ""] = fact
    return found


def paired_of(cell: CellRecord) -> tuple[PairedFigure, ...]:
    """Return the metrics of paired benchmarks beside their baselines."""
    return tuple(_paired(job, pairs) for job in cell.jobs for pairs in job.pairs)


def _paired(job: JobRecord, pairs: Pairs) -> PairedFigure:
    return PairedFigure(
        job=job.id,
        title=job.title or job.id,
        metric=pairs.metric,
        unit=pairs.unit,
        direction=pairs.direction,
        subject=_figure(pairs.metric, pairs.subject),
        baseline=_figure(pairs.metric, pairs.baseline),
        slower_percent=100 * pairs.slowdown,
        remarks=pairs.remarks,
    )


def _line(key: RowKey, facts: list[MetricFact | None]) -> MetricLine:
    prefix, params = key
    cells = (None if fact is None else metric_figure(fact) for fact in facts)
    return MetricLine(prefix, params, tuple(cells))


def metric_figure(fact: MetricFact) -> MetricFigure:
    """Return the value of one metric with one set of parameters."""
    return _figure(fact.name, fact.samples)


def _figure(name: str, samples: tuple[float, ...]) -> MetricFigure:
    spread = spread_of(samples)
    none = Absent("no samples" if not samples else "a sample is not a finite number")
    return MetricFigure(
        name=name,
        samples=samples,
        n=len(samples),
        median=spread.median if spread else none,
        low=spread.low if spread else none,
        high=spread.high if spread else none,
        spread=spread.kind if spread else "none",
    )


ENTRIES_SHOWN = 200
"""Metrics that are listed of one job on one platform."""
CHECKS_SHOWN = 60
CONTRASTS_SHOWN = 200

Key = tuple[str, str, str, Params, str, str]
"""Job, section, name, parameters, unit, direction."""


def benchmark_jobs(cell: CellRecord) -> tuple[JobRecord, ...]:
    """Return the benchmarks with metrics or checks."""
    return tuple(j for j in cell.jobs if j.kind == "benchmark" and (j.metrics or j.checks))


def block_of(cell: CellRecord, job: JobRecord, *, label: str, alone: bool) -> BenchmarkBlock:
    """Return one benchmark on one platform."""
    entries = entries_of(job)
    shown = list(entries.items())[:ENTRIES_SHOWN]
    titles = dict.fromkeys(key[1] for key, _ in shown)
    checks = job.checks[:CHECKS_SHOWN]
    return BenchmarkBlock(
        cell=cell.id,
        label=label,
        job=job.id,
        title=job.title or job.id,
        status=job_status(job, cell),
        sections=tuple(
            MetricSection(title, tuple(entry for key, entry in shown if key[1] == title))
            for title in titles
        ),
        checks=tuple(checks),
        hidden=len(entries) - len(shown) + len(job.checks) - len(checks),
        alone=alone,
    )


def entries_of(job: JobRecord) -> dict[Key, MetricEntry]:
    """Return its metrics by key; a repeated metric has its last report."""
    return {_key(fact): _entry(fact) for fact in job.metrics}


def _key(fact: MetricFact) -> Key:
    section, name = _named(fact)
    return fact.job, section, name, _params(fact), fact.unit, fact.direction


def _named(fact: MetricFact) -> tuple[str, str]:
    """Return section and name: the section is a parameter, or the part before the last slash."""
    said = fact.params.get("section")
    return (said, fact.name) if isinstance(said, str) and said else split_name(fact.name)


def _params(fact: MetricFact) -> Params:
    params = {name: value for name, value in fact.params.items() if name != "section"}
    baseline = baseline_of(fact)
    return params_of(params) + ((("vs", baseline),) if baseline else ())


def _entry(fact: MetricFact) -> MetricEntry:
    name = _named(fact)[1]
    return MetricEntry(name, _params(fact), fact.unit, fact.direction, metric_figure(fact))


def contrasts_of(
    cells: Sequence[tuple[CellRecord, Hardware]],
) -> tuple[tuple[MetricComparison, ...], int]:
    """Return every metric of several platforms, and the number of metrics left out."""
    found: dict[Key, dict[int, MetricEntry]] = {}
    for column, (cell, _) in enumerate(cells):
        for job in benchmark_jobs(cell):
            for key, entry in entries_of(job).items():
                if _comparable(entry):
                    found.setdefault(key, {})[column] = entry
    made = [_contrast(k, row, cells) for k, row in found.items() if len(row) > 1]
    return tuple(made[:CONTRASTS_SHOWN]), max(0, len(made) - CONTRASTS_SHOWN)


def _comparable(entry: MetricEntry) -> bool:
    """Whether a ratio names its baseline, so that it can be compared."""
    named = any(name == "vs" for name, _ in entry.params)
    return not isinstance(entry.figure.median, Absent) and (named or not is_ratio(entry.unit))


def _contrast(
    key: Key, row: dict[int, MetricEntry], cells: Sequence[tuple[CellRecord, Hardware]]
) -> MetricComparison:
    job, section, name, params, unit, direction = key
    first = min(row, key=lambda i: (not cells[i][1].is_accelerator_evidence, i))
    return MetricComparison(
        job=job,
        section=section,
        name=name,
        params=params,
        unit=unit,
        direction=direction,
        figures=tuple(row[i].figure if i in row else None for i in range(len(cells))),
        reference=cells[first][0].id,
        differences=tuple(_difference(i, first, row, cells) for i in sorted(row) if i != first),
    )


def _difference(
    column: int,
    first: int,
    row: dict[int, MetricEntry],
    cells: Sequence[tuple[CellRecord, Hardware]],
) -> ReferenceDifference:
    mine, reference = row[column].figure, row[first].figure
    percent = apart(mine.median, reference.median)
    overlap = mine.n > 1 and reference.n > 1 and mine.overlaps(reference)
    near = not isinstance(percent, Absent) and percent <= SIMILAR_PERCENT
    return ReferenceDifference(
        cell=cells[column][0].id,
        percent=percent,
        better=_better(row, column, first, cells),
        similar=near or overlap,
        same_stack=cells[column][1].stack == cells[first][1].stack,
    )


def apart(one: float | Absent, other: float | Absent) -> float | Absent:
    """``100 * (1 - smaller / larger)``."""
    if isinstance(one, Absent) or isinstance(other, Absent):
        return Absent("not measured")
    low, high = sorted((one, other))
    if low < 0 or not high:
        return Absent("not comparable as a ratio")
    return 100 * (1 - low / high)


def _better(
    row: dict[int, MetricEntry],
    column: int,
    first: int,
    cells: Sequence[tuple[CellRecord, Hardware]],
) -> str:
    mine, other = row[column].figure.median, row[first].figure.median
    direction = row[first].direction
    if isinstance(mine, Absent) or isinstance(other, Absent) or mine == other:
        return ""
    if direction not in ("higher", "lower"):
        return ""
    return cells[column if (mine > other) == (direction == "higher") else first][0].id


COMPARISONS_SHOWN = 60
"""Metrics that are compared in one report."""

ComparisonKey = tuple[str, str, str, str, str, Params]


def compare(
    cells: Sequence[tuple[SummaryRow, Sequence[MetricFact]]],
) -> tuple[tuple[Comparison, ...], int]:
    """Return the comparable metrics in reported order, and the number of further ones."""
    found: dict[ComparisonKey, list[tuple[SummaryRow, MetricFigure]]] = {}
    for cell, facts in cells:
        for key, row in _last_rows(facts).items():
            found.setdefault(key, []).append((cell, row))
    made = [_comparison(key, rows) for key, rows in found.items() if len(rows) > 1]
    return tuple(made[:COMPARISONS_SHOWN]), max(0, len(made) - COMPARISONS_SHOWN)


def _last_rows(facts: Sequence[MetricFact]) -> dict[ComparisonKey, MetricFigure]:
    """Return the metrics by key; a repeated metric has its last report.

    Ratios without a named baseline are left out, because they cannot be compared.
    """
    rows = {}
    for fact in facts:
        row, baseline = metric_figure(fact), baseline_of(fact)
        if isinstance(row.median, Absent) or (is_ratio(fact.unit) and baseline is None):
            continue
        key = (fact.job, fact.name, fact.unit, fact.direction, baseline or "")
        rows[(*key, params_of(fact.params))] = row
    return rows


def _comparison(key: ComparisonKey, rows: Sequence[tuple[SummaryRow, MetricFigure]]) -> Comparison:
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
    cell: SummaryRow, row: MetricFigure, first_cell: SummaryRow, first: MetricFigure, direction: str
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
    """Return the ratio to the reference; above 1 is better."""
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


def stack_words(cell: SummaryRow) -> str:
    """``torch 2.7.0+cu128, CUDA 12.8``."""
    torch, name, runtime = cell.hardware.stack
    has_runtime = not isinstance(cell.hardware.runtime, Absent)
    return f"torch {torch}, {name} {runtime}" if has_runtime else f"torch {torch}"
