"""The list of benchmarks: what got worse first, with honest figures."""

from __future__ import annotations

import hashlib

import pytest

from orchestrator.adapters.statistics import StepDetector
from orchestrator.dashboard.pages import benchmark_list as listing
from orchestrator.dashboard.pages import cell
from orchestrator.extras import MissingExtraError
from tests.integration.api_context import MANIFEST, archive
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.measuring import levels, measured

HOSTILE = "<script>alert(1)</script>\u202e=1+1|x"


@pytest.fixture(scope="module")
def three(shared_pages: PageDesk) -> PageDesk:
    """Three benchmarks: one steady, one that got slower, one that got faster."""
    series = {
        "steady": levels(12, 4, 1.0),
        "slower": levels(12, 4, 1.1),
        "faster": levels(12, 4, 0.9),
    }
    for at in range(16):
        values = {
            name: [one[at] * (1 + s / 1000) for s in range(6)] for name, one in series.items()
        }
        measured(shared_pages, f"night-{at}", values)
    return shared_pages


def test_what_got_worse_by_most_comes_first_and_what_is_better_last(three: PageDesk) -> None:
    rows = three.rows("/benchmarks", "benchmarks")
    assert [row["benchmark"] for row in rows] == ["slower", "steady", "faster"]
    change = rows[0]["change"]
    assert change["verdict"] == "worse"
    assert change["change"] == pytest.approx(0.1, abs=0.02)
    assert change["note"] == "since 1.10"
    assert (rows[1]["change"]["verdict"], rows[2]["change"]["verdict"]) == ("steady", "better")
    assert rows[0]["newest"]["samples"] == 6
    assert len(rows[0]["runs"]) == 16


def test_figures_have_as_many_digits_as_their_spread_allows(pages: PageDesk) -> None:
    measured(pages, "1", {"a": [10.0, 10.123456, 10.5, 10.2, 10.3], "b": [1234.5]})
    shown = pages.page("/benchmarks").rows("benchmarks")
    assert [row["Newest"] for row in shown] == ["10.20 ms 10.12–10.30, n = 5", "1234 ms n = 1"]
    assert [row["Level"] for row in shown] == ["… too few runs"] * 2


def test_a_row_leads_to_its_trend_and_says_which_direction_is_better(pages: PageDesk) -> None:
    measured(pages, "1", {"p50/latency": [1.0]})
    row = pages.page("/benchmarks").one(id="benchmarks").one("tbody").one("tr")
    href = row.one("th").one("a")["href"]
    assert href.startswith("/benchmarks/demo/p50%2Flatency?product=proof&platform=here")
    assert "lower is better" in row.text
    assert pages.page(href).one("h1").text == "p50/latency"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("q=SLOW", ["slower"]),
        ("q=nothing", []),
        ("job=demo", ["slower", "steady", "faster"]),
        ("job=other", []),
        ("platform=there", []),
        ("moved=worse", ["slower"]),
        ("moved=steady", ["steady"]),
        ("skip=2", ["faster"]),
    ],
)
def test_the_address_says_which_are_shown(three: PageDesk, query: str, names: list[str]) -> None:
    rows = three.rows(f"/benchmarks?{query}", "benchmarks")
    assert [row["benchmark"] for row in rows] == names
    if not names:
        assert "take a word or a choice away" in three.page(f"/benchmarks?{query}").text


def test_the_tabs_count_how_many_moved(three: PageDesk) -> None:
    tabs = three.page("/benchmarks?moved=worse").one("ul", aria_label="How the level moved")
    assert [one.text for one in tabs.all("a")] == ["All 3", "Worse 1", "Better 1", "Steady 1"]
    assert tabs.one("a", aria_current="true").text == "Worse 1"


