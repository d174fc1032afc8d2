"""Marks beside outcomes in reports: no test passed, one passed on retry, the run was cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.cell import Cause
from orchestrator.domain.outcome import Outcome, Reason
from reports.registry import render
from tests.unit.reports.builders import Jobs, T, cell_of, evidence_of, results_of
from tests.unit.reports.stories import local

MARK = "no test passed: 29 skipped"


def all_skipped():
    tests = results_of("all", [(f"t.py::test_{n}", T.SKIPPED) for n in range(29)])
    jobs = Jobs().suite("all", "All", tests, Outcome.PASSED)
    cell = cell_of(local()[0].platform, jobs, Outcome.PASSED)
    return evidence_of((cell, jobs), outcome=Outcome.PASSED)


@pytest.mark.parametrize(
    ("kind", "marks"), [("summary", 3), ("platform", 2), ("results", 1), ("backend", 1)]
)
def test_the_mark_stands_beside_the_outcome(kind, marks, templates):
    text = render(kind, all_skipped(), templates=templates)
    assert text.count(MARK) >= marks, text
    assert "But no test passed." in text


def test_a_run_with_one_pass_has_no_mark(templates):
    text = render("summary", evidence_of(local(), outcome=Outcome.PASSED), templates=templates)
    assert "no test passed" not in text


@pytest.mark.parametrize("kind", ["summary", "platform", "results", "backend"])
def test_a_test_that_passed_on_retry_is_counted_beside_the_outcome(kind, templates):
    tests = results_of("all", [(f"t.py::test_{n}", T.PASSED) for n in range(29)])
    jobs = Jobs().suite("all", "All", tests, Outcome.PASSED)
    jobs.records[0] = replace(jobs.records[0], passed_on_retry=2)
    cell = cell_of(local()[0].platform, jobs, Outcome.PASSED)
    evidence = evidence_of((cell, jobs), outcome=Outcome.PASSED)
    assert "PASSED (≈ 2 flaky)" in render(kind, evidence, templates=templates)


@pytest.mark.parametrize(("kind", "marks"), [("summary", 2), ("platform", 2), ("results", 1)])
def test_a_cancelled_run_with_failures_says_both(kind, marks, templates):
    stopped = Cause(Outcome.CANCELLED, Reason.CANCELLED, "its run was cancelled")
    tests = results_of("all", [("t.py::a", T.PASSED), ("t.py::b", T.FAILED), ("t.py::c", T.ERROR)])
    jobs = Jobs().suite("all", "All", tests, Outcome.FAILED, "tests", detail="1 failed, 1 error")
    jobs.records[0] = replace(jobs.records[0], ending=stopped)
    cell = cell_of(local()[0].platform, jobs, Outcome.FAILED, "tests", detail="all: 1 failed")
    cell = replace(cell, attempts=(replace(cell.attempts[-1], cause=stopped),))
    evidence = evidence_of((cell, jobs), outcome=Outcome.FAILED)
    run = replace(evidence.record.run, cancel_requested_at=evidence.record.run.created_at)
    evidence = replace(evidence, record=replace(evidence.record, run=run))
    text = render(kind, evidence, templates=templates)
    assert text.count("FAILED (cancelled; 1 failed, 1 error)") >= marks, text
