"""A report cannot lie about a figure that it derives: each one is changed here, and found out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.domain.outcome import Outcome, TestOutcome
from reports.linter import errors, lint, lint_evidence
from reports.model.values import Absent
from reports.registry import KINDS, ReportRefusedError, model_of, render
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
from tests.unit.reports.leaves import changed, kind_of, numbers
from tests.unit.reports.stories import STORIES, a10g, l4, local, release, story, twenty

MEASURED = {
    "attempts.number",
    "benchmarks.rows.duration_s",
    "demos.rows.duration_s",
    "files.size_bytes",
    "hardware.cpus",
    "hardware.devices.memory_bytes",
    "hardware.disk_free_bytes",
    "hardware.memory_bytes",
    "hardware.package_count",
    "metrics.hidden",
    "metrics.repeated",
    "metrics.rows.cells.samples",
    "money.rows.attempt",
    "provenance.decisions.attempt",
    "provenance.decisions_hidden",
    "notices_hidden",
    "suites.rows.duration_s",
    "timeline.attempt",
    "use_cases.rows.duration_s",
}
"""Read from the evidence, and derived from nothing else in the report."""

MEASURED_OF_A_RUN = {
    "comparisons_hidden",
    "rows.money.rows.attempt",
    "rows.provenance.decisions.attempt",
    "rows.provenance.decisions_hidden",
    "distinct_tests",
    "rows.demos.skipped",
    "rows.hardware.cpus",
    "rows.hardware.devices.memory_bytes",
    "rows.hardware.disk_free_bytes",
    "rows.hardware.memory_bytes",
    "rows.hardware.package_count",
    "rows.metrics.hidden",
    "rows.metrics.repeated",
    "rows.metrics.rows.cells.samples",
    "rows.unnamed",
    "rows.use_cases.skipped",
}


def other(value):
    """Another number of the same kind, near enough to look right."""
    if isinstance(value, Decimal):
        return value + Decimal("0.02")
    return value + 1 if isinstance(value, int) else value * 1.01 + 0.01


def uncaught(model) -> set[str]:
    found = set()
    for path, value in numbers(model):
        if not errors(lint(changed(model, path, other(value)))):
            found.add(kind_of(path))
    return found


@pytest.mark.parametrize("name", [name for name in STORIES if name != "hostile"])
def test_any_derived_number_of_a_platform_that_is_changed_is_an_error(name):
    model = model_of("platform", story(name))
    assert uncaught(model) <= MEASURED


def test_any_derived_number_of_a_summary_that_is_changed_is_an_error():
    assert uncaught(model_of("summary", release())) <= MEASURED_OF_A_RUN


def test_what_counts_as_measured_is_not_caught_by_chance():
    seen = set().union(*(uncaught(model_of("platform", story(name))) for name in ("local", "a10g")))
    assert {"suites.rows.duration_s", "hardware.memory_bytes"} <= seen


@pytest.mark.parametrize("name", STORIES)
def test_true_reports_have_no_errors(name):
    evidence = replace(story(name), base=story(name))
    for kind in KINDS:
        assert errors(lint(model_of(kind, evidence))) == ()


def test_twenty_cells_have_no_errors():
    assert errors(lint(model_of("summary", twenty()))) == ()


def rules(model) -> set[str]:
    return {finding.rule for finding in errors(lint(model))}


LIES = [
    ("a10g", ("status", "code"), "passed", "outcome"),
    ("a10g", ("suites", "rows", 3, "status", "code"), "passed", "outcome"),
    ("a10g", ("demos", "rows", 1, "status", "code"), "passed", "outcome"),
    ("a10g", ("problems",), (), "listed"),
    ("local", ("skips",), (), "skips"),
    ("local", ("suites", "total"), Absent("none"), "total"),
    ("local", ("suites", "rows", 0, "tally", "rate", "percent"), Absent("none"), "rate"),
    ("a10g", ("hardware", "devices", 0, "architecture"), "Hopper", "architecture"),
    ("l4-degraded", ("hardware", "devices", 0, "architecture"), "Ampere", "architecture"),
    ("a10g", ("metrics", 0, "rows", 0, "cells", 0, "spread"), "range", "samples"),
    ("a10g", ("metrics", 0, "rows", 0, "cells", 1, "low"), Absent("none"), "samples"),
    ("a10g", ("metrics", 0, "rows", 0, "params"), (("hidden", "768"),), "table"),
    ("a10g", ("metrics", 0, "columns", 0, "name"), "latency", "table"),
    ("a10g", ("metrics", 0, "columns"), (), "table"),
    ("a10g", ("metrics", 0, "rows"), (), "table"),
    ("a10g", ("metrics", 0, "fixed"), (("batch", "64"),), "table"),
    ("a10g", ("metrics", 0, "keys"), (), "table"),
    ("built-in", ("metrics", 1, "rows", 1, "prefix"), "moe/512", "table"),
    ("built-in", ("metrics", 1, "columns", 3, "baseline"), None, "baseline"),
    ("a10g", ("conclusion", 0, "text"), "185 of 185 judged tests passed; 0 skipped.", "claim"),
    ("a10g", ("conclusion", 0, "text"), "all tests passed", "claim"),
    ("a10g", ("conclusion", 0, "figures"), (185, 185, 0, 0), "claim"),
    ("a10g", ("conclusion", 0, "rule"), "benchmarks", "claim"),
    ("a10g", ("conclusion", -1, "text"), "Outcome: ✅ PASS.", "claim"),
    ("a10g", ("conclusion", -2, "text"), "This release is production ready.", "claim"),
    ("a10g", ("timeline", 2, "origin"), "queued", "timeline"),
    ("a10g", ("money", "costs"), Absent("free"), "total"),
    ("not-available", ("suites", "rows", 0, "status", "code"), "passed", "outcome"),
]


@pytest.mark.parametrize(("name", "path", "lie", "rule"), LIES)
def test_a_lie_in_words_is_found_by_the_rule_against_it(name, path, lie, rule):
    assert rule in rules(changed(model_of("platform", story(name)), path, lie))


LIES_OF_A_RUN = [
    (("status", "code"), "passed", "outcome"),
    (("accelerators", "cells"), ("local-cpu", "aws-a10g", "gcp-l4"), "denominator"),
    (("accelerators", "outside"), (), "denominator"),
    (("total", "outside"), (), "denominator"),
    (("comparisons", 0, "rows", 0, "same_stack"), True, "comparison"),
    (("comparisons", 0, "rows", 2, "overlaps"), True, "comparison"),
    (("rows", 1, "hardware", "is_accelerator_evidence"), False, "denominator"),
    (("costs",), Absent("free"), "total"),
]


@pytest.mark.parametrize(("path", "lie", "rule"), LIES_OF_A_RUN)
def test_a_lie_of_a_summary_is_found_by_the_rule_against_it(path, lie, rule):
    assert rule in rules(changed(model_of("summary", release()), path, lie))


def test_a_lying_roll_up_is_found_by_counting_the_tests(templates):
    cell, jobs = local()
    better = replace(cell.jobs[0].counts, passed=48, skipped=0)
    lying = replace(cell, jobs=(replace(cell.jobs[0], counts=better), *cell.jobs[1:]))
    evidence = evidence_of((lying, jobs), outcome=Outcome.PASSED)
    with pytest.raises(ReportRefusedError) as refused:
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


METRIC_LIES = [
    (("hidden",), 3),
    (("repeated",), 1),
    (("rows", 0, "cells", 0, "samples"), (4.0,) * 6),
    (("columns", 0, "unit"), "s"),
    (("columns", 1, "direction"), "lower"),
]


@pytest.mark.parametrize(("path", "lie"), METRIC_LIES)
@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_figures_that_were_not_reported_so_are_found_in_the_evidence(kind, path, lie):
    evidence = story("a10g")
    model = model_of(kind, evidence)
    where = ("metrics", 0) if kind == "platform" else ("rows", 0, "metrics", 0)
    wrong = changed(model, (*where, *path), lie)
    assert {f.rule for f in errors(lint_evidence(wrong, evidence))} == {"reported"}


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
    with pytest.raises(ReportRefusedError, match=r"seconds x price is 0\.08, recomputed 0\.178"):
        model_of("platform", evidence)
