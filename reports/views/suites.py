"""Builds the suites of a report: table, failing or missing tests, and reasons of skips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.model.blocks import (
    FailingTest,
    SkipGroup,
    SlowTest,
    SuiteProblems,
    SuiteRow,
    SuiteSkips,
    SuiteTable,
)
from reports.model.values import Absent, Rate, Tally
from reports.views.machine import job_status

TESTS_SHOWN = 40
"""Tests that are listed of one suite; the rest are in its log."""

SKIPS_SHOWN = 20
"""Reasons that are listed of one suite."""

_WORST_FIRST = (TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.MISSING, TestOutcome.NOT_RUN)


def rate(part: int, whole: int, *, nothing: str) -> Rate:
    """Return a rate; `nothing` is the reason for a missing percentage of an empty whole."""
    return Rate(part, whole, 100 * part / whole if whole else Absent(nothing))


def tally_of(counts: Counts) -> Tally:
    """Return counts as a report's tally."""
    judged = counts.passed + counts.failed + counts.error
    share = rate(counts.passed, judged, nothing="no test was judged")
    return Tally(**counts.as_dict(), collected=counts.collected, rate=share)


def sum_tallies(tallies: Iterable[Tally | Absent], *, nothing: str) -> Tally | Absent:
    """Return the sum of the measured tallies."""
    known = [t for t in tallies if not isinstance(t, Absent)]
    if not known:
        return Absent(nothing)
    names = Counts().as_dict()
    return tally_of(Counts(**{n: sum(getattr(t, n) for t in known) for n in names}))


def suites_of(cell: CellRecord) -> SuiteTable:
    """Return every suite with its tally, and the total."""
    rows = tuple(_row(job, cell) for job in cell.jobs if job.kind == "suite")
    nothing = "no suite was started" if rows else "the cell has no suite"
    return SuiteTable(rows, sum_tallies((row.tally for row in rows), nothing=nothing))


def _row(job: JobRecord, cell: CellRecord) -> SuiteRow:
    return SuiteRow(
        id=job.id,
        title=job.title or job.id,
        status=job_status(job, cell),
        tally=suite_tally(job, cell),
        duration_s=duration_of(job, cell),
    )


def suite_tally(job: JobRecord, cell: CellRecord) -> Tally | Absent:
    """Return the suite's counts, or why it has none."""
    never = job.outcome is Outcome.NOT_RUN or job.started_at is None
    if job.counts.collected or not never:
        return tally_of(job.counts)
    reason = (job.reason or cell.reason).replace("_", " ")
    return Absent(f"never started: {reason}" if reason else "not started")


def duration_of(job: JobRecord, cell: CellRecord) -> float | Absent:
    """Return the job's duration in seconds, or why it is unknown."""
    if job.duration_s is not None:
        return job.duration_s
    if cell.ingested is not None:
        return Absent("not in the ingested files")
    return Absent("its end was not reported" if job.started_at else "not started")


def settled(test: TestFact) -> TestOutcome:
    """Return a test's outcome; missing if its end was never reported."""
    if test.final or test.outcome is TestOutcome.NOT_RUN:
        return test.outcome
    return TestOutcome.MISSING


def problems_of(cell: CellRecord, tests: Sequence[TestFact]) -> tuple[SuiteProblems, ...]:
    """Return by suite the tests that prevent a pass, worst first."""
    return tuple(
        _problems(job, cell, [t for t in tests if t.job == job.id])
        for job in cell.jobs
        if job.kind == "suite" and _bad(job, cell)
    )


def _bad(job: JobRecord, cell: CellRecord) -> int:
    """Return the number of tests that are not ok; while a suite runs, none is missing yet."""
    runs = job_status(job, cell).code in ("running", "queued")
    return job.counts.failed + job.counts.error if runs else job.counts.bad


def _problems(job: JobRecord, cell: CellRecord, tests: Sequence[TestFact]) -> SuiteProblems:
    bad = _bad(job, cell)
    ranked = sorted(
        (t for t in tests if settled(t) in _WORST_FIRST),
        key=lambda t: _WORST_FIRST.index(settled(t)),
    )
    shown = tuple(_line(test) for test in ranked[: min(bad, TESTS_SHOWN)])
    log = output_artifact(job.id)
    brought = any(artifact.name == log for artifact in cell.artifacts)
    return SuiteProblems(
        suite=job.id,
        title=job.title or job.id,
        bad=bad,
        shown=shown,
        hidden=bad - len(shown),
        log=log if brought else _no_log(job, cell),
    )


def _no_log(job: JobRecord, cell: CellRecord) -> Absent:
    if cell.ingested is None:
        return Absent("its log was not collected")
    told = "no file names them" if job.unnamed.bad else "they stand in the files"
    return Absent(told)


def _line(test: TestFact) -> FailingTest:
    return FailingTest(test.nodeid, settled(test).word, test.reason, test.message)


SLOW_S = 1.0
"""Tests that took less are not named as the slowest."""
SLOW_SHOWN = 3


def slowest_of(tests: Sequence[TestFact]) -> tuple[SlowTest, ...]:
    """Return the tests that took longest, the longest first."""
    slow = [
        SlowTest(test.job, test.nodeid, test.duration_s)
        for test in tests
        if test.final and test.duration_s >= SLOW_S
    ]
    return tuple(sorted(slow, key=lambda one: (-one.duration_s, one.nodeid))[:SLOW_SHOWN])


def skips_of(cell: CellRecord, tests: Sequence[TestFact]) -> tuple[SuiteSkips, ...]:
    """Return by suite the reasons for skips, most frequent first."""
    made = []
    for job in cell.jobs:
        if job.kind != "suite" or not job.counts.skipped:
            continue
        reasons = Counter(
            t.reason or t.message or "no reason given"
            for t in tests
            if t.job == job.id and settled(t) is TestOutcome.SKIPPED
        )
        ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        groups = tuple(SkipGroup(reason, n) for reason, n in ranked[:SKIPS_SHOWN])
        hidden = job.counts.skipped - sum(group.tests for group in groups)
        made.append(SuiteSkips(job.id, job.title or job.id, job.counts.skipped, groups, hidden))
    return tuple(made)
