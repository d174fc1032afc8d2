"""Demos, use cases and benchmarks: what they said of themselves, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.domain.facts import CheckFact
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.model.blocks import CheckLine, CommandRow, CommandTable
from reports.model.values import Absent, CheckTally
from reports.views.machine import job_status
from reports.views.suites import duration_of, rate

CHECKS_SHOWN = 60
"""Checks that are listed of one job; failed ones first."""

NO_CHECKS = Absent("no checks; judged by its exit code")
NO_CHECKS_TOLD = Absent("no check in the ingested files")
_ORDER = {"failed": 0, "skipped": 1, "passed": 2}


def commands_of(cell: CellRecord, kind: str) -> CommandTable:
    """Every job of a kind that is not a suite."""
    jobs = [job for job in cell.jobs if job.kind == kind]
    rows = tuple(_row(job, cell) for job in jobs)
    passed = sum(row.status.code == "passed" for row in rows)
    return CommandTable(
        kind=kind,
        rows=rows,
        checks=sum_checks(row.checks for row in rows),
        jobs=rate(passed, len(rows), nothing="there is none"),
    )


def sum_checks(tallies: Iterable[CheckTally | Absent]) -> CheckTally | Absent:
    """The sum of those that were measured."""
    known = [t for t in tallies if not isinstance(t, Absent)]
    if not known:
        return Absent("no checks were reported")
    return _tally(*(sum(getattr(t, n) for t in known) for n in ("passed", "failed", "skipped")))


def _tally(passed: int, failed: int, skipped: int) -> CheckTally:
    share = rate(passed, passed + failed, nothing="no check was judged")
    return CheckTally(passed, failed, skipped, share)


def _row(job: JobRecord, cell: CellRecord) -> CommandRow:
    ranked = sorted(job.checks, key=lambda check: _ORDER.get(check.outcome, 0))
    kept = {id(check) for check in ranked[:CHECKS_SHOWN]}
    lines = tuple(_line(check) for check in job.checks if id(check) in kept)
    return CommandRow(
        id=job.id,
        title=job.title or job.id,
        status=job_status(job, cell),
        checks=_checks(job.checks) if job.checks else _none(job, cell),
        lines=lines,
        hidden=len(job.checks) - len(lines),
        duration_s=duration_of(job, cell),
    )


def _none(job: JobRecord, cell: CellRecord) -> Absent:
    if job.outcome is not None and job.started_at is not None:
        return NO_CHECKS if cell.ingested is None else NO_CHECKS_TOLD
    reason = (job.reason or cell.reason).replace("_", " ")
    return Absent(f"never started: {reason}" if reason else "none reported yet")


def _checks(facts: Sequence[CheckFact]) -> CheckTally:
    outcomes = [fact.outcome for fact in facts]
    skipped = outcomes.count("skipped")
    passed = outcomes.count("passed")
    return _tally(passed, len(facts) - passed - skipped, skipped)


def _line(fact: CheckFact) -> CheckLine:
    return CheckLine(fact.name, fact.outcome, fact.value, fact.unit, fact.tolerance, fact.reason)
