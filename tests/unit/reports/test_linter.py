"""A report cannot lie about a figure that it derives: each one is changed here, and found out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.domain.outcome import Outcome, TestOutcome
from reports.linter import lint, lint_evidence
from reports.registry import ContradictionError, model_of, render
from reports.views.platform import platform_view
from reports.views.summary import summary_view
from tests.unit.reports.builders import (
    Jobs,
    billed,
    cell_of,
    evidence_of,
    passing,
    results_of,
    throughput,
)
from tests.unit.reports.stories import a10g, l4, local, release, story

"""Read from the evidence, and derived from nothing else in the report."""


def test_a_lying_roll_up_is_found_by_counting_the_tests(templates):
    cell, jobs = local()
    better = replace(cell.jobs[0].counts, passed=48, skipped=0)
    lying = replace(cell, jobs=(replace(cell.jobs[0], counts=better), *cell.jobs[1:]))
    evidence = evidence_of((lying, jobs), outcome=Outcome.PASSED)
    with pytest.raises(ContradictionError) as refused:
        render("platform", evidence, format="md", templates=templates)
    assert "recount" in {finding.rule for finding in refused.value.findings}
    assert "passed 48, counted 46; skipped 0, counted 2" in str(refused.value)


def test_results_of_a_job_that_the_cell_has_not_are_found():
    cell, jobs = local()
    stray = Jobs(tests=[*jobs.tests, *passing("ghost", 1)])
    evidence = evidence_of((cell, stray), outcome=Outcome.PASSED)
    assert [f.rule for f in against(evidence)] == ["recount"]


def against(evidence):
    return lint_evidence(platform_view(evidence, "local-cpu"), evidence)


def test_a_wrong_number_of_distinct_tests_is_found_by_counting_them():
    evidence = release()
    model = summary_view(evidence)
    assert lint_evidence(model, evidence) == ()
    wrong = replace(model, distinct_tests=model.distinct_tests + 1)
    assert [f.rule for f in lint_evidence(wrong, evidence)] == ["distinct"]


def test_a_test_without_its_end_counts_as_missing_in_the_recount():
    tests = passing("moe", 1)
    open_ended = replace(tests[0], final=False)
    missing = results_of("moe", [(tests[0].nodeid, TestOutcome.MISSING)])
    jobs = Jobs().suite("moe", "MoE", missing, Outcome.ERRORED, "lost")
    cell = cell_of(local()[0].platform, jobs, Outcome.ERRORED, "lost")
    evidence = evidence_of((cell, Jobs(tests=[open_ended])), outcome=Outcome.ERRORED)
    assert against(evidence) == ()


def with_metrics(metrics):
    cell, jobs = a10g()
    records = [replace(j, metrics=tuple(metrics)) if j.metrics else j for j in cell.jobs]
    return evidence_of((replace(cell, jobs=tuple(records)), jobs), outcome=Outcome.FAILED)


def test_tokens_per_second_that_no_time_explains_are_a_remark(templates):
    metrics = throughput("moe-benchmark")
    wrong = replace(metrics[1], samples=tuple(s * 1.05 for s in metrics[1].samples))
    text = render("platform", with_metrics([metrics[0], wrong]), format="md", templates=templates)
    assert "but batch x sequence / time is" in text
    assert "## Remarks" in text


def test_tokens_per_second_that_a_time_explains_are_none():
    found = Counter(f.rule for f in lint(model_of("platform", with_metrics(throughput("b")))))
    assert found["throughput"] == 0


def test_a_pass_that_ran_degraded_and_a_ratio_without_a_baseline_are_remarks():
    found = {f.rule: f.level for f in model_of("platform", story("l4-degraded")).remarks}
    assert found == {"degraded": "warning", "baseline": "warning"}


def test_a_clock_that_runs_backwards_is_a_remark():
    cell, jobs = l4()
    first, second, *rest = cell.transitions
    steps = (first, replace(second, at=first.at.replace(hour=9)), *rest)
    evidence = evidence_of((replace(cell, transitions=steps), jobs), outcome=Outcome.PASSED)
    assert "clock" in {f.rule for f in model_of("platform", evidence).remarks}


def test_a_ledger_below_seconds_times_price_is_refused():
    cell, jobs = a10g()
    cheap = billed(replace(cell.leases[0], cost_usd=Decimal("0.08")))
    evidence = evidence_of((replace(cell, leases=(cheap,)), jobs), outcome=Outcome.FAILED)
    with pytest.raises(ContradictionError, match=r"seconds x price is 0\.08, recomputed 0\.178"):
        model_of("platform", evidence)
