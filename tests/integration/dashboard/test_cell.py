"""The page of a cell: its tests page by page, the worst first, and what else came home."""

from __future__ import annotations

import pytest

from orchestrator.dashboard.pages import cell
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import ArtifactRecord
from tests.integration.dashboard.desk import PageDesk

TRACE = "def test():\n    \x1b[31massert\x1b[0m <b>1</b> == 2\u202e"


@pytest.fixture(scope="module")
def where(shared_pages: PageDesk) -> str:
    """The address of a cell whose suite passed, failed and lost some of its tests."""
    run = str(shared_pages.api.launch()["id"])
    agent = shared_pages.api.begin(run, "here")
    names = [f"t/a.py::n{number}" for number in range(6)]
    agent.send(
        agent.line("phase", "unit", name="started"),
        agent.manifest(*names),
        agent.test(names[0]),
        agent.test(names[1], "failed", message="assert 1 == 2", longrepr=TRACE),
        agent.test(names[2], "skipped"),
        agent.test(names[3], "failed"),
        agent.test(names[4]),
        agent.line("phase", "unit", name="finished", exit_code=1, duration_s=2.0),
    )
    shared_pages.stores.results.put_artifacts(
        shared_pages.api.cell_id(run, "here"), [ArtifactRecord("a b/<i>.log", 4200, "f" * 64)]
    )
    shared_pages.api.begin(run, "there")
    shared_pages.api.finish(run, "here", "there", outcome=Outcome.FAILED)
    return f"/runs/{run}/cells/here"


def outcomes(pages: PageDesk, address: str) -> list[tuple[str, str]]:
    return [(row["test"][-2:], row["outcome"]) for row in pages.rows(address, "tests")]


def test_the_worst_come_first(shared_pages: PageDesk, where: str) -> None:
    assert outcomes(shared_pages, where) == [
        ("n1", "failed"),
        ("n3", "failed"),
        ("n5", "missing"),
        ("n0", "passed"),
        ("n2", "skipped"),
        ("n4", "passed"),
    ]


def test_filters_stand_in_the_address(shared_pages: PageDesk, where: str) -> None:
    assert outcomes(shared_pages, f"{where}?outcome=failed&contains=n3") == [("n3", "failed")]
    assert outcomes(shared_pages, f"{where}?job=demo") == []
    assert outcomes(shared_pages, f"{where}?outcome=missing") == [("n5", "missing")]
    shown = shared_pages.page(f"{where}?outcome=failed&job=unit&contains=n")
    form = shown.one("form", role="search")
    assert form.one("option", value="failed").has("selected")
    assert form.one("input", name="contains")["value"] == "n"
    assert "No test of the cell is like that" in shared_pages.page(f"{where}?contains=%25").text


def test_pages_follow_one_another(pages: PageDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "PAGE_SIZE", 5)
    run = str(pages.api.launch()["id"])
    agent = pages.api.begin(run, "here")
    names = [f"t/a.py::n{number:03}" for number in range(13)]
    agent.send(agent.manifest(*names), *(agent.test(name) for name in names[:11]))
    address, seen, looks = f"/runs/{run}/cells/here", [], 0
    while address:
        looks += 1
        shown = pages.page(address)
        seen += [row["Test"].replace(" ", "").removesuffix("unit") for row in shown.rows("tests")]
        following = shown.all("a", rel="next")
        address = following[0]["href"] if following else ""
    assert (looks, sorted(seen)) == (3, names)
    assert seen[:2] == names[11:]  # awaited: nobody knows yet
    first = pages.page(f"/runs/{run}/cells/here").rows("tests")[0]
    assert first["Outcome"] == "○ queued"


def test_a_text_is_fetched_when_it_is_opened_and_is_only_text(
    shared_pages: PageDesk, where: str
) -> None:
    shown = shared_pages.page(where)
    box = shown.all("details", data_load="*")[0]
    told = shared_pages.get(box["data-load"]).json()
    assert told["outcome"] == "failed"
    assert told["shown"] == "def test():\n    assert <b>1</b> == 2\\u202e"
    assert "\x1b[31m" in told["text"]
    page = shared_pages.page(box["data-load"].removesuffix(".json"))
    assert page.one("pre").text.endswith("== 2\\u202e")
    assert box.all("a")[0]["href"] == box["data-load"].removesuffix(".json")
    assert "has no test 999" in shared_pages.page(f"{where}/tests/999", status=404).text
    shared_pages.get(f"{where}/tests/99999999999999", status=422)


def test_files_are_downloads_of_the_api(shared_pages: PageDesk, where: str) -> None:
    row = shared_pages.page(where).one(id="artifacts").one("tbody").one("tr")
    run = where.split("/")[2]
    href = f"/api/v1/runs/{run}/cells/here/artifacts/a%20b%2F%3Ci%3E.log"
    assert row.one("a")["href"] == href
    assert "4.2 kB" in row.text


def test_unknown_names_are_pages_that_say_so(shared_pages: PageDesk, where: str) -> None:
    run = where.split("/")[2]
    missing = shared_pages.page(f"/runs/{run}/cells/nope", status=404)
    assert "it has here, there" in missing.text
    assert shared_pages.page("/runs/none/cells/here", status=404)


def test_every_table_has_its_formats(shared_pages: PageDesk, where: str) -> None:
    told = shared_pages.json(where)["tables"]
    assert set(told) == {
        *("tests", "jobs", "checks", "metrics", "artifacts", "environment", "packages")
    }
    head = shared_pages.csv(f"{where}?table=jobs")[0]
    assert [name for name in head if not name.startswith("results_")] == [
        *("job", "outcome", "why", "duration_s")
    ]
    assert {"results_passed", "results_failed", "results_pass_rate"} < set(head)
    assert "**Tests, the worst first**" in shared_pages.markdown(where)


def test_a_living_cell_is_followed(pages: PageDesk) -> None:
    run = str(pages.api.launch()["id"])
    pages.api.begin(run, "here")
    shown = pages.page(f"/runs/{run}/cells/here")
    assert shown.one(data_events="*")["data-event-end"] == "end"
    for part in ("summary", "tests", "evidence"):
        assert pages.part(f"/runs/{run}/cells/here?outcome=failed", part).all("div")
    live = [one["hx-get"] for one in shown.all(hx_get="*") if "part" in one["hx-get"]]
    assert len(live) == 3


def test_statements_do_not_grow_with_tests(shared_pages: PageDesk, where: str) -> None:
    with shared_pages.counted() as seen:
        shared_pages.page(where)
    assert len(seen) <= 28, "\n".join(seen)


def test_a_notice_of_each_process_is_told_once_and_figures_are_short(pages: PageDesk) -> None:
    run = str(pages.api.launch()["id"])
    agent = pages.api.begin(run, "here")
    words = {"level": "warning", "message": "no GPU is visible"}
    check = {"check": "share", "outcome": "passed", "unit": "share"}
    agent.send(
        *(agent.line("log", "unit", **words) for _ in range(4)),
        agent.line("check", "demo", **check, value=0.9973192273464067, tolerance=0.05),
    )
    shown = pages.page(f"/runs/{run}/cells/here")
    assert shown.text.count("no GPU is visible") == 1
    assert "no GPU is visible (4 times)" in shown.text
    assert pages.page(f"/runs/{run}").text.count("no GPU is visible (4 times)") == 1
    assert "0.9973 share" in shown.text
