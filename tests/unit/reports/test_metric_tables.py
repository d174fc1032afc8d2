"""Metrics as tables: what becomes a row, a column, a line above it, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.units import measured
from reports.linter import errors, lint, lint_evidence
from reports.metric_text import caption, figure, heading, highlight
from reports.registry import model_of, render
from reports.views.benchmarks import COLUMNS_SHOWN, ROWS_SHOWN
from reports.views.platform import platform_view
from tests.unit.reports.builders import evidence_of
from tests.unit.reports.hostile_text import EVIL
from tests.unit.reports.stories import a10g, release, story
from tests.unit.reports.tables import rendered_rows, tables


def metric(name, *samples, unit="ms", direction="lower", **params):
    return MetricFact(1, "moe-benchmark", name, samples or (1.0,), unit, direction, params)


def reporting(*facts):
    cell, jobs = a10g()
    records = tuple(replace(j, metrics=facts) if j.metrics else j for j in cell.jobs)
    return evidence_of((replace(cell, jobs=records), jobs), outcome=Outcome.FAILED)


def table_of(*facts):
    evidence = reporting(*facts)
    model = model_of("platform", evidence)
    assert errors(lint(model)) == ()
    (table,) = model.metrics
    return table


def printed(templates, *facts, kind="platform"):
    """The table below the job's heading, as rows of cells."""
    text = render(kind, reporting(*facts), templates=templates)
    section = text.partition("### MoE Benchmark\n")[2]
    return tables(section)[0]


def test_one_table_holds_what_a_job_measured(templates):
    facts = [
        metric(f"moe/{h}/{name}", 1.0 * h, unit=unit, hidden=h, batch=32)
        for h in (512, 1024)
        for name, unit in (("latency", "ms"), ("rate", "tok/s"))
    ]
    assert printed(templates, *facts) == [
        ["hidden", "latency (ms, lower is better)", "rate (tok/s, lower is better)"],
        ["512", "512", "512"],
        ["1024", "1,024", "1,024"],
    ]
    text = render("platform", reporting(*facts), templates=templates)
    assert text.count("One sample each. Same in every row: batch=32.") == 1


def test_what_was_not_measured_with_some_parameters_is_a_dash(templates):
    rows = printed(templates, metric("a/t", n=1), metric("a/t", n=2), metric("a/u", n=2))
    assert [row[1:] for row in rows[1:]] == [["1", "—"], ["1", "1"]]


def test_names_tell_rows_apart_where_parameters_do_not(templates):
    rows = printed(templates, metric("encode/t"), metric("decode/t", 2.0))
    assert [row[0] for row in rows] == ["Metrics", "encode", "decode"]


def test_names_are_said_where_parameters_do_not_say_them(templates):
    rows = printed(templates, metric("encode/t", n=1), metric("decode/t", n=8))
    assert [row[:2] for row in rows[1:]] == [["encode", "1"], ["decode", "8"]]


@pytest.mark.parametrize(
    ("name", "split"), [("t", ("", "t")), ("/t", ("", "/t")), ("t/", ("", "t/"))]
)
def test_names_without_two_parts_stand_as_they_are(name, split):
    table = table_of(metric(name))
    assert (table.rows[0].prefix, table.columns[0].name) == split


def test_ratios_say_their_baseline_in_the_head():
    table = table_of(
        metric("ratio", unit="x", direction="higher", baseline="loop"),
        metric("ratio", unit="x", direction="higher", baseline="eager"),
        metric("ratio", unit="x", direction="higher"),
        metric("time", baseline="loop"),
    )
    assert [heading(column) for column in table.columns] == [
        "ratio (x vs loop, higher is better)",
        "ratio (x vs eager, higher is better)",
        "ratio (x, baseline not named, higher is better)",
        "time (ms, lower is better)",
    ]


def test_columns_never_read_the_same():
    table = table_of(
        metric("r", unit="x", baseline="a"), metric("t", baseline="a"), metric("t", baseline="b")
    )
    heads = [heading(column) for column in table.columns]
    assert len(set(heads)) == len(heads) == 3


def test_a_figure_that_came_again_stands_as_it_came_last(templates):
    evidence = reporting(metric("t", 1.0, n=1), metric("t", 3.0, n=1))
    text = render("platform", evidence, templates=templates)
    assert "1 figure in `events.jsonl` was reported more than once: the last value is" in text
    assert model_of("platform", evidence).metrics[0].rows[0].cells[0].median == 3.0


@pytest.mark.parametrize(
    ("counts", "said", "cell"),
    [
        ([(6, 6), (6, 6)], "Median (IQR) of 6 samples each.", "2 (2 – 2)"),
        ([(3, 3), (3, 3)], "Median (min – max) of 3 samples each.", "2 (2 – 2)"),
        ([(6, 6), (7, 7)], "Median (IQR) of n samples.", "2 (2 – 2)"),
        ([(6, 2), (6, 6)], "Median (IQR or, below five samples, min – max) of n samples.",
         "2 (2 – 2; n=6)"),
        ([(1, 6), (6, 6)], "Median (IQR) of n samples.", "2 (n=1)"),
    ],
)  # fmt: skip
def test_the_number_of_samples_is_said_once(counts, said, cell, templates):
    facts = [
        metric(name, *([2.0] * n), row=row)
        for row, pair in enumerate(counts)
        for name, n in zip("tu", pair, strict=True)
    ]
    table = table_of(*facts)
    assert caption(table) == said
    assert figure(table.rows[0].cells[0], with_n=table.samples_in == "cells") == cell
    columns = printed(templates, *facts)
    assert (columns[0][-1] == "n") == (table.samples_in == "column")


