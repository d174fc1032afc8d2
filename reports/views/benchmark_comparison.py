"""Benchmarks platform by platform, and what differs between the platforms."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.facts import MetricFact
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.grouping import is_ratio, split_name
from reports.model.backend import SIMILAR_PERCENT, Block, Contrast, Difference, Entry, Section
from reports.model.blocks import CheckLine, Hardware
from reports.model.metrics import MetricFigure, Params
from reports.model.values import Absent
from reports.views.benchmarks import baseline_of, metric_figure, params_of
from reports.views.machine import job_status

ENTRIES_SHOWN = 200
"""Metrics that are listed of one job on one platform."""
CHECKS_SHOWN = 60
CONTRASTS_SHOWN = 200

Key = tuple[str, str, str, Params, str, str]
"""Job, section, name, parameters, unit, direction."""


def benchmark_jobs(cell: CellRecord) -> tuple[JobRecord, ...]:
    """Those that said something."""
    return tuple(j for j in cell.jobs if j.kind == "benchmark" and (j.metrics or j.checks))


def block_of(cell: CellRecord, job: JobRecord, *, label: str, alone: bool) -> Block:
    """One benchmark on one platform."""
    entries = entries_of(job)
    shown = list(entries.items())[:ENTRIES_SHOWN]
    titles = dict.fromkeys(key[1] for key, _ in shown)
    checks = job.checks[:CHECKS_SHOWN]
    return Block(
        cell=cell.id,
        label=label,
        job=job.id,
        title=job.title or job.id,
        status=job_status(job, cell),
        sections=tuple(
            Section(title, tuple(entry for key, entry in shown if key[1] == title))
            for title in titles
        ),
        checks=tuple(
            CheckLine(c.name, c.outcome, c.value, c.unit, c.tolerance, c.reason) for c in checks
        ),
        hidden=len(entries) - len(shown) + len(job.checks) - len(checks),
        alone=alone,
    )


def entries_of(job: JobRecord) -> dict[Key, Entry]:
    """Its metrics; one that was reported again stands as it was reported last."""
    return {_key(fact): _entry(fact) for fact in job.metrics}


def _key(fact: MetricFact) -> Key:
    section, name = _named(fact)
    return fact.job, section, name, _params(fact), fact.unit, fact.direction


def _named(fact: MetricFact) -> tuple[str, str]:
    """A section is a parameter of that name, or what stands before the last slash."""
    said = fact.params.get("section")
    return (said, fact.name) if isinstance(said, str) and said else split_name(fact.name)


def _params(fact: MetricFact) -> Params:
    params = {name: value for name, value in fact.params.items() if name != "section"}
    baseline = baseline_of(fact)
    return params_of(params) + ((("vs", baseline),) if baseline else ())


def _entry(fact: MetricFact) -> Entry:
    name = _named(fact)[1]
    return Entry(name, _params(fact), fact.unit, fact.direction, metric_figure(fact))


def contrasts_of(
    cells: Sequence[tuple[CellRecord, Hardware]],
) -> tuple[tuple[Contrast, ...], int]:
    """Every metric that several platforms reported, and how many more there are."""
    found: dict[Key, dict[int, Entry]] = {}
    for column, (cell, _) in enumerate(cells):
        for job in benchmark_jobs(cell):
            for key, entry in entries_of(job).items():
                if _comparable(entry):
                    found.setdefault(key, {})[column] = entry
    made = [_contrast(k, row, cells) for k, row in found.items() if len(row) > 1]
    return tuple(made[:CONTRASTS_SHOWN]), max(0, len(made) - CONTRASTS_SHOWN)


def _comparable(entry: Entry) -> bool:
    """A ratio that does not name its baseline cannot be compared with anything."""
    named = any(name == "vs" for name, _ in entry.params)
    return not isinstance(entry.figure.median, Absent) and (named or not is_ratio(entry.unit))


def _contrast(
    key: Key, row: dict[int, Entry], cells: Sequence[tuple[CellRecord, Hardware]]
) -> Contrast:
    job, section, name, params, unit, direction = key
    first = min(row, key=lambda i: (not cells[i][1].is_accelerator_evidence, i))
    return Contrast(
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
    column: int, first: int, row: dict[int, Entry], cells: Sequence[tuple[CellRecord, Hardware]]
) -> Difference:
    mine, reference = row[column].figure, row[first].figure
    percent = apart(mine.median, reference.median)
    overlap = mine.n > 1 and reference.n > 1 and _overlap(mine, reference)
    near = not isinstance(percent, Absent) and percent <= SIMILAR_PERCENT
    return Difference(
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


def _overlap(mine: MetricFigure, other: MetricFigure) -> bool:
    bounds = (mine.low, mine.high, other.low, other.high)
    low, high, other_low, other_high = (0.0 if isinstance(b, Absent) else b for b in bounds)
    return low <= other_high and other_low <= high


def _better(
    row: dict[int, Entry], column: int, first: int, cells: Sequence[tuple[CellRecord, Hardware]]
) -> str:
    mine, other = row[column].figure.median, row[first].figure.median
    direction = row[first].direction
    if isinstance(mine, Absent) or isinstance(other, Absent) or mine == other:
        return ""
    if direction not in ("higher", "lower"):
        return ""
    return cells[column if (mine > other) == (direction == "higher") else first][0].id
