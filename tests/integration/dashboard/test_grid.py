"""Tests by runs of a platform, and by the platforms of a run."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from orchestrator.dashboard import urls
from orchestrator.dashboard.pages import grid
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.store.tables import (
    CellRollupRow,
    CellRow,
    JobRollupRow,
    TestCaseRow,
    TestResultRow,
)
from tests.contract.test_stores_release_board import launch as launch_stored
from tests.databases import NOW, advance, attempt
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.nights_of import conclude, launch, night, report

GOOD = {"t.py::a": "passed", "t.py::b": "passed", "t.py::c": "passed"}
MOST_NODES = 5_000
MOST_BYTES = 150_000


def names(pages: PageDesk, path: str = "/grid") -> list[str]:
    return [row["test"] for row in pages.rows(path, "grid")]


def test_before_the_first_run_the_command_that_launches_one_is_told(pages: PageDesk) -> None:
    assert "seatrial init && seatrial run seatrial.yaml" in pages.page("/grid").one(id="grid").text
    assert pages.page("/grid?run=latest", status=404)


def test_rows_are_tests_and_columns_the_runs_of_a_platform(pages: PageDesk) -> None:
    old = night(pages.api, "1.0", {"here": GOOD, "there": GOOD})
    new = night(pages.api, "1.1", {"here": {**GOOD, "t.py::c": "failed"}, "there": GOOD})
    page = pages.page("/grid")
    head = [one.get("href") for one in page.one("thead").all("a")]
    assert head == [urls.cell_url(new, "here"), urls.cell_url(old, "here")]
    first = page.one("tbody").all("tr")[0]
    assert first.one("th").text == "c t.py · unit · failing"
    assert [one["aria-label"] for one in first.all("td")] == ["failed", "passed"]
    [link] = first.all("td")[0].all("a")
    assert link["href"].startswith(urls.cell_url(new, "here") + "/tests/")
    assert pages.page(link["href"]).one("h1").text == "t.py::c"
    assert page.one("table", "grid").has("data-grid")
    assert names(pages) == ["t.py::c", "t.py::a", "t.py::b"]
    assert names(pages, "/grid?cell=there")[0] == "t.py::a"


def test_the_grid_opens_at_ones_own_results_before_ingested_ones(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    case = '<testcase classname="t" name="a" time="1"/>'
    url = "/api/v1/ingest?platform=a-foreign-one&subject=proof@1.0&name=f.xml"
    content = f'<testsuite name="pytest" tests="1">{case}</testsuite>'.encode()
    assert pages.api.client.post(url, content=content).is_success
    assert pages.api.database.stores.grids.names("proof") == ["here", "a-foreign-one"]


def test_a_mark_is_a_sign_with_a_word(pages: PageDesk) -> None:
    run = launch(pages.api, "1.0", platforms=["here"])
    tests = {"t.py::f": "failed", "t.py::p": "passed", "t.py::s": "skipped"}
    report(pages.api, run, "here", tests, collected=["t.py::m"])
    conclude(pages.api, run, "here", Outcome.FAILED, "tests")
    told = {
        row.one("th").all("a")[0].text: (row.all("td")[0].text, row.all("td")[0]["aria-label"])
        for row in pages.page("/grid").one("tbody").all("tr")
    }
    assert told == {
        "f": ("✗", "failed"),
        "m": ("?", "missing"),
        "p": ("✓", "passed"),
        "s": ("⊘", "skipped"),
    }


def test_failures_that_are_alike_have_one_letter_and_a_line_in_the_legend(pages: PageDesk) -> None:
    tests = dict.fromkeys(("t.py::a", "t.py::b"), "failed")
    night(pages.api, "1.0", {"here": {**tests, "t.py::c": "passed"}})
    page = pages.page("/grid")
    marks = [one["aria-label"] for one in page.one(id="grid").one("tbody").all("td")]
    assert marks == ["failed A", "failed A", "passed"]
    [line] = page.rows("kinds")
    assert line["Failure"].startswith("ValueError")
    assert line["Seen here"] == "2"
    assert page.one(id="kinds").one("tbody").all("a")[0]["href"].startswith("/failures/s1-")


def test_the_cells_of_one_run_are_columns_too(pages: PageDesk) -> None:
    run = night(pages.api, "1.0", {"here": GOOD, "there": {"t.py::a": "failed"}})
    page = pages.page(f"/grid?run={run[:12]}")
    assert [one.text for one in page.one("thead").all("a")] == ["here", "there"]
    assert [one["aria-label"] for one in page.one("tbody").all("tr")[0].all("td")] == [
        "passed",
        "failed",
    ]
    assert page.one("tbody").all("tr")[1].all("td")[1]["aria-label"] == "no result"


def test_a_platform_that_was_not_there_is_louder_than_a_pass(pages: PageDesk) -> None:
    run = night(pages.api, "1.0", {"here": GOOD, "there": {}})
    page = pages.page(f"/grid?run={run}")
    assert [one.text for one in page.one("thead").all("a")] == ["here", "∅ not available · there"]
    marks = page.one(id="grid").one("tbody").all("tr")[0].all("td")
    assert [(one["aria-label"], one["class"]) for one in marks] == [
        ("passed", "good"),
        ("not available", "warn"),
    ]


def test_tests_are_filtered_in_the_address(pages: PageDesk) -> None:
    tests = {"t.py::conv[f16]": "failed", "t.py::conv[f32]": "passed", "t.py::norm": "passed"}
    night(pages.api, "1.0", {"here": tests})
    assert names(pages, "/grid?q=conv+-f16") == ["t.py::conv[f32]"]
    assert names(pages, "/grid?group=failing") == ["t.py::conv[f16]"]
    assert names(pages, "/grid?job=none") == []
    page = pages.page("/grid?q=conv&group=failing")
    assert page.one("input", name="q")["value"] == "conv"
    assert page.one("input", name="group")["value"] == "failing"
    assert "Last result failed 1" in [one.text for one in page.all("a", aria_current="true")]
    assert "take a word" in pages.page("/grid?q=nothing").one(id="grid").text
    pages.page("/grid?group=odd", status=404)


def test_a_page_has_so_many_tests_and_a_way_on(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "PAGE_SIZE", 10)
    tests = {f"t.py::t{n:02}": "failed" if n % 9 == 0 else "passed" for n in range(14)}
    night(pages.api, "1.0", {"here": tests})
    first = pages.page("/grid")
    [more] = first.one(id="grid").all("a", rel="next")
    seen = names(pages) + names(pages, more["href"])
    assert len(first.one(id="grid").one("tbody").all("tr")) == 10
    assert sorted(seen) == sorted(tests)
    assert not pages.page(more["href"]).one(id="grid").all("a", rel="next")


def test_a_live_run_is_a_column_whose_tests_are_still_to_come(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": GOOD})
    run = launch(pages.api, "1.1", platforms=["here"])
    report(pages.api, run, "here", {"t.py::b": "failed"}, collected=["t.py::a", "t.py::c"])
    rows = pages.page("/grid").one("tbody").all("tr")
    assert [one["aria-label"] for one in rows[0].all("td")] == ["failed", "passed"]
    assert [one["aria-label"] for one in rows[1].all("td")] == ["running", "passed"]


def fill(pages: PageDesk, cells: int, tests: int) -> None:
    """Many nights of one platform in which every test fails, written as rows."""
    stores = pages.stores
    for number in range(cells):
        (cell,) = launch_stored(stores, f"run-{number:03}", f"1.0.dev{number}", platforms=1)
        attempt(stores, cell)
        advance(stores, cell, CellState.RELEASING)
        stores.cells.conclude(cell, Cause(Outcome.FAILED, "tests"), at=NOW)
    with pages.api.database.sessions.write() as session:
        name = "tests/unit/test_{0:02}.py::TestMany::test_it[float16-{0}x{0}]".format
        cases = [_case(number, name(number)) for number in range(1, tests + 1)]
        session.execute(insert(TestCaseRow), cases)
        pks = session.scalars(select(CellRow.pk)).all()
        rows = [_failed(cell, test["id"]) for cell in pks for test in cases]
        session.execute(insert(TestResultRow), rows)
        counts = {**Counts(failed=tests).as_dict(), "job": "unit"}
        session.execute(insert(JobRollupRow), [{"cell": pk, **counts} for pk in pks])
        session.execute(update(CellRollupRow).values(failed=tests))


def _case(number: int, nodeid: str) -> dict[str, Any]:
    names = {"nodeid": nodeid, "path": "", "class_": "", "function": "", "param": ""}
    return {"id": number, "digest": b"%d" % number, "product": "proof", "job": "unit", **names}


def _failed(cell: int, test: int) -> dict[str, Any]:
    words = {"reason": "", "message": "", "text_digest": None, "signature": f"s1-{test % 9}"}
    keys = {"cell": cell, "test_id": test, "attempt": cell, "position": test}
    return {**keys, **words, "outcome": 6, "final": True, "duration_us": 1}


def test_the_largest_page_is_within_its_budget(pages: PageDesk) -> None:
    fill(pages, 60, 55)
    answer = pages.get("/grid?columns=60")
    with pages.counted() as statements:
        page = pages.page("/grid?columns=60")
    assert len(page.one(id="grid").one("tbody").all("td")) == 60 * 50
    assert len(list(page.walk())) <= MOST_NODES
    assert len(gzip.compress(answer.content)) <= MOST_BYTES
    assert len(statements) <= 22


def test_names_that_mean_harm_are_text(pages: PageDesk) -> None:
    name = "t.py::a[<script>alert(1)</script>\u202egnp.\u200b|`*]"
    night(pages.api, "1.0", {"here": {name: "failed"}})
    html = pages.get("/grid").text
    assert "<script>alert" not in html
    assert "\u202e" not in html
    assert "\\u202e" in html
    assert names(pages) == [name]
    assert "\\|\\`\\*" in pages.markdown("/grid")
