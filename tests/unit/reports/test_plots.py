"""Plots: drawn from the model alone, harmless whatever a machine said, never misleading."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from reports.plots.bars import (
    DOTS,
    Segment,
    SpreadRow,
    StackedRow,
    StripRow,
    spreads,
    stacked,
    strips,
)
from reports.plots.comparison import RatioRow, metrics_plot, ratios
from reports.plots.selection import plots_of
from reports.plots.svg import LEFT, RIGHT
from reports.registry import draw, model_of, render
from tests.unit.reports.pairs import itself
from tests.unit.reports.stories import STORIES, release, story

SVG = "{http://www.w3.org/2000/svg}"


def parsed(plot):
    return ET.fromstring(plot.svg)


def bars(plot):
    found = [r for r in parsed(plot).iter(f"{SVG}rect") if r.get("height") == "16"]
    return [(r.get("class"), float(r.get("x")), float(r.get("width"))) for r in found]


def texts(plot):
    return [t.text or "" for t in parsed(plot).iter(f"{SVG}text")]


def test_markdown_links_each_plot_and_a_page_carries_it(templates):
    plots = draw("summary", release())
    text = render("summary", release(), format="md", templates=templates)
    page = render("summary", release(), format="html", templates=templates)
    assert re.findall(r"!\[[^]]*\]\(([^)]*)\)", text) == [plot.path for plot in plots]
    carried = [base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]+)", page)]
    assert carried == [plot.svg for plot in plots]


@pytest.mark.parametrize("name", STORIES)
def test_whatever_was_measured_the_picture_is_whole_and_harmless(name):
    for kind in ("summary", "platform"):
        for plot in draw(kind, story(name)):
            assert re.fullmatch(r"[a-z0-9-]+", plot.name)
            root = parsed(plot)
            assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {
                "svg", "title", "desc", "style", "text", "rect", "line", "circle",
            }  # fmt: skip
            attributes = {a for e in root.iter() for a in e.attrib}
            assert not [a for a in attributes if a.startswith("on") or "href" in a]
            assert "url(" not in plot.svg
            assert root.find(f"{SVG}title").text
            assert root.find(f"{SVG}desc").text


def test_shares_are_drawn_to_scale_and_said_in_words():
    rows = [
        StackedRow(
            "a10g",
            (Segment("passed", "passed", 175, "175"), Segment("failed", "failed", 10, "10")),
            "175/185",
        )
    ]
    plot = stacked("x", "Tests", "told", rows, shared_scale=False)
    (_, start, passed), (_, after, failed) = bars(plot)
    assert start == LEFT
    assert after == pytest.approx(LEFT + passed, abs=0.1)
    assert passed / failed == pytest.approx(17.5, rel=0.02)
    assert passed + failed == pytest.approx(RIGHT - LEFT, abs=0.2)
    assert {"175", "175/185", "passed", "failed"} <= set(texts(plot))


def test_one_failure_among_very_many_tests_is_seen():
    parts = (Segment("passed", "passed", 1e6, "1,000,000"), Segment("failed", "failed", 1, "1"))
    plot = stacked("x", "Tests", "told", [StackedRow("a", parts, "")], shared_scale=False)
    assert bars(plot)[1][2] >= 1.5


def test_bars_begin_at_zero():
    rows = [
        SpreadRow(label="a", group="g", value=100.0, low=90.0, high=110.0, printed="100", series=0),
        SpreadRow(label="b", group="g", value=99.0, low=99.0, high=99.0, printed="99", series=1),
    ]
    plot = spreads("x", "Throughput", "told", rows, note="n")
    (_, _, first), (_, _, second) = bars(plot)
    assert first / second == pytest.approx(100 / 99, rel=0.005)
    whiskers = [e for e in parsed(plot).iter(f"{SVG}line") if e.get("class") == "whisker"]
    assert len(whiskers) == 3, "only what has a spread has whiskers"


def test_every_sample_is_a_dot_up_to_a_bound():
    few = StripRow("few", (1.0, 2.0, 3.0, 4.0, 5.0), 3.0, "3 ms")
    many = StripRow("many", tuple(float(n % 97) + 1 for n in range(100_000)), 49.0, "49 ms")
    plot = strips("x", "Latency", "told", [few, many], unit="ms")
    dots = list(parsed(plot).iter(f"{SVG}circle"))
    assert len(dots) == 5 + DOTS
    assert all(LEFT <= float(dot.get("cx")) <= RIGHT for dot in dots)


def test_a_wide_range_says_that_its_scale_is_logarithmic():
    rows = [StripRow("cold", (375.16,) * 5, 375.16, ""), StripRow("warm", (0.2,) * 5, 0.2, "")]
    plot = strips("x", "Latency", "told", rows, unit="ms")
    assert any("logarithmic" in text for text in texts(plot))
    near = strips("x", "Latency", "told", rows[1:], unit="ms")
    assert not any("logarithmic" in text for text in texts(near))


def test_two_measurements_of_one_name_are_two_files():
    model = model_of("platform", story("built-in"))
    names = [plot.name for plot in plots_of(replace(model, metrics=model.metrics * 3))]
    assert len(names) == 3 * len(plots_of(model))
    assert len(set(names)) == len(names)


def centres(plot, kind):
    found = [c for c in parsed(plot).iter(f"{SVG}circle") if c.get("class") == kind]
    return [float(c.get("cx")) for c in found]


def ratio(value, low=None, high=None, kind="passed"):
    return RatioRow(
        label="a",
        group="g",
        ratio=value,
        low=low or value,
        high=high or value,
        kind=kind,
        printed=f"{value}x",
    )


def test_twice_as_good_is_as_far_from_the_middle_as_half_as_good():
    plot = ratios("x", "Moved", "told", [ratio(2.0), ratio(0.5), ratio(1.0)], note="n")
    right, left, middle = centres(plot, "passed")
    assert middle == (LEFT + RIGHT) / 2
    assert right - middle == pytest.approx(middle - left)
    assert {"0.500x", "1.00x", "2.00x"} <= set(texts(plot))


def test_a_change_that_is_off_the_scale_stays_in_the_picture():
    extreme = [ratio(1e9), ratio(1e-9), ratio(2.0, low=0.0, high=float("inf"))]
    numbers = re.findall(r' (?:x\d?|cx)="([^"]*)"', ratios("x", "t", "t", extreme, note="n").svg)
    assert all(0 <= float(number) <= 720 for number in numbers)


def test_a_run_against_itself_moves_nothing():
    report = model_of("compare", itself())
    assert metrics_plot(report) is None


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0.0, 7.895), ["0", "2", "4", "6", "8"]),
        ((0.0, 1216.0), ["0", "500", "1,000", "1,500"]),
        ((0.3, 0.0), ["0", "0.1", "0.2", "0.3"]),
        ((1.0, 99.0), ["1", "10", "100"]),
        ((0.0, 0.0), ["0"]),
    ],
)
def test_a_scale_has_round_numbers(values, ticks):
    plot = strips("x", "t", "t", [StripRow("a", values, values[0], "x")], unit="ms")
    notes = [t.text for t in parsed(plot).iter(f"{SVG}text") if t.get("text-anchor") == "middle"]
    assert notes == ticks


def test_a_long_name_keeps_its_beginning_and_its_end():
    name = "a_very_long_parameter=12345, another=1, hidden=1024"
    plot = strips("x", "t", "t", [StripRow(name, (1.0, 2.0), 1.0, "1")], unit="ms")
    (label,) = [t.text for t in parsed(plot).iter(f"{SVG}text") if t.get("text-anchor") == "end"]
    assert label.startswith("a_very_long")
    assert label.endswith("en=1024")
    assert len(label) <= 27


def test_a_legend_that_is_too_long_goes_on_below():
    parts = tuple(Segment(f"s{i % 6}", f"a rather long word {i}", 1, "1") for i in range(8))
    plot = stacked("x", "t", "t", [StackedRow("a", parts, "8")], shared_scale=False)
    placed = [r for r in parsed(plot).iter(f"{SVG}rect") if r.get("height") == "10"]
    assert len({r.get("y") for r in placed}) > 1
    assert all(float(r.get("x")) < 600 for r in placed)
    assert float(parsed(plot).get("height")) > max(float(r.get("y")) for r in placed) + 10


def test_a_figure_that_does_not_fit_its_segment_is_left_out():
    parts = (
        Segment("s0", "booting", 0.0208, "$0.0208"),
        Segment("s1", "running", 0.1623, "$0.1623"),
    )
    plot = stacked("x", "t", "t", [StackedRow("a", parts, "$0.1831")], shared_scale=True)
    assert {t.text for t in parsed(plot).iter(f"{SVG}text") if t.get("class") == "in"} == {
        "$0.1623"
    }
