"""The desk that tests of pages sit at, and how runs and cells are found."""

from __future__ import annotations

from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import read_page


def test_a_page_is_read_in_every_format(pages: PageDesk) -> None:
    run = pages.api.launch()
    assert [row["Matrix"] for row in pages.page("/runs").rows("runs")] == ["nightly"]
    assert pages.rows("/runs", "runs")[0]["run"] == run["id"]
    head, row = pages.csv("/runs")
    told = dict(zip(head, row, strict=True))
    assert told["run"] == run["id"]
    assert (told["outcome"], told["tests_passed"], told["tests_pass_rate"]) == ("running", "0", "")
    assert str(run["id"]) in pages.markdown("/runs")


def test_who_is_not_signed_in_is_asked_to(pages: PageDesk) -> None:
    answer = pages.as_viewer(None).get("/runs", status=303)
    assert answer.headers["location"] == "/login?next=%2Fruns"


def test_statements_are_counted(pages: PageDesk) -> None:
    with pages.counted() as statements:
        pages.page("/runs")
    assert any("FROM run" in statement for statement in statements)


def test_pages_are_read_as_elements() -> None:
    root = read_page('<p id="a" class="b c">one<br>two <b>three</b></p><p hidden>four')
    assert root.one("p", "b", id="a").text == "one two three"
    assert [one.text for one in root.all("p", hidden="*")] == ["four"]