def test_a_line_of_a_summary_names_what_tells_the_row_apart():
    table = story_table("built-in", 1)
    assert highlight(table, table.rows[0]) == (
        "MoE Throughput (8 experts, top-2), hidden=512: 16,404 tokens/s, latency 249.7 ms, "
        "baseline_latency 258.3 ms, ratio 1.045x vs mask_loop (n=28)"
    )


def story_table(name, index):
    return model_of("platform", story(name)).metrics[index]


def test_a_summary_has_six_lines_of_a_cell_and_counts_the_others(templates):
    text = render("summary", reporting(*(metric("t", n=n) for n in range(9))), templates=templates)
    assert text.count("- **Performance**: MoE Benchmark, n=") == 6
    assert "- **Performance**: …and 3 more in the platform report" in text


def test_very_many_names_and_rows_stay_bounded(templates):
    names = [metric(f"name{i}") for i in range(120)]
    rows = [metric("t", n=n) for n in range(1_200)]
    both = [metric(f"a{i}/b{i}", **{f"p{i}": i}) for i in range(120)]
    for facts in (names, rows, both):
        evidence = reporting(*facts)
        (table,) = model_of("platform", evidence).metrics
        assert len(table.columns) <= COLUMNS_SHOWN
        assert len(table.rows) <= ROWS_SHOWN
        shown = sum(len(row.figures) for row in table.rows)
        assert table.hidden == len(facts) - shown
        text = render("platform", evidence, templates=templates)
        assert f"…and {table.hidden:,} more figures in `events.jsonl`." in text
        assert len(text) < 20_000


def test_many_parameters_share_one_column(templates):
    facts = [metric("t", **{f"p{i}": i * row for i in range(1, 200)}) for row in (1, 2)]
    rows = printed(templates, *facts)
    assert {len(row) for row in rows} == {2}
    assert rows[1][0].startswith("p1=1, p10=10")
    assert all(len(row[0]) < 400 for row in rows)


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_hostile_parameters_stay_in_their_cells(kind, templates):
    facts = [
        metric(f"{word}/{other}", unit=word, direction=other, **{"k": word, other: word})
        for word in EVIL[:6]
        for other in EVIL[6:12]
    ]
    text = render(kind, reporting(*facts), templates=templates)
    assert rendered_rows(text) == [len(row) for table in tables(text) for row in table]
    assert "<script" not in text


NAMES = st.lists(st.sampled_from(["a/t", "a/u", "b/t", "t", "a/b/t"]), min_size=1, max_size=12)


@given(NAMES, st.lists(st.sampled_from([1, 2, 3]), min_size=12, max_size=12), st.data())
def test_every_figure_stands_in_exactly_one_cell(names, values, data):
    keys = data.draw(st.lists(st.sampled_from("xyz"), min_size=12, max_size=12))
    facts = [
        metric(name, float(i), **{key: value})
        for i, (name, key, value) in enumerate(zip(names, keys, values, strict=False))
    ]
    evidence = reporting(*facts)
    model = platform_view(evidence, "aws-a10g")
    assert errors((*lint(model), *lint_evidence(model, evidence))) == ()
    last = {(f.name, *f.params.items()): f.samples for f in facts}
    shown = [figure.samples for row in model.metrics[0].rows for figure in row.figures]
    assert sorted(shown) == sorted(last.values())


def test_comparisons_of_a_job_stand_in_one_table(templates):
    (table,) = model_of("summary", release()).comparison_tables
    assert [heading(column) for column in table.columns] == [
        "time (ms, lower is better)",
        "throughput (tok/s, higher is better)",
    ]
    assert [dict(row.params)["hidden"] for row in table.rows] == ["512"] * 3 + ["1024"] * 3
    assert [row.known[0].cell for row in table.rows[:3]] == ["local-cpu", "aws-a10g", "gcp-l4"]


def test_every_comparison_is_printed_once():
    model = model_of("summary", release())
    printed = [
        row for table in model.comparison_tables for line in table.rows for row in line.known
    ]
    assert sorted(map(repr, printed)) == sorted(
        repr(row) for comparison in model.comparisons for row in comparison.rows
    )


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("2.6824523047253024e-07", "2.682e-07"), ("1.0445831646011845", "1.045"), ("8192", "8192"),
        ("123456789012", "123456789012"), ("0.0", "0"), ("-0.0", "0"), ("1e-05", "1e-05"),
        ("16406.25", "16,406"), ("", ""), ("True", "True"), ("nan", "nan"), ("1e999", "1e999"),
        ("1_000.5", "1_000.5"), ("٣.٥", "٣.٥"), ("3.14159 apples", "3.14159 apples"),
    ],
)  # fmt: skip
def test_a_jobs_own_figure(said, text):
    assert measured(said) == text


def test_a_value_is_never_rounded_onto_its_tolerance():
    assert measured("1.00001e-05", apart_from="1e-05") == "1.00001e-05"
    assert measured("0.89999", apart_from="0.9") == "0.89999"
    assert measured("0.9", apart_from="0.9") == "0.9"
