"""What the views make of evidence that is thin, odd or hopeful."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.domain.cell import CellState
from orchestrator.domain.event_facts import MetricFact, Notice
from orchestrator.domain.failure_signature import Failure, failure_groups, signature_of
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import JobRecord
from reports.linter import errors, lint_evidence
from reports.model.values import Absent
from reports.registry import model_of, render
from reports.views.failures import failures_of
from tests.unit.domain.failure_cases import a10g_short, failed
from tests.unit.reports.builders import (
    A10G,
    L4,
    Jobs,
    T,
    at,
    cell_of,
    evidence_of,
    probe,
    results_of,
)
from tests.unit.reports.model_leaves import changed
from tests.unit.reports.stories import a10g, l4, local, lost_twice, release


def one(cell, its_jobs, **changes):
    made = replace(cell, **changes)
    return evidence_of((made, its_jobs), outcome=made.outcome)


@pytest.mark.parametrize("kind", ["summary", "platform"])
def test_packages_that_the_payload_does_not_name_are_counted(kind: str, templates: Path) -> None:
    said = "jobs could import 1 package of the interpreter that payload.toml does not name"
    seen = render(kind, one(*a10g(), undeclared_packages=("numpy",)), templates=templates)
    assert seen.count(said) == 1
    assert "of the interpreter" not in render(kind, one(*a10g()), templates=templates)


def test_a_simulated_machine_is_no_accelerator_evidence():
    model = model_of("platform", one(*a10g(), simulated=True))
    assert not model.hardware.is_accelerator_evidence
    assert "simulated" in model.hardware.why
    assert model.platform == "AWS EC2, simulated"


@pytest.mark.parametrize(
    "probed",
    [
        {"torch": 7, "machine": "none", "torch_devices": "x", "packages": [1], "cuda": {}},
        {"machine": {"devices": [3, None, {"name": None}], "cpus": -1, "memory_bytes": True}},
        {"torch_devices": [{"name": ["a"], "memory_bytes": "9", "compute_capability": 8.6}]},
        {"separated_user": "yes", "python": None, "xla": "2.9", "torch": ""},
    ],
)
def test_a_probe_may_be_anything(probed, templates):
    cell, jobs = local()
    evidence = one(cell, jobs, probed=probed)
    for form in ("md", "html", "json"):
        assert render("platform", evidence, format=form, templates=templates)
        assert render("summary", evidence, format=form, templates=templates)


def test_several_devices_are_counted_and_different_ones_named(templates):
    cell, jobs = a10g()
    model = model_of("platform", one(cell, jobs, probed=probe(A10G, A10G, L4)))
    assert model.hardware.accelerator == "2 × NVIDIA A10G, NVIDIA L4"
    assert [d.driver for d in model.hardware.devices] == ["580.65.06"] * 3


@pytest.mark.parametrize(
    ("direction", "said"), [("lower", "10.0% slower"), ("higher", "9.1% faster")]
)
def test_a_paired_benchmark_stands_beside_its_baseline(templates, direction, said):
    cell, jobs = local()
    values = (11.0, 10.0), (20.0, 22.0)
    order = (("subject", "baseline"), ("baseline", "subject"))
    turns = [
        MetricFact(9, "loop", "decode", (value,), "ms", direction, arm=arm, turn=2 * pair + at)
        for pair, arms in enumerate(order)
        for at, (arm, value) in enumerate(zip(arms, values[pair], strict=True))
    ]
    loop = JobRecord("loop", "benchmark", "Loop", Outcome.PASSED, turns=tuple(turns))
    evidence = one(replace(cell, jobs=(*cell.jobs, loop)), jobs)
    text = render("platform", evidence, templates=templates)
    assert "### Paired with the Baseline" in text
    row = next(line for line in text.splitlines() if line.startswith("| Loop | `decode`"))
    assert said in row
    assert row.endswith("| 2 |")
    whole = render("summary", evidence, templates=templates)
    assert f"Loop, `decode`: {said} (16.5 (11 – 22) and 15 (10 – 20) ms, 2 pairs)" in whole
    for kind, path in (("platform", ("paired", 0)), ("summary", ("rows", 0, "paired", 0))):
        wrong = changed(model_of(kind, evidence), (*path, "slower_percent"), 1.0)
        assert "comparison" in {f.rule for f in errors(lint_evidence(wrong, evidence))}


def test_rocm_is_called_rocm():
    cell, jobs = a10g()
    probed = probe(A10G | {"compute_capability": None}) | {"cuda": None, "hip": "6.3"}
    model = model_of("platform", one(cell, jobs, probed=probed))
    assert (model.hardware.runtime_name, model.hardware.runtime) == ("ROCm", "6.3")
    assert isinstance(model.hardware.devices[0].architecture, Absent)


def compared(first, second):
    cells = []
    for (cell, jobs), samples in ((a10g(), first), (l4(), second)):
        metric = MetricFact(1, "moe-benchmark", "t", samples, "ms", "lower", {"n": 1})
        records = tuple(replace(j, metrics=(metric,)) if j.metrics else j for j in cell.jobs)
        cells.append((replace(cell, jobs=records), jobs))
    return model_of("summary", evidence_of(*cells, outcome=Outcome.FAILED)).comparisons


def test_relative_figures_come_from_unrounded_medians():
    (comparison,) = compared((0.2956,), (0.2785,))
    assert comparison.reference == "aws-a10g"
    assert comparison.rows[1].relative == pytest.approx(0.2956 / 0.2785, rel=1e-12)
    assert not comparison.rows[1].same_stack
    assert not comparison.rows[1].overlaps


def test_samples_that_overlap_are_marked():
    (comparison,) = compared((1.0, 1.2, 1.1), (1.15, 1.3, 1.25))
    assert comparison.rows[1].overlaps


def test_a_median_of_zero_has_no_relative_figure():
    (comparison,) = compared((1.0,), (0.0,))
    assert isinstance(comparison.rows[1].relative, Absent)


def test_ratios_with_different_baselines_are_not_compared():
    assert not [c for c in model_of("summary", release()).comparisons if c.unit == "x"]


def test_metrics_without_samples_are_absent_not_zero(templates):
    cell, jobs = a10g()
    metric = MetricFact(1, "moe-benchmark", "t", (), "ms", "lower", {})
    records = tuple(replace(j, metrics=(metric,)) if j.metrics else j for j in cell.jobs)
    evidence = one(cell, jobs, jobs=records)
    assert isinstance(model_of("platform", evidence).metrics[0].rows[0].cells[0].median, Absent)
    assert "| — (no samples) |" in render("platform", evidence, templates=templates)
    assert "MoE Benchmark: — (no samples)\n" in render("summary", evidence, templates=templates)


@pytest.mark.parametrize("sample", [1e308, float("inf"), float("nan"), -1e301])
def test_samples_that_are_no_numbers_are_absent(sample, templates):
    cell, its_jobs = a10g()
    metric = MetricFact(1, "moe-benchmark", "t", (1.0, sample), "ms", "lower", {})
    records = tuple(replace(j, metrics=(metric,)) if j.metrics else j for j in cell.jobs)
    evidence = one(cell, its_jobs, jobs=records)
    for form in ("md", "json"):
        text = render("platform", evidence, format=form, templates=templates)
        assert "not a finite number" in text


def test_a_machine_that_lies_about_time_and_size_breaks_nothing(templates):
    cell, its_jobs = a10g()
    notices = tuple(Notice(i, ts, "", "info", "x") for i, ts in enumerate((1e300, -1e300, 0.0)))
    probed = probe(A10G | {"memory_bytes": 10**400})
    text = render(
        "platform", one(cell, its_jobs, notices=notices, probed=probed), templates=templates
    )
    assert text.count("the machine's clock is wrong") == 1
    assert "1970-01-01 00:00:00 UTC" in text


def test_failures_are_listed_while_the_suite_still_runs():
    cell, its_jobs = local()
    tests = [
        *results_of("moe", [("t::bad", T.FAILED)], message="assert 0"),
        *results_of("moe", [("t::later", T.MISSING)]),
    ]
    its_jobs = Jobs().suite("moe", "MoE", tests, None, duration_s=None)
    records = tuple(its_jobs.records)
    model = model_of(
        "platform", one(cell, its_jobs, jobs=records, state=CellState.RUNNING, outcome=None)
    )
    assert [(line.nodeid, line.outcome) for line in model.problems[0].shown] == [
        ("t::bad", "failed")
    ]


def test_a_report_knows_the_product_that_a_wheel_installed_and_counts_tests_not_results():
    site = "../venv/lib/python3.12/site-packages/kernel_pytorch/"
    wheel = a10g_short("test_a", 9).replace("kernel_pytorch/", site)
    its_jobs = Jobs().suite("moe", "MoE", [failed("t::a", wheel)], None, duration_s=None)
    cells = [
        (replace(local()[0], id=name, probed={"subject_imports": ["kernel_pytorch"]}), its_jobs)
        for name in ("p0", "p1")
    ]
    signature = signature_of(failed("t::a", wheel), ["kernel_pytorch"])
    found = [Failure(signature, "t::a", "moe", "r", "p0", "p0", "1", at(0))]
    evidence = evidence_of(*cells, outcome=Outcome.FAILED)
    record = replace(evidence.record, failure_groups=failure_groups(found))
    table = failures_of(replace(evidence, record=record))
    (row,) = table.rows
    assert (row.kind, row.count, row.hidden, row.cells) == ("product", 2, 0, ("p0", "p1"))
    assert row.known_issues == ()


def test_costs_are_added_up_over_the_priced_cells_only():
    model = model_of("summary", evidence_of(local(), lost_twice(), a10g(), outcome=Outcome.FAILED))
    assert model.costs.bill.total_usd == Decimal("0.083") + Decimal("0.1823")


def test_a_reason_is_written_once_for_many_missing_values(templates):
    """One that is missing alone keeps its reason beside it; texts of machines make no notes."""
    hostile = probe(A10G | {"name": "—\ue000forged\ue001"})
    cell, its_jobs = a10g()
    text = render("platform", one(cell, its_jobs, probed=hostile), templates=templates)
    assert "forged\ufffd" in text
    handed_in = (templates.parents[1] / "tests/golden/reports/seed-003.md").read_text()
    assert "CPU: —¹\n" in handed_in
    assert handed_in.count("not in the ingested files") == 1
    assert "— (location not given)" in handed_in


def test_a_summary_counts_skips_by_reason_and_names_the_slowest_tests(templates: Path) -> None:
    tests = [
        *results_of("x", [(f"t::s{n}", T.SKIPPED) for n in range(3)], reason="needs CUDA"),
        *results_of("x", [("t::alone", T.SKIPPED)], message="no network"),
        *(
            replace(test, duration_s=duration)
            for duration, test in zip(
                (1.0, 72.0, 0.9, 2.0, 3.0),
                results_of("x", [(f"t::p{n}", T.PASSED) for n in range(5)]),
                strict=True,
            )
        ),
    ]
    jobs = Jobs().suite("x", "Suite", tests, Outcome.PASSED)
    cell = cell_of(Platform(id="cpu", provider="local"), jobs, Outcome.PASSED)
    evidence = evidence_of((cell, jobs), outcome=Outcome.PASSED)
    text = render("summary", evidence, templates=templates)
    assert "- **Skipped** in Suite: 3 for needs CUDA; 1 for no network\n" in text
    assert "- **Slowest**: `t::p1` 1m 12s, `t::p4` 3.0s, `t::p3` 2.0s\n" in text
    (row,) = model_of("summary", evidence).rows
    assert [test.suite for test in row.slowest] == ["x"] * 3
