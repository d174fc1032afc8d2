"""One benchmark over time: chart, change points, and the table of every run."""

from __future__ import annotations

import pytest

from orchestrator.dashboard.pages import benchmark_trend as trend
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.measuring import levels, measured, nights

PAGE = "/benchmarks/demo/speed"
HOSTILE = "<img src=x onerror=alert(1)>\u200b"


def test_a_step_is_told_with_its_size_its_p_and_where_it_was(pages: PageDesk) -> None:
    runs = nights(pages, levels(12, 5, 1.08))
    chart = pages.json(PAGE)["chart"]
    assert [point["run"] for point in chart["points"]] == runs
    assert (chart["unit"], chart["points"][0]["n"]) == ("ms", 3)
    (change,) = chart["changes"]
    assert (change["index"], change["tone"]) == (12, "bad")
    assert change["change"] == pytest.approx(0.08, abs=0.02)
    (row,) = pages.rows(PAGE, "changes")
    assert row["change"]["verdict"] == "worse"
    assert 0 < row["p"] < 0.01
    assert row["environment"] == "the same"
    link = pages.page(PAGE).one(id="changes").one("tbody").one("a")["href"]
    assert link == f"/compare?a={runs[11]}&b={runs[12]}&cell_a=here&cell_b=here"


def test_a_step_with_another_torch_names_it_and_is_doubted(pages: PageDesk) -> None:
    for at, value in enumerate(levels(12, 5, 0.9)):
        probed = {"torch": "2.8" if at < 12 else "2.9"}
        measured(pages, str(at), {"speed": [value, value * 1.001]}, probed=probed)
    (row,) = pages.rows(PAGE, "changes")
    assert row["change"]["verdict"] == "better"
    assert row["environment"] == "torch 2.8 → 2.9"
    shown = pages.page(PAGE)
    assert "changed at the change point" in shown.one("div", "notice").text
    apart = [one["environment"] for one in pages.json(PAGE)["chart"]["points"]]
    assert apart == [0] * 12 + [1] * 5
    still = shown.one("svg", "plot")
    assert len(still.all("polyline")) == 2
    assert len(still.all("rect", "band")) == 2
    assert len(still.all("line", "step")) == 1


def test_releases_of_the_subject_are_joined(pages: PageDesk) -> None:
    for at in range(4):
        probed = {"torch": "2.9", "packages": {"proof": f"1.{at}", "numpy": "2.0"}}
        measured(pages, str(at), {"speed": [20.0, 20.1]}, probed=probed)
    chart = pages.json(PAGE)["chart"]
    assert [one["environment"] for one in chart["points"]] == [0, 0, 0, 0]
    assert [(one["first"], one["last"]) for one in chart["levels"]] == [(0, 3)]


def test_a_band_ends_where_the_environment_changes(pages: PageDesk) -> None:
    for at, torch in enumerate(["2.8", "2.8", "2.9", "2.9"]):
        measured(pages, str(at), {"speed": [20.0 + at]}, probed={"torch": torch})
    assert pages.json(PAGE)["chart"]["levels"] == [
        {"first": 0, "last": 1, "low": 20.0, "high": 21.0},
        {"first": 2, "last": 3, "low": 22.0, "high": 23.0},
    ]


def test_a_chart_has_a_band_and_an_axis_that_does_not_begin_at_zero(pages: PageDesk) -> None:
    nights(pages, [100.0, 101.0, 102.0])
    chart = pages.json(PAGE)["chart"]
    (level,) = chart["levels"]
    assert level == {"first": 0, "last": 2, "low": 100.0, "high": 102.0}
    assert chart["versions"] == []
    low, high = chart["y"]
    assert 99 < low < 100
    assert 102 < high < 103
    assert "not from 0" in pages.page(PAGE).one("figcaption").text


def test_samples_stand_beside_the_medians_and_not_in_the_page(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [3.0, 1.0, 2.0]})
    (point,) = pages.json(PAGE)["chart"]["points"]
    assert (point["value"], point["samples"]) == (2.0, [1.0, 2.0, 3.0])
    figure = pages.page(PAGE).one("figure")
    assert figure["data-trend"] == f"{PAGE}.json"


def test_platforms_and_ranges_are_choices_in_the_address(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [1.0]}, cells=("here", "there"))
    measured(pages, "2", {"speed": [2.0]}, cells=("here",))
    shown = pages.page(f"{PAGE}?platform=there")
    tabs = shown.one("ul", aria_label="Platform")
    assert [one.text for one in tabs.all("a")] == ["here", "there"]
    assert tabs.one("a", aria_current="true").text == "there"
    assert len(pages.json(f"{PAGE}?platform=there")["chart"]["points"]) == 1
    ranges = pages.page(f"{PAGE}?runs=60").one("ul", aria_label="Range")
    assert ranges.one("a", aria_current="true").text == "60 runs"


def test_other_parameters_are_another_series(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [1.0]}, params={"batch": 4})
    measured(pages, "2", {"speed": [2.0]}, params={"batch": 8})
    tabs = pages.page(PAGE).one("ul", aria_label="Units and parameters")
    hrefs = {one.text: one["href"] for one in tabs.all("a")}
    (point,) = pages.json(hrefs["ms · lower · batch=8"].replace("speed?", "speed?"))["chart"][
        "points"
    ]
    assert point["value"] == 2.0


def test_every_run_is_in_a_table_page_by_page(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trend, "PAGE_SIZE", 3)
    nights(pages, [float(number) for number in range(1, 6)])
    first = pages.page(PAGE)
    assert len(first.one(id="points").one("tbody").all("tr")) == 3
    assert not first.one("details", "disclosure").has("open")
    after = first.one("a", rel="next")["href"]
    assert after == f"{PAGE}?skip=3#points"
    rows = pages.rows(f"{PAGE}?skip=3", "points")
    assert [row["median"]["value"] for row in rows] == [2.0, 1.0]


def test_what_nobody_measured_is_not_found(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [1.0]})
    for path, said in (
        ("/benchmarks/demo/nothing", "/benchmarks lists what there is"),
        ("/benchmarks/other/speed", "/benchmarks lists what there is"),
        (f"{PAGE}?platform=moon", "there is: here"),
        (f"{PAGE}?variant=99", "/benchmarks lists what there is"),
        (f"{PAGE}?product=other", "there is: proof"),
    ):
        assert said in pages.page(path, status=404).text, path


def test_where_nobody_told_of_the_environment_that_is_said(pages: PageDesk) -> None:
    nights(pages, levels(12, 5, 1.1), probed={})
    (row,) = pages.rows(PAGE, "changes")
    assert row["environment"] == "not known"
    assert {row["environment"] for row in pages.rows(PAGE, "points")} == {"not known"}


def test_names_from_elsewhere_are_text(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [1.0]}, unit=HOSTILE, params={HOSTILE: HOSTILE})
    shown = pages.page(PAGE)
    assert "<img src=x onerror=alert(1)>\\u200b" in shown.text
    assert not shown.one("main").all("img")
    for element in shown.walk():
        assert not element.has("style")
        assert not any(name.startswith("on") for name in element.attributes)


def test_the_number_of_questions_does_not_depend_on_the_number_of_runs(pages: PageDesk) -> None:
    nights(pages, levels(2, 1, 1.0))
    with pages.counted() as few:
        pages.page(PAGE)
    for at, value in enumerate(levels(1, 5, 1.1)):
        measured(pages, f"more-{at}", {"speed": [value]})
    with pages.counted() as many:
        pages.page(PAGE)
    assert len(few) <= len(many) <= 12
