"""The results report: every platform of one run side by side, job by job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.manifest import JOB_KINDS
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, RunRecord
from reports.format import plural, version
from reports.grouping import is_ratio, layout_of, split_name
from reports.model.blocks import Hardware
from reports.model.metrics import MetricFigure, Params
from reports.model.results import (
    CheckAcross,
    JobCell,
    JobGroup,
    JobLine,
    MetricAcross,
    PlatformColumn,
    ResultsReport,
    Section,
    SpeedUp,
    Sweep,
)
from reports.model.values import Absent, Claim, Rate
from reports.rules.authored import authored_of
from reports.views.benchmarks import baseline_of, metric_figure, params_of, relative, table_of
from reports.views.cell_timeline import commands_of, footer_of, run_digest
from reports.views.claims import degraded_claim, run_claim
from reports.views.machine import (
    accelerator_of,
    cell_status,
    hardware_of,
    heading_of,
    instance_of,
    run_status,
    short_name,
)
from reports.views.money import money_of, total_costs
from reports.views.origin import SIMULATED, run_date
from reports.views.suites import rate, suites_of
from reports.views.summary import unfinished_run

CHECKS_SHOWN = 80
"""Checks of one job."""
METRICS_SHOWN = 80
"""Maximum number of metrics of one job side by side."""
SWEEP_FROM = 3
"""Sets of parameters from which on figures are a sweep, with a table for each platform."""
BASELINE_PREFIX = "baseline_"
"""`moe/baseline_latency` is what `moe/latency` is set against."""

LACKS_JOB = Absent("not assigned to this platform")
NOT_IN_FILES = Absent("this job is not in the ingested files")
NOT_MEASURED = Absent("not measured on this platform")

Key = tuple[str, str, str, str, Params]
"""Name, unit, direction, baseline, parameters."""
Facts = Mapping[Key, MetricFact]


def section_of(name: str, cells: Sequence[CellRecord], headings: Sequence[str]) -> Section:
    """Return the results of a job on every platform."""
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
    """Return parameters with one value in all rows."""
    return layout_of([("", params) for params in rows]).fixed


def gaps_of(sections: Sequence[Section]) -> int:
    """Return the number of values that one platform has and another, which ran the job, lacks."""
    values: list[object] = []
    for section in sections:
        values += [cell for check in section.checks for cell in check.cells]
        values += [cell for metric in section.metrics for cell in metric.cells]
        values += [sweep.table for sweep in section.sweeps]
    return sum(_is_gap(value) for value in values)


def slower_of(sections: Sequence[Section]) -> int:
    """Return the number of values worse than their baseline, with separate spreads."""
    said = [one for s in sections for metric in s.metrics for one in metric.speed_ups]
    ratios = [one.ratio for one in said if not isinstance(one, Absent) and not one.overlaps]
    return sum(ratio < 1 for ratio in ratios if not isinstance(ratio, Absent))


def _is_gap(value: object) -> bool:
    return isinstance(value, Absent) and value not in (LACKS_JOB, NOT_IN_FILES)


def figures_of(job: JobRecord) -> int:
    """Return a job's metrics, by set of parameters."""
    return len(_facts(job))


def _facts(job: JobRecord | None) -> Facts:
    """Return the metrics by key; a repeated metric has its last report."""
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
    """Return why a platform lacks a job."""
    return LACKS_JOB if cell.ingested is None else NOT_IN_FILES


def why_absent(job: JobRecord | None, cell: CellRecord) -> Absent:
    """Return why a platform has no value of a job."""
    if job is None:
        return lacks_job(cell)
    if job.outcome is Outcome.NOT_RUN or (job.started_at is None and not _reported(job)):
        reason = job.reason.replace("_", " ")
        return Absent(f"never ran there: {reason}" if reason else "never ran there")
    return NOT_MEASURED if job.outcome is not None else Absent("not reported yet")


