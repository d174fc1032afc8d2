"""The backend report: every test of every platform, and differences by a rule that is printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.event_facts import CheckFact, MetricFact
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import Evidence
from reports.registry import model_of, render
from reports.views.backend import parts_of
from tests.unit.reports.builders import Jobs, T, cell_of, evidence_of, results_of
from tests.unit.reports.stories import a10g, l4, release, story
from tests.unit.reports.tables import tables
from tests.unit.reports.test_golden import compare


@pytest.mark.parametrize("name", ["release", "every-outcome", "running", "not-available"])
def test_golden(name, templates, golden, update_golden):
    evidence = release() if name == "release" else story(name)
    compare(
        golden / f"backend-{name}.md",
        render("backend", evidence, templates=templates),
        update_golden,
    )


@pytest.mark.parametrize(
    ("nodeid", "parts"),
    [
        ("tests/a.py::TestA::test_x", ("tests/a.py", "TestA", "test_x")),
        ("tests/a.py::test_x[b::c-[d]]", ("tests/a.py", "", "test_x[b::c-[d]]")),
        ("tests/a.py::TestA::TestB::test_x[1]", ("tests/a.py", "TestA::TestB", "test_x[1]")),
        ("doc.md", ("doc.md", "", "doc.md")),
        ("", ("", "", "")),
    ],
)
def test_what_a_test_is_called(nodeid, parts):
    assert parts_of(nodeid) == parts


def two(first, second) -> Evidence:
    """The same suite on two platforms, with other results."""
    made = []
    for (cell, _), tests in ((a10g(), first), (l4(), second)):
        jobs = Jobs().suite("moe", "MoE Tests", tests, Outcome.PASSED)
        made.append((cell_of(cell.platform, jobs, Outcome.PASSED, probed=cell.probed), jobs))
    return evidence_of(*made, outcome=Outcome.PASSED)


def facts(*names: str, outcome=T.PASSED):
    return results_of("moe", [(f"tests/test_a.py::{name}", outcome) for name in names])


def test_a_platform_has_a_dash_where_it_has_no_such_test(templates):
    evidence = two(facts("TestA::test_1", "TestA::test_2"), facts("TestA::test_2", "TestB::test_3"))
    text = render("backend", evidence, templates=templates)
    assert "| `test_1` | passed | — |" in text
    assert "| `test_2` | passed | passed |" in text
    assert "| `TestB` | 1 | — | ✅ PASSED |" in text
    (suite,) = model_of("backend", evidence).suites
    assert [row.tests for row in suite.classes] == [2, 1]
    assert suite.tests == 3


def test_classes_of_one_name_in_two_files_are_two(templates):
    tests = results_of("moe", [(f"tests/test_{n}.py::TestA::test_x", T.PASSED) for n in "ab"])
    (suite,) = model_of("backend", two(tests, [])).suites
    assert [row.name for row in suite.classes] == [
        "TestA (tests/test_a.py)",
        "TestA (tests/test_b.py)",
    ]


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ((T.PASSED, T.SKIPPED), "✅ PASSED, 1 skipped (test_1)"),
        ((T.SKIPPED, T.SKIPPED), "⊘ SKIPPED, 2 skipped (test_0, test_1)"),
        ((T.PASSED, T.FAILED), "❌ FAILED, 1 failed"),
        ((T.PASSED, T.MISSING), "❌ FAILED, 1 missing"),
        ((T.PASSED, T.ERROR, T.NOT_RUN), "❌ FAILED, 1 error, 1 not run"),
        ((T.XFAILED,), "✅ PASSED, 1 xfailed"),
    ],
)
def test_a_class_passes_only_where_nothing_of_it_is_bad(outcomes, word, templates):
    named = [(f"tests/test_a.py::TestA::test_{i}", o) for i, o in enumerate(outcomes)]
    tests = results_of("moe", named)
    bad = any(o in (T.FAILED, T.ERROR, T.MISSING, T.NOT_RUN) for o in outcomes)
    outcome = Outcome.FAILED if bad else Outcome.PASSED
    jobs = Jobs().suite("moe", "MoE Tests", tests, outcome, "tests" if bad else "")
    cell = cell_of(a10g()[0].platform, jobs, outcome)
    text = render("backend", evidence_of((cell, jobs), outcome=outcome), templates=templates)
    assert f"| `TestA` | {len(outcomes)} | {word} |" in text


def test_long_classes_are_bounded_and_their_figures_are_whole(templates):
    names = [f"TestA::test_{i}" for i in range(1200)]
    evidence = two(facts(*names), facts(*names[:3]))
    text = render("backend", evidence, templates=templates)
    assert "…and 700 more tests in the evidence." in text
    assert "| `TestA` | 1,200 | ✅ PASSED | ✅ PASSED |" in text


def test_what_did_not_pass_is_listed_first_where_not_all_can_be(templates):
    bad = facts("TestA::test_bad", outcome=T.FAILED)
    many = [name for c in "BCDEFGHIJK" for name in (f"Test{c}::test_{i}" for i in range(600))]
    evidence = two([*facts(*(f"TestA::test_{i}" for i in range(600))), *bad], facts(*many))
    jobs = tuple(
        replace(cell, jobs=(replace(cell.jobs[0], outcome=Outcome.FAILED),), outcome=Outcome.FAILED)
        if cell.id == "aws-a10g"
        else cell
        for cell in evidence.record.cells
    )
    run = replace(evidence.record.run, outcome=Outcome.FAILED)
    evidence = replace(evidence, record=replace(evidence.record, cells=jobs, run=run))
    text = render("backend", evidence, templates=templates)
    assert "| `test_bad` | failed | — |" in text
    (suite,) = model_of("backend", evidence).suites
    listed = [len(row.rows) for row in suite.classes]
    assert (sum(listed), listed[-1], suite.tests) == (4000, 0, 6601)
    for table in tables(text):
        assert len(table) > 1


def test_every_number_of_a_table_is_one_of_the_model(templates):
    from reports import format as fmt
    from reports.side_by_side_text import exact
    from tests.unit.reports.model_leaves import numerals
    from tests.unit.reports.test_numbers import sayable

    evidence = release()
    model = model_of("backend", evidence)
    known = sayable(model) | {n for p in model.platforms for n in numerals(p.label)}
    figures = [f for c in model.contrasts for f in c.figures if f is not None]
    known |= {n for f in figures for n in numerals(exact(f.median))}
    apart = [d.percent for c in model.contrasts for d in c.differences]
    known |= {n for value in apart for n in numerals(fmt.percent(value))}
    text = render("backend", evidence, templates=templates)
    cells = [cell for table in tables(text) for row in table[1:] for cell in row]
    assert {n.rstrip(",") for cell in cells for n in numerals(cell)} - known == set()


def benchmarks(first, second, **words) -> Evidence:
    made = []
    for (cell, jobs), samples in ((a10g(), first), (l4(), second)):
        told = {"unit": "ms", "direction": "lower", "params": {}} | words
        fact = MetricFact(1, "moe-benchmark", "Section/Backend creation", samples, **told)
        records = tuple(replace(j, metrics=(fact,)) if j.metrics else j for j in cell.jobs)
        made.append((replace(cell, jobs=records), jobs))
    return evidence_of(*made, outcome=Outcome.FAILED)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((0.2956,), (0.2785,), "GCP NVIDIA L4 5.8% faster †"),
        ((0.1032,), (0.1055,), "Similar (2.2%) †"),
        ((5.28,), (7.01,), "AWS NVIDIA A10G 24.7% faster †"),
        ((1.0,), (1.0,), "Similar (0%) †"),
        ((1.0, 1.2, 1.4), (1.3, 1.5, 1.6), "Similar (20.0%) †"),
        ((1.0, 1.1, 1.2), (1.3, 1.5, 1.6), "AWS NVIDIA A10G 26.7% faster †"),
        ((0.0,), (1.0,), "AWS NVIDIA A10G 100% faster †"),
    ],
)
def test_differences_are_made_from_unrounded_medians(first, second, said, templates):
    text = render("backend", benchmarks(first, second), templates=templates)
    (row,) = [line for line in text.splitlines() if line.startswith("| Section: Backend creation")]
    assert f" {said} |" in row


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"unit": "tok/s", "direction": "higher"}, "AWS NVIDIA A10G 50% higher †"),
        ({"unit": "MiB"}, "GCP NVIDIA L4 50% lower †"),
        ({"direction": ""}, "Differs (50%) †"),
    ],
)
def test_what_better_means(words, said, templates):
    text = render("backend", benchmarks((4.0,), (2.0,), **words), templates=templates)
    assert said.replace("50%", "50.0%") in text


def test_a_ratio_without_a_baseline_is_not_compared():
    model = model_of("backend", benchmarks((1.0,), (2.0,), unit="x"))
    assert model.contrasts == ()
    named = benchmarks((1.0,), (2.0,), unit="x", params={"baseline": "eager"})
    assert len(model_of("backend", named).contrasts) == 1


def test_two_platforms_with_one_stack_have_no_mark():
    cell, jobs = a10g()
    twin = replace(cell, id="aws-a10g-2")
    model = model_of("backend", evidence_of((cell, jobs), (twin, jobs), outcome=Outcome.FAILED))
    assert all(d.same_stack for c in model.contrasts for d in c.differences)
    assert [p.label for p in model.platforms] == [
        "AWS NVIDIA A10G, aws-a10g",
        "AWS NVIDIA A10G, aws-a10g-2",
    ]


def test_another_architecture_than_the_devices_is_a_remark():
    cell, jobs = l4()
    said = CheckFact("moe-benchmark", "Architecture detection", "passed", "ampere")
    records = tuple(replace(j, checks=(said,)) if j.metrics else j for j in cell.jobs)
    evidence = evidence_of((replace(cell, jobs=records), jobs), outcome=Outcome.PASSED)
    found = model_of("backend", evidence).remarks
    assert "architecture" in {finding.rule for finding in found}
    right = tuple(
        replace(j, checks=(replace(said, value="Ada"),)) if j.metrics else j for j in records
    )
    evidence = evidence_of((replace(cell, jobs=right), jobs), outcome=Outcome.PASSED)
    assert "architecture" not in {f.rule for f in model_of("backend", evidence).remarks}
