"""The comment report: a run in short, for reviewers of a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from orchestrator.domain.unexplained_failures import failing_jobs, fails_itself, why_job_failed
from orchestrator.domain.vocabulary import phrase
from reports.format import version
from reports.model.comment import CommentCell, CommentReport, FailingEntry
from reports.views.cell_timeline import footer_of, run_digest
from reports.views.machine import cell_status, run_status
from reports.views.status_phrases import run_claim
from reports.views.suites import rate, suites_of
from reports.views.summary import unfinished_run

TEMPLATE = "comment 1"
FAILING_SHOWN = 10
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_Failure = tuple[str, str, str]
"""Job, message and test."""


def comment_view(evidence: Evidence, _cell: str) -> CommentReport:
    """Return the model of the comment report."""
    record = evidence.record
    entries = list(_entries(evidence))
    passed = sum(cell_status(cell).code == "passed" for cell in record.cells)
    share = rate(passed, len(record.cells), nothing="the run has no cell")
    run = record.run
    return CommentReport(
        kind="comment",
        title=f"{run.subject_name} {version(run.subject_version)}",
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=(run_claim(run_status(record), share),),
        footer=footer_of(record, run_digest(record), TEMPLATE),
        matrix=run.matrix_name,
        status=run_status(record),
        cells=tuple(
            CommentCell(
                cell.id, cell_status(cell), cell.detail, suites_of(cell).total, cell.simulated
            )
            for cell in record.cells
        ),
        failing=tuple(entries[:FAILING_SHOWN]),
        failing_hidden=max(len(entries) - FAILING_SHOWN, 0),
    )


def _entries(evidence: Evidence) -> Iterator[FailingEntry]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for cell in evidence.record.cells:
        for job, said, test in _failing(cell, evidence.tests.get(cell.id, ())):
            found.setdefault((job, said), []).append((test, cell.id))
    for (job, said), places in found.items():
        tests, cells = (tuple(dict.fromkeys(names)) for names in zip(*places, strict=True))
        yield FailingEntry(job, tuple(test for test in tests if test), said, cells)


def _failing(cell: CellRecord, tests: tuple[TestFact, ...]) -> Iterator[_Failure]:
    named: Counter[str] = Counter()
    for test in tests:
        if test.final and test.outcome in _BAD:
            named[test.job] += 1
            yield test.job, test.message or test.reason, test.nodeid
    for job in failing_jobs(cell, named):
        yield job.id, why_job_failed(job), ""
    if fails_itself(cell):
        parts = (phrase(cell.reason), cell.detail)
        yield "", ": ".join(part for part in parts if part), ""
