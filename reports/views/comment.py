"""The comment report: a run in short, for reviewers of a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import Evidence
from orchestrator.domain.unexplained_failures import CellFailure, cell_failures
from reports.format import version
from reports.model.summary import CommentCell, CommentReport, FailingEntry
from reports.views.cell_timeline import footer_of, run_digest
from reports.views.machine import cell_status, run_status
from reports.views.status_phrases import run_claim
from reports.views.suites import rate, suites_of
from reports.views.summary import unfinished_run

TEMPLATE = "comment 1"
FAILING_SHOWN = 10
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)


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
        for failure in cell_failures(cell, _failing(evidence.tests.get(cell.id, ()))):
            found.setdefault((failure.job, failure.error), []).append((failure.test, cell.id))
    for (job, said), places in found.items():
        tests, cells = (tuple(dict.fromkeys(names)) for names in zip(*places, strict=True))
        yield FailingEntry(job, tuple(test for test in tests if test), said, cells)


def _failing(tests: Iterable[TestFact]) -> Iterator[CellFailure]:
    for test in tests:
        if test.final and test.outcome in _BAD:
            yield CellFailure(test.job, test.nodeid, test.outcome.word, test.message or test.reason)
