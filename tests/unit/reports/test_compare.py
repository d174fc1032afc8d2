"""Two runs: what became of each test, by whom the cells are matched, and what a figure is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.outcome import Outcome, TestOutcome
from reports.linter import errors, lint, lint_evidence
from reports.model.comparison import CATEGORIES
from reports.registry import UnknownReportError, model_of, render
from reports.views.compare import SideOutcome, category, changes_of, compare_view
from tests.unit.reports.builders import Jobs, T, cell_of, evidence_of, passing, results_of
from tests.unit.reports.model_leaves import changed
from tests.unit.reports.pairs import head, itself, swapped, unnamed
from tests.unit.reports.stories import a10g, local, story
from tests.unit.reports.test_golden import compare as compare_files

EXPECTED = {
    "new_failure": {"test_breaks", "test_breaks_after_skip", "test_new_and_bad"},
    "still_failing": {"test_still", "test_other_fault"},
    "fixed": {"test_mended"},
    "newly_skipped": {"test_hidden", "test_skips_now"},
    "missing": {"test_lost", "test_never"},
    "changed": {"test_known_bug", "test_unskipped"},
    "new": {"TestY::test_moved", "test_new"},
    "gone": {"test_old", "TestX::test_moved"},
}


def the_pair(evidence=None):
    (pair,) = model_of("compare", evidence or head()).pairs
    return pair


def test_what_a_collection_error_hides_is_unknown_and_not_gone():
    base = {("unit", name): SideOutcome("passed") for name in ("t.py::a", "t.py::b", "o.py::c")}
    head = {
        ("unit", "t.py"): SideOutcome("error", hides=True),
        ("demo", "o.py"): SideOutcome("error", hides=True),
    }
    found = changes_of(base, head)
    counts = {group.category: group.count for group in found.groups if group.count}
    assert counts == {"hidden": 2, "gone": 1, "new_failure": 2}
    assert found.went == 3


@pytest.mark.parametrize("name", ["md", "html", "json"])
def test_the_golden_comparison(name, templates, golden, update_golden):
    text = render("compare", head(), format=name, templates=templates)
    compare_files(golden / f"compare.{name}", text, update_golden)


def test_each_test_is_in_the_one_category_that_it_belongs_to():
    found = {
        group.category: {change.name.partition("::")[2] for change in group.shown}
        for group in the_pair().tests.groups
    }
    assert found == EXPECTED
    assert the_pair().tests.same == (("passed", 1), ("skipped", 1))


def test_the_other_way_round_breaks_are_mended():
    there, back = the_pair().tests, the_pair(swapped(head())).tests
    assert {c.name for c in back.of("fixed").shown} == {"suites/test_all.py::test_breaks"}
    assert {c.name for c in back.of("new_failure").shown} == {
        "suites/test_all.py::test_mended", "suites/test_all.py::test_hidden",
    }  # fmt: skip
    assert (back.came, back.went) == (there.went, there.came)
    assert back.same == there.same


def test_a_test_whose_new_name_somebody_confirmed_is_the_same(templates):
    moved = {"suites/test_all.py::TestX::test_moved": "suites/test_all.py::TestY::test_moved",
             "suites/test_all.py::test_same": "suites/test_all.py::test_new"}  # fmt: skip
    evidence = replace(head(), renamed=moved)
    tests = the_pair(evidence).tests
    assert (tests.came, tests.went, tests.confirmed, tests.maybe) == (2, 1, 1, ())
    assert tests.same == (("passed", 2), ("skipped", 1))
    text = render("compare", evidence, templates=templates)
    assert "1 test of the base was renamed (confirmed aliases)." in text
    wrong = changed(model_of("compare", evidence), ("pairs", 0, "tests", "confirmed"), 2)
    assert "recount" in {f.rule for f in errors(lint_evidence(wrong, evidence))}


def test_two_runs_of_one_cell_are_compared_whatever_they_are():
    pair = the_pair(replace(story("a10g"), base=story("l4-degraded")))
    assert pair.matched == "only cell"
    assert not pair.same_stack


def test_two_cells_of_one_platform_are_not_guessed_at(templates):
    cell, jobs = a10g()
    twice = [(replace(cell, id=name), jobs) for name in ("one", "two")]
    evidence = evidence_of(*twice, outcome=head().record.run.outcome)
    evidence = replace(evidence, base=evidence_of(a10g(), local(), outcome=None))
    report = model_of("compare", evidence)
    assert report.pairs == report.conclusion == ()
    assert len(report.head_only) == 2
    text = render("compare", evidence, templates=templates)
    assert "Nothing was compared: no cell of the head is the same platform as one" in text
    assert "new failure" not in text
    assert "Total" not in text


def test_a_run_against_itself_has_no_difference(templates):
    report = model_of("compare", itself())
    assert {name: n for name, n in report.totals if n} == {"still_failing": 10}
    assert all(pair.environment == () and pair.jobs == () for pair in report.pairs)
    assert all(pair.metrics == () for pair in report.pairs)
    text = render("compare", itself(), templates=templates)
    assert "Nothing that is known of them differs." in text
    assert "| Platform | Status | Still failing | Same |" in text, "no column of zeros"


def test_tests_that_are_only_counted_are_not_compared(templates):
    text = render("compare", unnamed(), templates=templates)
    assert "48 tests of the base and 0 of the head are only counted in their sources" in text
    for evidence in (unnamed(), swapped(unnamed())):
        (pair,) = model_of("compare", evidence).pairs
        assert pair.tests.of("hidden").count > 0
        assert pair.tests.of("gone").count == pair.tests.of("new").count == 0


def test_a_suite_that_is_called_otherwise_is_the_same_suite():
    def run(name):
        jobs = Jobs().suite(name, name, passing("moe", 2), None)
        jobs.tests = [replace(test, job=name) for test in jobs.tests]
        return evidence_of((cell_of(local()[0].platform, jobs, None), jobs), outcome=None)

    pair = the_pair(replace(run("moe-tests"), base=run("moe")))
    assert pair.tests.same == (("passed", 2),)
    assert (pair.tests.came, pair.tests.went, pair.jobs_same) == (0, 0, 1)


def test_a_test_that_is_in_another_job_of_each_side_is_the_same_test(templates):
    def run(tests):
        jobs = Jobs()
        for job in {test.job: None for test in tests}:
            mine = [test for test in tests if test.job == job]
            jobs.suite(job, job, mine, Outcome.FAILED, "tests")
        jobs.tests = list(tests)
        return evidence_of((cell_of(local()[0].platform, jobs, None), jobs), outcome=None)

    own = results_of("tests", [("t.py::a", T.FAILED), ("t.py::b", T.PASSED), ("t.py::n", T.PASSED)])
    plain = results_of("plain", [("t.py::a", T.FAILED), ("t.py::b", T.FAILED)])
    twice = results_of("again", [("t.py::n", T.PASSED)]) + results_of(
        "more", [("t.py::n", T.PASSED)]
    )
    evidence = replace(run([*plain, *twice]), base=run(own))
    tests = the_pair(evidence).tests
    found = {group.category: [c.name for c in group.shown] for group in tests.groups if group.count}
    assert found == {
        "new_failure": ["t.py::b"],
        "still_failing": ["t.py::a"],
        # Two jobs of the head have it: neither is known to be the base's.
        "new": ["t.py::n", "t.py::n"],
        "gone": ["t.py::n"],
    }
    assert tests.confirmed == 0
    assert errors(lint_evidence(model_of("compare", evidence), evidence)) == ()


def test_software_that_one_run_did_not_report_is_not_said_to_differ(templates):
    evidence = replace(story("a10g"), base=story("l4-degraded"))
    assert "PyTorch or its runtime differ" in render("compare", evidence, templates=templates)
    (cell,) = evidence.record.cells
    silent = replace(evidence.record, cells=(replace(cell, probed={}),))
    text = render("compare", replace(evidence, record=silent), templates=templates)
    assert "differ: a difference below" not in text
    assert "PyTorch and its runtime are not known of both" in text
    assert "The head did not report its environment: it may differ." in text
    assert "| package" not in text


def test_without_a_base_it_says_how_to_compare(templates):
    with pytest.raises(UnknownReportError, match="seatrial compare BASE HEAD"):
        render("compare", story("local"), templates=templates)
    with pytest.raises(LookupError):
        compare_view(story("local"))


OUTCOMES = st.one_of(st.none(), st.sampled_from([o.word for o in TestOutcome]))


@given(st.lists(st.tuples(OUTCOMES, OUTCOMES).filter(any), max_size=30))
def test_every_name_is_counted_once(pairs):
    base_side = {("j", str(i)): SideOutcome(a) for i, (a, _) in enumerate(pairs) if a}
    head_side = {("j", str(i)): SideOutcome(b) for i, (_, b) in enumerate(pairs) if b}
    found = changes_of(base_side, head_side)
    counted = sum(group.count for group in found.groups) + found.unchanged
    assert counted == len(pairs)
    usual = tuple(name for name in CATEGORIES if name != "hidden")
    assert tuple(group.category for group in found.groups) == usual


@given(OUTCOMES, OUTCOMES)
def test_nothing_is_fixed_that_does_not_pass(before, after):
    if category(before, after) == "fixed":
        assert before in ("failed", "error")
        assert after in ("passed", "xfailed", "xpassed")
    if after in ("failed", "error"):
        assert category(before, after) in ("new_failure", "still_failing")


def test_a_failure_that_is_told_as_fixed_is_found_in_the_evidence():
    evidence = head()
    model = model_of("compare", evidence)
    tests = model.pairs[0].tests
    groups = list(tests.groups)
    moved = groups[0].shown[0]
    groups[0] = replace(groups[0], count=2, shown=groups[0].shown[1:])
    groups[2] = replace(groups[2], count=2, shown=(*groups[2].shown, moved))
    totals = (("new_failure", 2), model.totals[1], ("fixed", 2), *model.totals[3:])
    claims = tuple(replace(c, figures=(2,), text=f"2 {c.text[2:]}") if c.rule in (
        "tests.new_failure", "tests.fixed") else c for c in model.conclusion)  # fmt: skip
    pair = replace(model.pairs[0], tests=replace(tests, groups=tuple(groups)))
    wrong = replace(model, pairs=(pair,), totals=totals, conclusion=claims)
    assert errors(lint(wrong)) == ()
    assert {f.rule for f in errors(lint_evidence(wrong, evidence))} == {"recount"}


def test_long_lists_are_bounded(templates):
    many = results_of("moe", [(f"suites/test_moe.py::t{i}", T.FAILED) for i in range(500)])
    jobs = Jobs().suite("moe", "MoE", many, None)
    evidence = evidence_of((cell_of(local()[0].platform, jobs, None), jobs), outcome=None)
    text = render("compare", replace(evidence, base=story("local")), templates=templates)
    assert "New failures: 500 tests" in text
    assert "…and 440 more" in text
