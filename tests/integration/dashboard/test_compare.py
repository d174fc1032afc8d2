"""Two runs beside each other: where they ran, what failed, what was lost, what got slower."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orchestrator.dashboard.pages import compare_tables as tables
from orchestrator.domain.outcome import Outcome
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.measuring import TORCH, measured

HOSTILE = "<script>alert(1)</script>\u202e"


def ran(
    pages: PageDesk,
    key: str,
    here: Mapping[str, str],
    there: Mapping[str, str] | None = None,
    *,
    probed: Mapping[str, object] = TORCH,
    outcome: Outcome = Outcome.PASSED,
) -> str:
    """A run whose tests went so; empty: it was collected and never reported."""
    pages.api.clock.move(minutes=10)
    run = str(pages.api.launch(key)["id"])
    for cell, went in (("here", here), ("there", here if there is None else there)):
        agent = pages.api.begin(run, cell)
        lines = [agent.line("environment", **probed)] if probed else []
        if went:
            lines.append(agent.manifest(*went))
        lines += [agent.test(name, word) for name, word in went.items() if word]
        assert not lines or agent.send(*lines)
    pages.api.finish(run, "here", "there", outcome=outcome)
    return run


def both(pages: PageDesk, old: Mapping[str, str], new: Mapping[str, str], **more: object) -> str:
    """The address of a comparison."""
    a = ran(pages, "a", old)
    return f"/compare?a={a}&b={ran(pages, 'b', new, **more)}"


OLD = {"t::a": "passed", "t::b": "failed", "t::c": "passed", "t::d": "failed", "t::e": "passed"}
NEW = {"t::a": "failed", "t::b": "passed", "t::c": "skipped", "t::d": "failed", "t::f": ""}


def test_every_kind_of_difference_has_its_table_the_worst_first(pages: PageDesk) -> None:
    found = pages.json(both(pages, OLD, NEW))["tables"]
    kinds = {name: [row.get("test") for row in one["rows"]] for name, one in found.items()}
    assert kinds["new_failure"] == ["t::a", "t::a"]
    assert (kinds["fixed"], kinds["still_failing"]) == (["t::b"] * 2, ["t::d"] * 2)
    assert (kinds["newly_skipped"], kinds["missing"]) == (["t::c"] * 2, ["t::f"] * 2)
    assert kinds["gone"] == ["t::e"] * 2
    order = [name for name in found if name in {"new_failure", "missing", "fixed", "gone"}]
    assert order == ["new_failure", "missing", "fixed", "gone"]
    row = found["new_failure"]["rows"][0]
    assert (row["platform"], row["before"], row["after"]) == ("here", "passed", "failed")
    here, there = found["platforms"]["rows"]
    assert (here["platform"], there["platform"]) == ("here", "there")
    counts = {name: here[name] for name in ("new_failure", "missing", "fixed", "gone")}
    assert counts == {"new_failure": 1, "missing": 1, "fixed": 1, "gone": 1}


def test_only_differences_are_shown_unless_all_is_asked_for(pages: PageDesk) -> None:
    address = both(pages, {"t::a": "passed"}, {"t::a": "passed"})
    shown = pages.page(address)
    assert "No test has another outcome" in shown.text
    assert "same" not in pages.json(address)["tables"]
    whole = pages.json(f"{address}&all=1")["tables"]
    assert [row["test"] for row in whole["same"]["rows"]] == ["t::a", "t::a"]
    assert {row["verdict"] for row in whole["environment"]["rows"]} >= {"equal"}


def test_other_stacks_are_loud_and_named_on_top(pages: PageDesk) -> None:
    address = both(pages, OLD, OLD, probed=TORCH | {"torch": "2.10.0"})
    shown = pages.page(address)
    assert "The stacks differ: torch 2.9.0 → 2.10.0." in shown.all("div", "warn")[0].text
    rows = pages.rows(address, "environment")
    assert ("torch", "2.9.0", "2.10.0", "differs", "all") in {tuple(row.values()) for row in rows}
    heads = [one.text for one in shown.one("main").all("h2")]
    assert heads[2:4] == ["Environment", "Platforms"]


def test_equal_and_unknown_are_said_and_packages_folded_away(pages: PageDesk) -> None:
    a = ran(pages, "a", OLD, probed=TORCH | {"packages": {"numpy": "1.9"}})
    b = ran(pages, "b", OLD, probed=TORCH | {"packages": {"numpy": "2.0"}})
    address = f"/compare?a={a}&b={b}"
    shown = pages.page(address).text
    assert "Equal: torch 2.9.0, runtime (CUDA, HIP, XLA) cuda 12.8, python 3.12.4" in shown
    assert "Not known on both sides: device driver, image." in shown
    (row,) = pages.rows(address, "packages")
    assert list(row.values())[:4] == ["numpy", "1.9", "2.0", "changed"]


def test_the_subject_is_no_package_that_differs(pages: PageDesk) -> None:
    """Its wheel on one side is a package there; the other side has its files."""
    subject = {"packages": {"numpy": "1.9", "proof": "1.10"}}
    a = ran(pages, "a", OLD, probed=TORCH | {"packages": {"numpy": "1.9"}})
    b = ran(pages, "b", OLD, probed=TORCH | subject)
    assert not pages.rows(f"/compare?a={a}&b={b}", "packages")


def test_a_side_that_told_nothing_is_not_called_equal(pages: PageDesk) -> None:
    shown = pages.page(both(pages, OLD, OLD, probed={})).text
    assert "Not known: here in B, there in B reported no environment." in shown
    assert "they may differ" in shown


def test_a_platform_without_results_is_not_counted_as_gone(pages: PageDesk) -> None:
    a = ran(pages, "a", OLD)
    b = ran(pages, "b", OLD, there={})
    tables = pages.json(f"/compare?a={a}&b={b}")["tables"]
    there = tables["platforms"]["rows"][1]
    assert there["new_failure"] is None
    assert "gone" not in tables
    shown = pages.page(f"/compare?a={a}&b={b}")
    assert "no tests in B: nothing to compare" in shown.text


def test_two_platforms_of_one_run_can_be_compared(pages: PageDesk) -> None:
    run = ran(pages, "a", {"t::a": "passed"}, {"t::a": "failed"})
    address = f"/compare?a={run}&b={run}&cell_a=here&cell_b=there"
    shown = pages.page(address)
    assert shown.one("h1").text == "Compare here → there, proof 1.10"
    (row,) = pages.rows(address, "new_failure")
    assert row["test"] == "t::a"
    swap = next(one["href"] for one in shown.all("a") if one.text == "Swap sides")
    assert "cell_a=there&cell_b=here" in swap
    swapped = pages.json(swap)["tables"]
    assert "fixed" in swapped
    assert "new_failure" not in swapped


def test_a_run_with_itself_is_no_comparison(pages: PageDesk) -> None:
    run = ran(pages, "a", OLD)
    assert "Both sides are the same run" in pages.page(f"/compare?a={run}&b={run}").text


def test_a_base_is_suggested(pages: PageDesk) -> None:
    green = ran(pages, "1", OLD)
    red = ran(pages, "2", OLD, outcome=Outcome.FAILED)
    run = ran(pages, "3", OLD)
    for query in (f"b={run}", f"a={run}"):
        section = pages.page(f"/compare?{query}").one("section", aria_labelledby="suggested")
        links = {one["href"] for one in section.all("a")}
        assert links == {f"/compare?a={red}&b={run}", f"/compare?a={green}&b={run}"}
    first = pages.page(f"/compare?b={green}").text
    assert "the first run of its matrix" in first


def test_runs_are_chosen_in_a_plain_form(pages: PageDesk) -> None:
    assert "seatrial init && seatrial run seatrial.yaml" in pages.page("/compare").text
    run = ran(pages, "1", OLD)
    form = pages.page("/compare").one("form", aria_label="What to compare")
    assert form["method"] == "get"
    options = form.one("select", name="b").all("option")
    assert [one["value"] for one in options] == ["", run]
    assert options[1].has("selected")
    assert pages.page("/compare?a=latest&b=latest").one("h1").text.startswith("Compare")


def test_what_is_not_there_is_not_found(pages: PageDesk) -> None:
    ran(pages, "1", OLD)
    for query, said in (
        ("a=nope", "there is no run 'nope'"),
        ("a=latest&b=latest&cell_a=moon", "has no cell 'moon'"),
        ("a=latest&b=latest&what=everything", "unknown filter"),
    ):
        assert said in pages.page(f"/compare?{query}", status=404).text


def test_one_kind_comes_page_by_page(pages: PageDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "EACH", 2)
    monkeypatch.setattr(tables, "PAGE_SIZE", 4)
    old = {f"t::{number}": "passed" for number in range(5)}
    address = both(pages, old, dict.fromkeys(old, "failed"))
    first = pages.page(address)
    assert len(first.one(id="new_failure").one("tbody").all("tr")) == 2
    further = first.one(id="new_failure").one("a", rel="next")["href"]
    assert further.endswith("&what=new_failure")
    page = pages.page(further)
    assert len(page.one(id="new_failure").one("tbody").all("tr")) == 4
    assert next(one.text for one in page.all("section", "kind")).startswith("New failures 10")
    after = page.one(id="new_failure").one("a", rel="next")["href"]
    assert pages.rows(after, "new_failure")[0]["test"] == "t::2"


def test_what_got_slower_stands_with_spreads_and_samples(pages: PageDesk) -> None:
    a = measured(pages, "a", {"speed": [1.0, 1.01, 1.02], "same": [1.0, 1.1], "one": [1.0]})
    b = measured(
        pages,
        "b",
        {"speed": [1.2, 1.21, 1.22], "same": [1.05, 1.2], "one": [2.0]},
        probed=TORCH | {"cuda": "13.0"},
    )
    address = f"/compare?a={a}&b={b}"
    rows = pages.rows(address, "performance")
    assert [row["benchmark"] for row in rows] == ["one", "speed"]
    assert [row["change"]["verdict"] for row in rows] == ["single", "worse"]
    assert rows[1]["a"] == {"value": 1.01, "low": 1.0, "high": 1.02, "samples": 3}
    assert rows[1]["change"]["note"] == "† another stack"
    assert len(pages.rows(f"{address}&all=1", "performance")) == 3
    assert "1 worse, 1 single sample, 1 alike" in pages.page(address).text


def test_names_from_elsewhere_are_text(pages: PageDesk) -> None:
    address = both(pages, {HOSTILE: "passed"}, {HOSTILE: "failed"}, probed={"torch": HOSTILE})
    shown = pages.page(address)
    assert "<script>alert(1)</script>\\u202e" in shown.text
    assert not shown.one("main").all("script")
    assert all(not element.has("style") for element in shown.walk())


def test_the_number_of_questions_does_not_depend_on_the_number_of_tests(pages: PageDesk) -> None:
    few_tests = both(pages, {"t::a": "passed"}, {"t::a": "failed"})
    with pages.counted() as few:
        pages.page(few_tests)
    old = {f"t::{number}": "passed" for number in range(40)}
    c, d = ran(pages, "c", old), ran(pages, "d", dict.fromkeys(old, "failed"))
    with pages.counted() as many:
        shown = pages.page(f"/compare?a={c}&b={d}")
    assert len(many) == len(few) <= 30
    assert len(list(shown.walk())) < 5_000
