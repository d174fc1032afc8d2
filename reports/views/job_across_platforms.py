"""One job on every platform: its checks and its metrics side by side, and its sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.domain.facts import CheckFact, MetricFact
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.grouping import is_ratio, layout_of, split_name
from reports.model.blocks import CheckLine
from reports.model.metrics import MetricFigure, Params
from reports.model.results import CheckAcross, MetricAcross, Section, SpeedUp, Sweep
from reports.model.values import Absent
from reports.views.benchmarks import baseline_of, metric_figure, params_of, table_of
from reports.views.metric_comparison import relative

CHECKS_SHOWN = 80
"""Checks of one job."""
METRICS_SHOWN = 80
"""Metrics of one job that stand side by side."""
SWEEP_FROM = 3
"""Sets of parameters from which on figures are a sweep, with a table for each platform."""
BASELINE_PREFIX = "baseline_"
"""`moe/baseline_latency` is what `moe/latency` is set against."""

LACKS_JOB = Absent("not assigned to this platform")
NOT_TOLD = Absent("this job is not in the ingested files")
NOT_MEASURED = Absent("not measured on this platform")

Key = tuple[str, str, str, str, Params]
"""Name, unit, direction, what it is relative to, parameters."""
Facts = Mapping[Key, MetricFact]


def section_of(name: str, cells: Sequence[CellRecord], headings: Sequence[str]) -> Section:
    """Everything that a job said, on every platform."""
    jobs = [next((job for job in cell.jobs if job.id == name), None) for cell in cells]
    known = [job for job in jobs if job is not None]
    facts = [_facts(job) for job in jobs]
    keys = list(dict.fromkeys(key for found in facts for key in found))
    swept = _swept(facts)
    beside = [key for key in keys if _family(key) not in swept]
    checks = list(dict.fromkeys(check.name for job in known for check in job.checks))
    first = known[0]
    return Section(
        job=name,
        kind=first.kind,
        title=first.title or name,
        checks=tuple(_check(check, jobs, cells) for check in checks[:CHECKS_SHOWN]),
        checks_hidden=len(checks[CHECKS_SHOWN:]),
        metrics=tuple(
            _metric(key, list(zip(cells, jobs, facts, strict=True)), keys)
            for key in beside[:METRICS_SHOWN]
        ),
        fixed=_fixed([key[-1] for key in beside[:METRICS_SHOWN]]),
        metrics_hidden=len(beside[METRICS_SHOWN:]),
        sweeps=_sweeps(cells, headings, jobs, swept),
        degraded=tuple(
            (heading, job.degraded)
            for heading, job in zip(headings, jobs, strict=True)
            if job is not None and job.degraded is not None
        ),
    )


def _fixed(rows: Sequence[Params]) -> Params:
    """Parameters that every row has, with one value."""
    return layout_of([("", params) for params in rows]).fixed


def gaps_of(sections: Sequence[Section]) -> int:
    """Values that one platform has, and another, which was to run the job, has not."""
    values: list[object] = []
    for section in sections:
        values += [cell for check in section.checks for cell in check.cells]
        values += [cell for metric in section.metrics for cell in metric.cells]
        values += [sweep.table for sweep in section.sweeps]
    return sum(_is_gap(value) for value in values)


def slower_of(sections: Sequence[Section]) -> int:
    """Figures that are worse than their baseline, and whose spreads do not touch."""
    said = [one for s in sections for metric in s.metrics for one in metric.speed_ups]
    ratios = [one.ratio for one in said if not isinstance(one, Absent) and not one.overlaps]
    return sum(ratio < 1 for ratio in ratios if not isinstance(ratio, Absent))


def _is_gap(value: object) -> bool:
    return isinstance(value, Absent) and value not in (LACKS_JOB, NOT_TOLD)


def figures_of(job: JobRecord) -> int:
    """Metrics that a job reported, each set of parameters for itself."""
    return len(_facts(job))


def _facts(job: JobRecord | None) -> Facts:
    """What was reported again, by a later attempt, stands as it was reported last."""
    return {_key(fact): fact for fact in (job.metrics if job is not None else ())}


def _key(fact: MetricFact) -> Key:
    against = (baseline_of(fact) or "") if is_ratio(fact.unit) else ""
    return fact.name, fact.unit, fact.direction, against, params_of(fact.params)


def _family(key: Key) -> tuple[str, str, str, str]:
    name, unit, direction, against, _ = key
    return split_name(name)[1], unit, direction, against


def _swept(facts: Sequence[Facts]) -> set[tuple[str, str, str, str]]:
    params: dict[tuple[str, str, str, str], set[Params]] = {}
    for key in (key for found in facts for key in found):
        params.setdefault(_family(key), set()).add(key[-1])
    return {family for family, found in params.items() if len(found) >= SWEEP_FROM}


def lacks_job(cell: CellRecord) -> Absent:
    """Why a platform has no such job."""
    return LACKS_JOB if cell.ingested is None else NOT_TOLD


def why_absent(job: JobRecord | None, cell: CellRecord) -> Absent:
    """Why a platform has no value of a job."""
    if job is None:
        return lacks_job(cell)
    if job.outcome is Outcome.NOT_RUN or (job.started_at is None and not _says(job)):
        reason = job.reason.replace("_", " ")
        return Absent(f"never ran there: {reason}" if reason else "never ran there")
    return NOT_MEASURED if job.outcome is not None else Absent("not reported yet")


def _says(job: JobRecord) -> bool:
    return bool(job.checks or job.metrics or job.counts.collected)


def _check(name: str, jobs: Sequence[JobRecord | None], cells: Sequence[CellRecord]) -> CheckAcross:
    made = []
    for job, cell in zip(jobs, cells, strict=True):
        found = [c for c in (job.checks if job is not None else ()) if c.name == name]
        made.append(_line(found[-1]) if found else why_absent(job, cell))
    return CheckAcross(name, tuple(made))


def _line(fact: CheckFact) -> CheckLine:
    return CheckLine(fact.name, fact.outcome, fact.value, fact.unit, fact.tolerance, fact.reason)


Place = tuple[CellRecord, JobRecord | None, Facts]


def _metric(key: Key, places: Sequence[Place], keys: Sequence[Key]) -> MetricAcross:
    name, unit, direction, against, params = key
    facts = [found for _, _, found in places]
    baseline = _baseline(key, facts, keys)
    speed_ups = tuple(_speed_up(found, key, baseline) for found in facts) if baseline else ()
    return MetricAcross(
        name=name,
        unit=unit,
        direction=direction,
        params=params,
        against=against,
        baseline=baseline[0] if baseline else "",
        cells=tuple(
            metric_figure(found[key]) if key in found else why_absent(job, cell)
            for cell, job, found in places
        ),
        speed_ups=speed_ups,
    )


def _baseline(key: Key, facts: Sequence[Facts], keys: Sequence[Key]) -> Key | None:
    """The metric that this one is set against: by what it says, or by that one's name."""
    name, unit, direction, _, params = key
    prefix, leaf = split_name(name)
    said = [baseline_of(found[key]) for found in facts if key in found]
    derived = f"{prefix}/{BASELINE_PREFIX}{leaf}" if prefix else f"{BASELINE_PREFIX}{leaf}"
    for wanted in (*said, derived):
        for other in keys:
            same = (other[1], other[2], other[-1]) == (unit, direction, params)
            if same and other[0] == wanted and other != key:
                return other
    return None