def _reported(job: JobRecord) -> bool:
    return bool(job.checks or job.metrics or job.counts.collected)


def _check(name: str, jobs: Sequence[JobRecord | None], cells: Sequence[CellRecord]) -> CheckAcross:
    made = []
    for job, cell in zip(jobs, cells, strict=True):
        found = [c for c in (job.checks if job is not None else ()) if c.name == name]
        made.append(found[-1] if found else why_absent(job, cell))
    return CheckAcross(name, tuple(made))


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
    """Return the metric that is this one's baseline, by its parameter or by a name prefix."""
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


def _speed_up(facts: Facts, key: Key, baseline: Key) -> SpeedUp | Absent:
    if key not in facts or baseline not in facts:
        return Absent("one of the two was not measured")
    own, base = metric_figure(facts[key]), metric_figure(facts[baseline])
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


TEMPLATE = "results 2"

KINDS = tuple(sorted(JOB_KINDS, key=lambda kind: kind != "use-case"))
"""Kinds of jobs in the order of the report: use cases first."""


def results_view(evidence: Evidence, _cell_id: str = "") -> ResultsReport:
    """Return the results of a run on every platform."""
    record = evidence.record
    run, counts = record.run, record.counts
    columns = _columns(record)
    groups = tuple(group for kind in KINDS if (group := _group(kind, record.cells)).lines)
    sections = _sections(record, columns)
    passed = rate(
        sum(column.status.code == "passed" for column in columns),
        len(columns),
        nothing="the run has no cell",
    )
    return ResultsReport(
        kind="results",
        title=_title(record),
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=_conclusion(record, groups, sections, passed),
        footer=footer_of(record, run_digest(record), TEMPLATE),
        date=run_date(record),
        dated=_is_dated(record),
        status=run_status(record),
        passed_cells=passed,
        columns=columns,
        reference=columns[_reference([c.hardware for c in columns])].cell if columns else "",
        groups=groups,
        sections=sections,
        gaps=gaps_of(sections),
        slower=slower_of(sections),
        costs=total_costs(
            (column.money.costs for column in columns), validated=counts.passed + counts.failed
        ),
        notes=authored_of(evidence),
    )


def _is_dated(record: RunRecord) -> bool:
    told = [cell.ingested for cell in record.cells]
    return any(one is None or one.is_dated for one in told) or not told


def _title(record: RunRecord) -> str:
    run = record.run
    simulated = sum(cell.simulated for cell in record.cells)
    which = "" if simulated == len(record.cells) else f"{simulated} of {len(record.cells)} cells "
    mark = f" ({which}{SIMULATED})" if simulated else ""
    return f"{run.subject_name} {version(run.subject_version)} — Validation Results{mark}"


def _columns(record: RunRecord) -> tuple[PlatformColumn, ...]:
    probed = [hardware_of(cell, subject=record.run.subject_name) for cell in record.cells]
    at = _reference(probed)
    return tuple(
        _column(cell, record, hardware, same_stack=hardware.stack == probed[at].stack)
        for cell, hardware in zip(record.cells, probed, strict=True)
    )


def _reference(probed: Sequence[Hardware]) -> int:
    """Return the first platform with a device, else the first one."""
    return next((at for at, hardware in enumerate(probed) if hardware.devices), 0)


def _column(
    cell: CellRecord, record: RunRecord, hardware: Hardware, *, same_stack: bool
) -> PlatformColumn:
    instance = instance_of(cell, hardware)
    named = "" if isinstance(instance, Absent) else f" {instance}"
    return PlatformColumn(
        cell=cell.id,
        heading=column_heading(cell, record),
        platform=f"{short_name(cell)}{named}",
        accelerator=accelerator_of(cell, hardware),
        hardware=hardware,
        same_stack=same_stack,
        status=cell_status(cell),
        detail=cell.detail,
        provenance=cell.provenance,
        simulated=cell.simulated,
        optional=cell.platform.optional,
        money=money_of(cell),
    )


