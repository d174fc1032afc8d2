"""The results and the cost report: what stands side by side, and that no number of it can lie."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from orchestrator.domain.event_facts import CheckFact, MetricFact
from orchestrator.domain.outcome import Outcome
from reports.model.values import Absent
from reports.registry import model_of, render
from reports.side_by_side_text import exact
from tests.unit.reports.builders import Jobs, cell_of, evidence_of
from tests.unit.reports.stories import a10g, l4, local, not_available, release, story
from tests.unit.reports.test_golden import compare

KINDS = ("results", "cost")
metric = partial(MetricFact, 1, "uc")


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_release(kind, templates, golden, update_golden):
    text = render(kind, release(), templates=templates)
    compare(golden / f"{kind}-release.md", text, update_golden)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["built-in", "running"])
def test_the_golden_cell(kind, name, templates, golden, update_golden):
    text = render(kind, story(name), templates=templates)
    compare(golden / f"{kind}-{name}.md", text, update_golden)


def side_by_side(*cells):
    return evidence_of(*cells, outcome=Outcome.PASSED)


def use_case(cell, *facts, checks=(), **changes):
    jobs = Jobs().command("uc", "use-case", "UC", metrics=facts, checks=checks, **changes)
    made = cell_of(cell.platform, jobs, Outcome.PASSED, probed=cell.probed)
    return made, jobs


def section_of(*cells):
    (section,) = model_of("results", side_by_side(*cells)).sections
    return section


def test_a_speed_up_is_of_the_metric_that_it_names_or_is_named_after():
    section = section_of(
        use_case(
            a10g()[0],
            metric("plain", (100.0,), "ms", "lower"),
            metric("tuned", (80.0,), "ms", "lower", {"baseline": "plain"}),
            metric("rate", (10.0, 11.0), "1/s", "higher"),
            metric("baseline_rate", (20.0, 22.0), "1/s", "higher"),
        )
    )
    found = {row.name: (row.baseline, [one.ratio for one in row.speed_ups])
             for row in section.metrics if row.baseline}  # fmt: skip
    assert found == {"tuned": ("plain", [1.25]), "rate": ("baseline_rate", [0.5])}


def test_a_ratio_is_shown_as_it_is_better_or_worse(templates):
    evidence = side_by_side(
        use_case(
            l4()[0],
            metric("plain", (100.0, 101.0), "ms", "lower"),
            metric("tuned", (120.0, 121.0), "ms", "lower", {"baseline": "plain"}),
            metric("even", (100.0, 101.0), "ms", "lower", {"baseline": "plain"}),
        )
    )
    text = render("results", evidence, templates=templates)
    assert "0.834x of plain: worse |" in text
    assert "1.00x of plain: the same ≈ |" in text
    assert "1 figure came out worse than the baseline beside it." in text


def test_a_metric_with_other_parameters_or_units_is_no_baseline():
    section = section_of(
        use_case(
            a10g()[0],
            metric("plain", (100.0,), "ms", "lower", {"batch": 1}),
            metric("tuned", (80.0,), "ms", "lower", {"batch": 2, "baseline": "plain"}),
            metric("plain", (0.1,), "s", "lower", {"batch": 2}),
        )
    )
    assert {row.baseline for row in section.metrics} == {""}


def test_figures_of_three_sizes_are_a_sweep_and_of_two_stand_side_by_side():
    def facts(n):
        return [
            metric("latency", (float(i),), "ms", "lower", {"batch": i}) for i in range(1, n + 1)
        ]

    few = section_of(use_case(a10g()[0], *facts(2)), use_case(l4()[0], *facts(2)))
    assert ([row.params for row in few.metrics], few.sweeps) == (
        [(("batch", "1"),), (("batch", "2"),)], (),
    )  # fmt: skip
    many = section_of(use_case(a10g()[0], *facts(3)), use_case(l4()[0]))
    assert many.metrics == ()
    assert [isinstance(sweep.table, Absent) for sweep in many.sweeps] == [False, True]


def test_what_a_platform_was_not_to_run_is_no_gap():
    job = CheckFact("uc", "equal", "passed")
    alone = side_by_side(use_case(a10g()[0], checks=[job]), (not_available()))
    assert model_of("results", alone).gaps == 0
    both = side_by_side(use_case(a10g()[0], checks=[job]), use_case(l4()[0]))
    assert model_of("results", both).gaps == 1


def test_two_platforms_of_one_name_are_told_apart():
    cell, jobs = a10g()
    twice = [(replace(cell, id=name), jobs) for name in ("one", "two")]
    report = model_of("results", evidence_of(*twice, outcome=Outcome.FAILED))
    assert [column.heading for column in report.columns] == ["one", "two"]


def test_the_stack_of_the_first_accelerator_is_what_others_are_marked_against(templates):
    report = model_of("results", release())
    assert report.reference == "aws-a10g"
    assert [column.confounded for column in report.columns] == [True, False, True, False]
    text = render("results", side_by_side(l4()), templates=templates)
    assert "†" not in text


@pytest.mark.parametrize(
    ("value", "said"),
    [(2045.8, "2,045.8"), (689.0, "689"), (0.0201, "0.0201"), (581235.0, "581,235"),
     (0.0, "0"), (1 / 3, "0.3333"), (2045.8123, "2,046"), (1e-7, "1e-07"), (1e22, "1e+22"),
     (-12.5, "-12.5"), (123456789.0, "123,456,789"), (float("nan"), "— (not a finite number)")],
)  # fmt: skip
def test_a_short_figure_stands_as_it_was_reported(value, said):
    assert exact(value) == said


def test_a_run_without_a_price_has_no_tables_of_shares(templates):
    text = render("cost", side_by_side(local()), templates=templates)
    assert "own machine: nothing is charged" in text
    assert "no machine has a price" not in text
    assert "## By Phase" not in text