def _speed_up(found: Facts, key: Key, baseline: Key) -> SpeedUp | Absent:
    if key not in found or baseline not in found:
        return Absent("one of the two was not measured")
    own, base = metric_figure(found[key]), metric_figure(found[baseline])
    if isinstance(own.median, Absent) or isinstance(base.median, Absent):
        return Absent("one of the two is not a finite number")
    ratio = relative(own.median, base.median, key[2])
    return SpeedUp(ratio, _overlap(own, base), min(own.n, base.n))


def _overlap(a: MetricFigure, b: MetricFigure) -> bool:
    ends = (a.low, a.high, b.low, b.high)
    numbers = [0.0 if isinstance(end, Absent) else end for end in ends]
    return numbers[0] <= numbers[3] and numbers[2] <= numbers[1]


def _sweeps(
    cells: Sequence[CellRecord],
    headings: Sequence[str],
    jobs: Sequence[JobRecord | None],
    swept: set[tuple[str, str, str, str]],
) -> tuple[Sweep, ...]:
    if not swept:
        return ()
    made = []
    for cell, heading, job in zip(cells, headings, jobs, strict=True):
        absent = why_absent(job, cell)
        facts = [f for f in (job.metrics if job else ()) if _family(_key(f)) in swept]
        table = table_of(replace(job, metrics=tuple(facts))) if job and facts else absent
        made.append(Sweep(cell.id, heading, table))
    return tuple(made)