def test_runs_in_other_environments_are_not_connected(pages: PageDesk) -> None:
    for at in range(6):
        torch = "2.8" if at < 3 else "2.9"
        measured(pages, f"{at}", {"speed": [1.0, 1.01, 1.02]}, probed={"torch": torch})
    line = pages.page("/benchmarks").one("svg", "sparkline")
    assert len(line.all("polyline")) == 2
    assert line["aria-label"] == "6 runs, 1.01 to 1.01 ms"


def test_the_same_name_with_other_parameters_says_them(pages: PageDesk) -> None:
    measured(pages, "1", {"speed": [1.0]}, params={"batch": 4})
    measured(pages, "2", {"speed": [1.0]}, params={"batch": 8})
    shown = pages.page("/benchmarks").text
    assert "batch=4" in shown
    assert "batch=8" in shown


def test_nothing_yet_says_what_to_do(pages: PageDesk) -> None:
    shown = pages.page("/benchmarks")
    assert "seatrial init && seatrial run seatrial.yaml" in shown.text
    assert "$SEATRIAL_EVENTS" in shown.text
    pages.api.launch("one")
    later = pages.page("/benchmarks").text
    assert "$SEATRIAL_EVENTS" in later
    assert "seatrial init" not in later


def test_the_product_that_was_chosen_stays_chosen(pages: PageDesk) -> None:
    pages.api.launch("one")
    other = archive(MANIFEST.replace('"proof"', '"hull"'))
    digest = hashlib.sha256(other).hexdigest()
    assert pages.api.client.put(f"/api/v1/payloads/{digest}", content=other).is_success
    pages.api.launch("two", payload=digest)
    for name in ("hull", "proof"):
        choice = pages.page(f"/benchmarks?product={name}").one("select", name="product")
        assert [one.text for one in choice.all("option") if one.has("selected")] == [name]


def test_an_unknown_choice_is_refused(three: PageDesk) -> None:
    assert "none is 'sideways'" in three.page("/benchmarks?moved=sideways", status=404).text


def test_names_from_elsewhere_are_text(pages: PageDesk) -> None:
    measured(pages, "1", {HOSTILE: [1.0]}, unit="<b>ms</b>", params={"<i>": HOSTILE})
    shown = pages.page("/benchmarks")
    assert "<script>alert(1)</script>\\u202e=1+1|x" in shown.text
    assert "<b>ms</b>" in shown.text
    assert not shown.one("main").all("script")
    assert pages.csv("/benchmarks")[1][0].startswith("<script>")
    assert "\\<script\\>" in pages.markdown("/benchmarks")


def test_the_number_of_questions_does_not_depend_on_the_number_of_benchmarks(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE", 15)
    measured(pages, "1", {"one": [1.0]})
    with pages.counted() as few:
        pages.page("/benchmarks")
    measured(pages, "2", {f"b{number}": [1.0] for number in range(20)})
    with pages.counted() as many:
        shown = pages.page("/benchmarks")
    assert len(many) == len(few) <= 12
    assert len(shown.one(id="benchmarks").one("tbody").all("tr")) == 15
    assert shown.one("a", rel="next")["href"] == "/benchmarks?skip=15"


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_without_the_library_of_trends_the_page_says_what_to_install(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    def absent(*_: object) -> None:
        raise MissingExtraError("trends need scipy")

    measured(pages, "1", {"a": [1.0]})
    monkeypatch.setattr(StepDetector, "changes", absent)
    said = pages.get(f"/benchmarks{suffix}", status=501).text
    assert "A part of Seatrial is not installed" in said
    assert "trends need scipy" in said
    # Whoever is signed in can go on from there.
    assert ('aria-label="Pages"' in said) is (suffix == "")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_metric_leads_to_its_trend_where_there_are_trends(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(cell, "is_installed", lambda extra: is_there and extra == "statistics")
    run = measured(pages, "1", {"a": [1.0]})
    row = pages.page(f"/runs/{run}/cells/here").one(id="metrics").one("tbody").one("tr")
    assert bool(row.all("a")) is is_there