def column_heading(cell: CellRecord, record: RunRecord) -> str:
    """``AWS A10G``; where two cells would be called the same, their ids."""
    said = [_short(other, record) for other in record.cells]
    own = _short(cell, record)
    return own if said.count(own) == 1 else cell.id


def _short(cell: CellRecord, record: RunRecord) -> str:
    promised = cell.platform.accelerator
    if promised is not None:
        return f"{short_name(cell)} {promised.name}"
    return heading_of(cell, hardware_of(cell, subject=record.run.subject_name))


def _group(kind: str, cells: Sequence[CellRecord]) -> JobGroup:
    titles = {job.id: job.title or job.id for c in cells for job in c.jobs if job.kind == kind}
    by_cell = [_of_cell(cell, kind) for cell in cells]
    lines = tuple(
        JobLine(
            name,
            title,
            tuple(
                jobs.get(name) or _no_job(cell) for jobs, cell in zip(by_cell, cells, strict=True)
            ),
        )
        for name, title in titles.items()
    )
    return JobGroup(kind, lines, tuple(_total(list(jobs.values())) for jobs in by_cell))


_NO_SUITE = Absent("it is no suite")
_NO_COMMAND = Absent("a suite makes no checks")


def _no_job(cell: CellRecord) -> JobCell:
    none = lacks_job(cell)
    return JobCell(none, none, none, 0, none)


def _of_cell(cell: CellRecord, kind: str) -> dict[str, JobCell]:
    figures = {job.id: figures_of(job) for job in cell.jobs}
    if kind == "suite":
        return {
            row.id: JobCell(row.status, _NO_COMMAND, row.tally, figures[row.id], row.duration_s)
            for row in suites_of(cell).rows
        }
    return {
        row.id: JobCell(row.status, row.checks, _NO_SUITE, figures[row.id], row.duration_s)
        for row in commands_of(cell, kind).rows
    }


def _total(jobs: Sequence[JobCell]) -> Rate:
    known = [job.status for job in jobs if not isinstance(job.status, Absent)]
    passed = sum(status.code == "passed" for status in known)
    return rate(passed, len(known), nothing="it was to run none")


def _sections(record: RunRecord, columns: Sequence[PlatformColumn]) -> tuple[Section, ...]:
    """Return a section for each job with results on any platform."""
    headings = [column.heading for column in columns]
    ordered = sorted(
        {job.id: job for cell in record.cells for job in cell.jobs if _says(job)}.values(),
        key=lambda job: KINDS.index(job.kind) if job.kind in KINDS else len(KINDS),
    )
    return tuple(section_of(job.id, record.cells, headings) for job in ordered)


def _says(job: JobRecord) -> bool:
    return bool(job.checks or job.metrics)


def _conclusion(
    record: RunRecord, groups: Sequence[JobGroup], sections: Sequence[Section], passed: Rate
) -> tuple[Claim, ...]:
    degraded = [
        (job.id, job.degraded)
        for cell in record.cells
        for job in cell.jobs
        if job.degraded is not None
    ]
    claims = [_kind_claim(group) for group in groups]
    gaps, slower = gaps_of(sections), slower_of(sections)
    if gaps:
        said = f"{plural(gaps, 'value')} of one platform were not measured on another."
        claims.append(Claim("gaps", (gaps,), said))
    if slower:
        said = f"{plural(slower, 'figure')} came out worse than the baseline beside it."
        claims.append(Claim("slower", (slower,), said))
    return (*claims, *degraded_claim(degraded), run_claim(run_status(record), passed))


def _kind_claim(group: JobGroup) -> Claim:
    part = sum(total.part for total in group.totals)
    whole = sum(total.whole for total in group.totals)
    name = group.kind.replace("-", " ")
    said = f"{part:,} of {plural(whole, name)} passed on the platforms together."
    return Claim(f"jobs.{group.kind}", (part, whole), said)
