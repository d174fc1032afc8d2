"""The compare report: a run against another one, which is its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from orchestrator.domain.fingerprint import environment_diff
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, RunRecord
from reports.format import plural, version
from reports.model.compare import (
    CATEGORIES,
    CellPair,
    Changes,
    CompareReport,
    EnvironmentChange,
    JobChange,
    Lonely,
    Side,
)
from reports.model.values import Absent, Claim, Footer, Status
from reports.views.changes import (
    Results,
    by_name,
    changes_of,
    checks_of,
    same_jobs,
    under_new_names,
)
from reports.views.machine import cell_status, job_status
from reports.views.match_cells import matches
from reports.views.metric_changes import deltas_of
from reports.views.money import money_of, total_costs
from reports.views.origin import run_date
from reports.views.phases import run_digest
from reports.views.probe import hardware_of
from reports.views.results import column_heading
from reports.views.suites import suites_of
from reports.views.summary import run_status, unfinished_run

TEMPLATE = "compare 1"
ENVIRONMENT_SHOWN = 40
"""Things that differ between two environments."""

_NOT_THERE = Absent("not in this run")


def compare_view(evidence: Evidence, _cell_id: str = "") -> CompareReport:
    """Tell what changed from `evidence.base`. Raises LookupError where there is none."""
    base, head = evidence.base, evidence
    if base is None:
        raise LookupError("a comparison needs a base")
    found = matches(base.record.cells, head.record.cells)
    pairs = tuple(_pair(old, new, how, base, head) for old, new, how in found)
    sides = _side(base.record), _side(head.record)
    matched = ({old.id for old, _, _ in found}, {new.id for _, new, _ in found})
    deltas = [delta for pair in pairs for delta in pair.metrics]
    run = head.record.run
    return CompareReport(
        kind="compare",
        title=_title(sides),
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(base.record) or unfinished_run(head.record),
        conclusion=_conclusion(pairs),
        footer=Footer(run.id, run_digest(head.record, base=base.record), TEMPLATE),
        base=sides[0],
        head=sides[1],
        pairs=pairs,
        base_only=_lonely(base.record, matched[0]),
        head_only=_lonely(head.record, matched[1]),
        totals=_totals(pairs),
        unchanged=sum(pair.tests.unchanged for pair in pairs),
        better=sum(delta.verdict == "better" for delta in deltas),
        worse=sum(delta.verdict == "worse" for delta in deltas),
        usd_difference=_difference(sides[0].cost_usd, sides[1].cost_usd),
    )


def _totals(pairs: Sequence[CellPair]) -> tuple[tuple[str, int], ...]:
    """Of each category; the one that is seldom only where there is any."""
    every = ((name, sum(pair.tests.of(name).count for pair in pairs)) for name in CATEGORIES)
    return tuple((name, count) for name, count in every if name != "hidden" or count)


def _title(sides: tuple[Side, Side]) -> str:
    base, head = sides
    if base.subject == head.subject:
        return f"{head.subject} {version(base.version)} → {version(head.version)} — Comparison"
    old, new = (f"{side.subject} {version(side.version)}" for side in sides)
    return f"{old} → {new} — Comparison"


def _side(record: RunRecord) -> Side:
    costs = total_costs((money_of(cell).costs for cell in record.cells), validated=0)
    return Side(
        run_id=record.run.id,
        subject=record.run.subject_name,
        version=record.run.subject_version,
        date=run_date(record),
        status=run_status(record),
        cells=len(record.cells),
        cost_usd=costs if isinstance(costs, Absent) else costs.bill.total_usd,
    )


def _lonely(record: RunRecord, matched: set[str]) -> tuple[Lonely, ...]:
    return tuple(
        Lonely(cell.id, column_heading(cell, record), cell_status(cell), cell.counts.collected)
        for cell in record.cells
        if cell.id not in matched
    )


def _pair(old: CellRecord, new: CellRecord, how: str, base: Evidence, head: Evidence) -> CellPair:
    names = same_jobs(old.jobs, new.jobs)
    stacks = [hardware_of(cell, subject="").stack for cell in (old, new)]
    environment = environment_diff(old.probed, new.probed)
    deltas = deltas_of(old, new, names)
    money = money_of(old).cost_usd, money_of(new).cost_usd
    jobs, jobs_same = _jobs(old, new, names)
    unnamed = [sum(job.unnamed.collected for job in cell.jobs) for cell in (old, new)]
    tests = base.tests.get(old.id, ()), head.tests.get(new.id, ())
    return CellPair(
        base_cell=old.id,
        head_cell=new.id,
        heading=column_heading(new, head.record),
        matched=how,
        base_status=cell_status(old),
        head_status=cell_status(new),
        base_tally=suites_of(old).total,
        head_tally=suites_of(new).total,
        environment=tuple(EnvironmentChange(*row) for row in environment[:ENVIRONMENT_SHOWN]),
        environment_hidden=len(environment[ENVIRONMENT_SHOWN:]),
        same_stack=stacks[0] == stacks[1],
        base_stack=" ".join(stacks[0]),
        head_stack=" ".join(stacks[1]),
        jobs=jobs,
        jobs_same=jobs_same,
        tests=_tests(by_name(tests[0], {}), by_name(tests[1], names), head.renamed),
        unnamed_base=unnamed[0],
        unnamed_head=unnamed[1],
        checks=changes_of(checks_of(old, {}), checks_of(new, names)),
        metrics=deltas.shown,
        metrics_alike=deltas.alike,
        metrics_hidden=deltas.hidden,
        metrics_came=deltas.came,
        metrics_went=deltas.went,
        base_usd=money[0],
        head_usd=money[1],
        usd_difference=_difference(*money),
    )


def _tests(base: Results, head: Results, renamed: Mapping[str, str]) -> Changes:
    now = under_new_names(base, head, renamed)
    return changes_of(now, head, confirmed=len(now.keys() - base.keys()))


def _difference(base: Decimal | Absent, head: Decimal | Absent) -> Decimal | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two has no price")
    return head - base


def _jobs(
    old: CellRecord, new: CellRecord, names: Mapping[str, str]
) -> tuple[tuple[JobChange, ...], int]:
    theirs = {job.id: job for job in old.jobs}
    taken = set(names.values())
    changes = [
        JobChange(
            job=job.id,
            title=job.title or job.id,
            before=_status(theirs.get(names.get(job.id, "")), old),
            after=job_status(job, new),
        )
        for job in new.jobs
    ]
    changes += [
        JobChange(job.id, job.title or job.id, job_status(job, old), _NOT_THERE)
        for job in old.jobs
        if job.id not in taken
    ]
    differing = tuple(change for change in changes if not _is_same(change))
    return differing, len(changes) - len(differing)


def _status(job: JobRecord | None, cell: CellRecord) -> Status | Absent:
    return job_status(job, cell) if job is not None else _NOT_THERE


def _is_same(change: JobChange) -> bool:
    before, after = change.before, change.after
    if not isinstance(before, Status) or not isinstance(after, Status):
        return False
    return (before.code, before.degraded is None) == (after.code, after.degraded is None)


def _conclusion(pairs: Sequence[CellPair]) -> tuple[Claim, ...]:
    words = {
        "new_failure": "new failure",
        "still_failing": "test",
        "fixed": "fixed test",
        "newly_skipped": "newly skipped test",
        "missing": "newly missing test",
    }
    claims = []
    for name, word in words.items():
        found = sum(pair.tests.of(name).count for pair in pairs)
        rest = " failed in both runs" if name == "still_failing" else ""
        claims.append(Claim(f"tests.{name}", (found,), f"{plural(found, word)}{rest}."))
    return tuple(claims)
