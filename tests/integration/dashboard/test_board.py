"""The release board: can it ship, what runs, how the pass rates went."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from orchestrator.dashboard import urls
from orchestrator.dashboard.pages import release_board as routes
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.schedule import Schedule
from tests.databases import MANIFEST, a_run, matrix
from tests.integration import gate_world
from tests.integration.api_context import BEGIN
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.nights_of import conclude, launch, night, report

GOOD = {"t.py::a": "passed", "t.py::b": "passed"}
BAD = {"t.py::a": "passed", "t.py::b": "failed"}


def later(pages: PageDesk, **by: float) -> PageDesk:
    """Some time passes; who looks signs in again."""
    pages.api.clock.move(**by)
    return pages.as_viewer("admin")


def squares(pages: PageDesk, path: str = "/") -> dict[str, dict[str, str]]:
    """The board in words: by version, by platform."""
    rows = pages.page(path).rows("board")
    return {row["Version"].split()[0]: row for row in rows}


def test_before_the_first_run_the_command_that_launches_one_is_told(pages: PageDesk) -> None:
    page = pages.page("/")
    assert "seatrial init && seatrial run seatrial.yaml" in page.one(id="board").text
    assert not page.all(id="rates")


def test_each_version_has_a_line_and_each_platform_a_column(pages: PageDesk) -> None:
    old = night(pages.api, "1.0", {"here": GOOD, "there": GOOD})
    pages = later(pages, days=1)
    new = night(pages.api, "1.1", {"here": BAD, "there": {}})
    pages = later(pages, hours=3)
    found = squares(pages)
    assert list(found) == ["1.1", "1.0"]
    assert found["1.1"]["here"].startswith("✗ failed 3 h")
    assert "1 passed, 1 failed" in found["1.1"]["here"]
    assert found["1.1"]["there"] == "∅ not available 3 h capacity"
    assert found["1.0"]["here"].startswith("✓ passed 1 d")
    page = pages.page("/")
    links = {one["href"] for one in page.one(id="board").all("a")}
    assert {urls.cell_url(new, "here"), urls.cell_url(old, "there")} <= links


def test_every_page_says_that_evidence_was_ingested(pages: PageDesk) -> None:
    case = '<testcase classname="tests.test_a" name="test_b"/>'
    pages.api.client.post(
        "/api/v1/ingest?platform=here&subject=proof@1.0&name=f.xml",
        content=f'<testsuite name="pytest" tests="1">{case}</testsuite>'.encode(),
    ).raise_for_status()
    said = "ingested (structured)"
    assert said in squares(pages)["1.0"]["here"]
    assert said in str(pages.json("/products")["tables"]["grid"])
    assert "ingested" in pages.page("/products").one(id="products").text
    assert "* ingested" in pages.page("/products").text, "what the sign of the grid means"
    assert said in pages.page("/grid?product=proof&cell=here").text
    shown = pages.page("/tests/1")
    assert said in " ".join(shown.rows("platforms")[0].values())
    assert said in " ".join(shown.rows("history")[0].values())


def test_a_platform_that_a_version_left_out_is_missing_and_one_that_came_later_is_not(
    pages: PageDesk,
) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    night(pages.api, "1.1", {"here": GOOD, "there": GOOD})
    night(pages.api, "1.2", {"there": GOOD})
    found = squares(pages)
    assert found["1.2"]["here"] == "? missing no run has it"
    assert found["1.0"]["there"] == "–"


def test_what_a_newer_run_of_the_version_lacks_is_marked_and_is_not_stale(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD, "there": GOOD})
    pages = later(pages, hours=2)
    night(pages.api, "1.0", {"here": GOOD})
    found = squares(pages)["1.0"]
    assert "not in the newest run" in found["there"]
    assert "newest run" not in found["here"]
    [row] = pages.rows("/", "board")
    there = row["cell.there"]
    assert (there["note"], there["stale"]) == ("not in the newest run", None)
    assert "stale" not in str(found), "two hours old: no gate refuses it for its age"


def test_a_run_of_fewer_jobs_is_marked_and_hides_no_failure(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    pages = later(pages, days=1)
    night(pages.api, "1.1", {"here": GOOD}, jobs="unit")
    shown = squares(pages)
    assert "1 of 2 jobs" in shown["1.1"]["here"]
    assert "jobs" not in shown["1.0"]["here"]
    page = pages.page("/products")
    (product,) = page.rows("products")
    assert "1 of 2 jobs" in product["Newest run"]
    (row,) = page.rows("grid")
    assert row[f"{BEGIN + timedelta(days=1):%d %b}"] == "✓*"
    assert "* fewer jobs than the run before" in page.text
    pages = later(pages, hours=1)
    night(pages.api, "1.1", {"here": BAD})
    pages = later(pages, hours=1)
    night(pages.api, "1.1", {"here": GOOD}, jobs="unit")
    shown = squares(pages)
    assert shown["1.1"]["here"].startswith("✗ failed")
    assert "stale" not in shown["1.1"]["here"]


def test_of_several_matrices_the_worst_is_shown(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": BAD, "there": GOOD})
    night(pages.api, "1.0", {"here": GOOD}, name="short")
    assert squares(pages)["1.0"]["here"].startswith("✗ failed")
    assert squares(pages, "/?matrix=short")["1.0"]["here"].startswith("✓ passed")
    pages.page("/?matrix=none", status=404)


def test_a_pass_without_tests_says_so(pages: PageDesk) -> None:
    run = launch(pages.api, "1.0", platforms=["here"])
    report(pages.api, run, "here", {})
    conclude(pages.api, run, "here", Outcome.PASSED)
    assert "no tests" in squares(pages)["1.0"]["here"]


def test_a_pass_in_which_every_test_was_passed_over_says_so(pages: PageDesk) -> None:
    over = {"t.py::a": "skipped", "t.py::b": "xfailed", "t.py::c": "xpassed"}
    run = night(pages.api, "1.0", {"here": over, "there": GOOD})
    mark = "no test passed: 1 skipped, 1 failed as expected, 1 passed unexpectedly"
    pages = later(pages, hours=1)
    found = squares(pages)["1.0"]
    assert mark in found["here"]
    assert "0 passed, 1 skipped, 1 xfailed, 1 xpassed" in found["here"]
    assert "no test passed" not in found["there"]
    rows = pages.page(f"/runs/{run}").rows("cells")
    assert [mark in row["Outcome"] for row in rows] == [True, False]
    assert mark in pages.page(f"/runs/{run}/cells/here").text


def test_what_runs_now_is_told(pages: PageDesk) -> None:
    run = launch(pages.api, "1.0")
    pages.api.begin(run, "here")
    page = pages.page("/")
    [row] = page.rows("live")
    assert (row["Run"], row["Cells"]) == (run, "1 queued, 1 running")
    assert "a run goes on" in page.rows("board")[0]["Version"]
    assert page.rows("board")[0]["here"] == "○ queued a run goes on"
    assert pages.rows("/", "board")[0]["cell.here"] == {"outcome": "queued"}
    assert not pages.part("/", "now").all("nav")


def test_each_gate_says_one_sentence(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api, tests={**gate_world.ONE, "tests/test_a.py::two": "failed"})
    assert "release: no verdict yet waits for" in pages.page("/").one(id="now").text
    verdict = gate_world.check(pages.api)
    pages = later(pages, hours=2)
    page = pages.page("/")
    said = page.all("p", "verdict")[0].text
    assert said.startswith("release: ✗ FAIL for 1.10, 2 h ago: ")
    assert page.all("p", "verdict")[0].all("a")[0]["href"] == f"/verdicts/{verdict['id']}"
    assert page.rows("board")[0]["Gates"] == "✗ FAIL release"
    [told] = pages.json("/")["gates"]
    assert (told["gate"], told["decision"], told["verdict"]) == ("release", "FAIL", verdict["id"])


def test_evidence_that_no_gate_believes_any_more_is_stale(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    pages = later(pages, hours=37)
    page = pages.page("/")
    assert "stale" in page.rows("board")[0]["here"]
    assert "older than the 36 h" in page.one(id="now").text


def test_the_next_nightly_is_told(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    assert "Nothing is scheduled" in pages.page("/").one("p", "coming").text
    product = pages.json("/")["product"]
    for name, of_product in (("nightly", product), ("other", "another-product")):
        schedule = Schedule(
            name=name, cron="0 2 * * *", tz="UTC", owner="ann", matrix="m", created_at=BEGIN,
            product=of_product,
        )  # fmt: skip
        pages.stores.schedules.add(schedule, next_due_at=BEGIN.replace(day=2, hour=2))
    assert pages.page("/").one("p", "coming").text == "Next: nightly at 2026-03-02 02:00 UTC."


def test_pass_rates_stand_with_their_counts_and_how_they_changed(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD, "there": GOOD})
    assert "Lines run" not in pages.page("/").text
    pages = later(pages, days=2)
    night(pages.api, "1.1", {"here": BAD, "there": {}})
    assert "Lines run from" in pages.page("/").text
    rows = {row["Platform"]: row["unit"] for row in pages.page("/").rows("rates")}
    assert rows["here"] == "50.0% 1/2 −50.0 1✗ 1 failed"
    assert rows["there"] == "100% 2/2 ◔ 2 d old"
    [here, _] = pages.rows("/?days=90", "rates")
    assert [day["pass_rate"] for day in here["suite.unit"]["days"]] == [1.0, 0.5]
    pages = later(pages, days=20)
    assert not pages.page("/?days=14").one(id="rates").all("table")


def test_versions_come_page_by_page(pages: PageDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PAGE_SIZE", 2)
    for number in range(4):
        night(pages.api, f"1.{number}", {"here": GOOD})
        pages.api.clock.move(minutes=1)
    first = pages.page("/")
    assert len(first.rows("board")) == 2
    [more] = first.one(id="board").all("a", rel="next")
    assert [row["Version"].split()[0] for row in pages.page(more["href"]).rows("board")] == [
        "1.1",
        "1.0",
    ]


def test_the_number_of_statements_does_not_grow(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    with pages.counted() as few:
        pages.page("/")
    for number in range(4):
        night(pages.api, f"1.{number}", {"here": BAD, "there": {}})
    launch(pages.api, "1.9")
    with pages.counted() as many:
        pages.page("/")
    assert len(many) <= len(few) + 1 <= 32


def test_a_badge_has_the_decision_as_text_and_loads_nothing(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    drawn = pages.get("/badges/release.svg")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert "no verdict" in drawn.text
    gate_world.ran(pages.api)
    gate_world.check(pages.api)
    text = pages.get("/badges/release.svg").text
    assert "✓ PASS 1.10" in text
    assert "href" not in text
    assert "style" not in text
    ET.fromstring(text)
    pages.get("/badges/other.svg", status=404)
    pages.as_viewer(None).get("/badges/release.svg", status=303)


def test_a_product_that_never_ran_is_no_page(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    assert "proof" in pages.page("/?product=other", status=404).text
    assert pages.json("/?product=proof")["product"] == "proof"


@pytest.mark.parametrize("path", ["/", "/grid", "/failures", "/flaky", "/known-issues"])
def test_a_page_of_one_product_says_which_and_that_there_are_others(
    pages: PageDesk, path: str
) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    more = "the product of the newest run"
    assert "proof" in pages.page(path).text
    assert more not in pages.page(path).text
    spec = RunSpec(matrix(1), replace(MANIFEST, name="calc"))
    pages.stores.runs.create(a_run("zz"), spec, [], key=None)
    assert f"calc, {more}; 1 other not shown" in pages.page(path).text
    if path == "/known-issues":
        assert "No known issue of calc yet" in pages.page(path).text
    assert more not in pages.page(f"{path}?product=proof").text


def test_every_format_is_there(pages: PageDesk) -> None:
    night(pages.api, "1.0<b>", {"here": BAD})
    head = pages.csv("/")[0]
    assert head[:4] == ["version", "gates", "cell.here_outcome", "cell.here_passed"]
    assert pages.csv("/?table=rates")[1][0] == "here"
    assert "1.0\\<b\\>" in pages.markdown("/")
    assert "<b>" not in pages.get("/").text.split("<main")[1].split("<td")[0]


def test_all_products_have_their_gates_and_days(pages: PageDesk) -> None:
    old = night(pages.api, "1.0", {"here": BAD, "there": GOOD})
    pages = later(pages, days=1)
    night(pages.api, "1.1", {"here": GOOD})
    page = pages.page("/products")
    (product,) = page.rows("products")
    assert product["Product"] == "proof"
    assert "✓ passed" in product["Newest run"]
    rows = {row["Platform"]: row for row in page.rows("grid")}
    today, before = (f"{day:%d %b}" for day in (BEGIN + timedelta(days=1), BEGIN))
    assert rows["here proof"][today] == "✓"
    assert rows["here proof"][before] == "✗"
    assert rows["there proof"][today] == ""
    assert urls.cell_url(old, "here") in {one["href"] for one in page.one(id="grid").all("a")}
