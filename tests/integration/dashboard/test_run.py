"""The page of a run: what it says at every stage of a run's life, and what people do on it."""

from __future__ import annotations

import pytest

from orchestrator.domain.cell import Cause, CellState, PlacementDecision, PlacementResult
from orchestrator.domain.machine import SshEndpoint
from orchestrator.domain.outcome import Outcome
from tests.databases import lease
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk
from tests.integration.test_api_ingest import tar_of


def launch(pages: PageDesk) -> str:
    return str(pages.api.launch()["id"])


def finish(pages: PageDesk, run: str, how: str = "failed") -> None:
    """Both cells end; of the second, one test went like this."""
    for cell in ("here", "there"):
        agent = pages.api.begin(run, cell)
        last = how if cell == "there" else "passed"
        agent.send(
            agent.line("phase", "unit", name="started"),
            agent.manifest("t/a.py::a", "t/a.py::b"),
            agent.test("t/a.py::a"),
            agent.test("t/a.py::b", last, longrepr="E   ValueError: boom 7 <b>now</b>"),
            agent.line("phase", "unit", name="finished", exit_code=0, duration_s=2.0),
        )
    pages.api.clock.move(seconds=90)
    outcome = Outcome.FAILED if how == "failed" else Outcome.PASSED
    pages.api.finish(run, "here", "there", outcome=outcome)


def test_a_new_run_is_followed_from_where_it_was_read(pages: PageDesk) -> None:
    run = launch(pages)
    shown = pages.page(f"/runs/{run}")
    assert shown.one("h1").text == "proof 1.10"
    place = shown.one(data_events="*")
    assert place["data-events"] == f"/api/v1/runs/{run}/events?after=0"
    pages.api.begin(run, "here")
    later = pages.page(f"/runs/{run}").one(data_events="*")["data-events"]
    number = pages.stores.run_events.last(run)
    assert number > 0
    assert later == f"/api/v1/runs/{run}/events?after={number}"
    assert shown.one(id="run")["hx-get"] == f"/runs/{run}?part=run"
    refresh = shown.one("noscript").one("meta", http_equiv="refresh")
    assert refresh["content"] == "15"


def test_a_part_is_the_part_alone(pages: PageDesk) -> None:
    run = launch(pages)
    part = pages.part(f"/runs/{run}", "run")
    assert part.one(id="run").has("hx-get")
    assert not part.all("html")
    assert pages.get(f"/runs/{run}?part=none", status=404)


def test_the_life_of_a_cell_is_a_picture_with_words(pages: PageDesk) -> None:
    run = launch(pages)
    cells, cell = pages.stores.cells, pages.api.cell_id(run, "here")
    pages.api.clock.move(seconds=5)
    cells.admit(cell, "a-1", max_parallel=9, at=pages.api.clock.now())
    pages.api.clock.move(seconds=10)
    cells.enter(cell, CellState.BOOTING, at=pages.api.clock.now())
    pages.api.clock.move(seconds=20)
    shown = pages.page(f"/runs/{run}")
    pictures = shown.one(id="cells").all("svg", "timeline")
    assert pictures[0]["aria-label"] == "queued 5.0s, placing 10s, booting 20s so far"
    assert pictures[1]["aria-label"] == "queued 35s so far"
    boxes = pictures[0].all("rect")
    assert [box["class"] for box in boxes] == [
        "phase-queued",
        "phase-placing",
        "phase-booting going",
    ]
    assert [float(box["width"]) for box in boxes[1:]] == pytest.approx(
        [400 * 10 / 35, 400 * 20 / 35], 0.01
    )
    told = pages.rows(f"/runs/{run}", "phases")[0]
    assert (told["placing_s"], told["booting_s"], told["running_s"]) == (10.0, 20.0, None)


def test_awaited_tests_are_not_called_missing(pages: PageDesk) -> None:
    run = launch(pages)
    agent = pages.api.begin(run, "here")
    agent.send(
        agent.line("phase", "unit", name="started"), agent.manifest("a", "b", "c"), agent.test("a")
    )
    shown = pages.page(f"/runs/{run}")
    job = next(row for row in shown.rows("jobs") if row["Job"] == "unit" and row["Cell"] == "here")
    assert job["Outcome"] == "▸ running"
    assert job["Why"] == "1 of 3 tests"
    assert "missing" not in shown.one(id="cells").text


def test_the_cost_grows_by_itself_and_stands_against_its_limit(pages: PageDesk) -> None:
    run = launch(pages)
    agent = pages.api.begin(run, "here")
    leases = pages.stores.leases
    leases.reserve(lease("l-1", agent.attempt_id), run_id=run, exclusive=False)
    leases.launching("l-1", at=pages.api.clock.now())
    leases.active("l-1", "i-1", at=pages.api.clock.now())
    choice = PlacementDecision(
        pages.api.clock.now(), "north", PlacementResult.REFUSED, "capacity", "none left"
    )
    leases.decide(agent.attempt_id, choice)
    pages.api.clock.move(hours=1)
    shown = pages.page(f"/runs/{run}")
    cost = shown.one(data_usd="*")
    assert cost["data-usd"] == "0.7000"
    assert float(cost["data-usd-per-s"]) == pytest.approx(0.7 / 3600, 0.001)
    assert "of at most $9.00" in shown.text
    assert shown.rows("decisions")[0]["Why"] == "capacity: none left"
    assert shown.rows("machines")[0]["Machine"] == "i-1"
    assert ", i-1" in pages.page(f"/runs/{run}/cells/here").one("dl", "run-tiles").text
    leases.reached("l-1", SshEndpoint("10.0.0.5", "me", "ssh-ed25519 AAAA"))
    assert ", me@10.0.0.5:22" in pages.page(f"/runs/{run}/cells/here").one("dl", "run-tiles").text


def test_a_finished_run_says_what_failed_and_is_not_followed(pages: PageDesk) -> None:
    run = launch(pages)
    finish(pages, run)
    shown = pages.page(f"/runs/{run}")
    assert not shown.all(data_events="*")
    assert not shown.all("noscript")
    first = shown.rows("jobs")[0]
    assert (first["Job"], first["Cell"], first["Outcome"]) == ("unit", "there", "✗ failed")
    assert shown.rows("cells")[0]["Cell"] == "here fake, SIMULATED: no gate accepts this"
    group = shown.rows("failures")[0]
    assert group["Cells"] == "there"
    assert group["Failure"].startswith("ValueError: boom 7 <b>now</b> t/a.py:: b · ")
    link = shown.one(id="failures").one("tbody").all("a")[0]["href"]
    assert link.startswith("/failures/s1-")
    assert "<b>" not in pages.get(f"/runs/{run}").text.split("boom", 1)[1][:20]
    assert pages.json(f"/runs/{run}")["outcome"] == "failed"
    assert pages.json(f"/runs/{run}")["counts"]["passed"] == 3
    assert f"/api/v1/runs/{run}/reports/summary.html" in [a["href"] for a in shown.all("a")]
    assert f"/api/v1/runs/{run}/export/junit" in [a["href"] for a in shown.all("a")]


def test_a_finished_run_without_tests_waits_for_none(pages: PageDesk) -> None:
    run = launch(pages)
    assert "Tests none yet" in pages.page(f"/runs/{run}").one(id="run").text
    for cell in ("here", "there"):
        pages.api.begin(run, cell)
    pages.api.finish(run, "here", "there", outcome=Outcome.ERRORED)
    for path in (f"/runs/{run}", f"/runs/{run}/cells/here"):
        shown = pages.page(path).one("main").text
        assert "Tests none" in shown
        assert "none yet" not in shown


def test_jobs_that_run_stand_before_those_that_passed(pages: PageDesk) -> None:
    run = launch(pages)
    cell = pages.api.cell_id(run, "here")
    passing = pages.api.begin(run, "here")
    passing.send(
        passing.line("phase", "unit", name="started"),
        passing.manifest("t/a.py::a"),
        passing.test("t/a.py::a"),
        passing.line("phase", "unit", name="finished", exit_code=0, duration_s=2.0),
        passing.line("phase", "demo", name="started"),
        passing.line("phase", "demo", name="finished", exit_code=0, duration_s=2.0),
    )
    for state in (CellState.COLLECTING, CellState.RELEASING):
        pages.stores.cells.enter(cell, state, at=pages.api.clock.now())
    pages.stores.evidence.settle(cell, [])
    pages.stores.cells.conclude(cell, Cause(Outcome.PASSED, ""), at=pages.api.clock.now())
    agent = pages.api.begin(run, "there")
    agent.send(agent.line("phase", "demo", name="started"))
    jobs = [(row["Job"], row["Cell"]) for row in pages.page(f"/runs/{run}").rows("jobs")]
    assert jobs[:2] == [("demo", "there"), ("unit", "there")]


def test_jobs_that_never_ran_for_one_reason_are_one_row(pages: PageDesk) -> None:
    run = launch(pages)
    cell, at = pages.api.cell_id(run, "there"), pages.api.clock.now()
    pages.stores.cells.admit(cell, f"{cell}-1", max_parallel=9, at=at)
    pages.stores.cells.enter(cell, CellState.RELEASING, at=at)
    pages.stores.cells.conclude(cell, Cause(Outcome.ERRORED, "capacity"), at=at)
    jobs = pages.page(f"/runs/{run}").rows("jobs")
    assert [row["Job"] for row in jobs] == ["all 2 jobs unit, demo", "unit", "demo"]


def test_the_duration_of_a_cell_is_that_of_its_jobs_as_everywhere(pages: PageDesk) -> None:
    run = launch(pages)
    finish(pages, run)
    [here, _] = pages.page(f"/runs/{run}").rows("cells")
    assert here["Duration"] == "2.0s"
    assert "Duration 1m 30s since" in pages.page(f"/runs/{run}").text


def test_an_attempt_that_was_lost_says_why(pages: PageDesk) -> None:
    run = launch(pages)
    assert not pages.page(f"/runs/{run}").all(id="attempts")
    agent = pages.api.begin(run, "here")
    cells, cell = pages.stores.cells, pages.api.cell_id(run, "here")
    lost = Cause(Outcome.ERRORED, "preempted", "the cloud took it back")
    pages.api.clock.move(seconds=30)
    for state in (CellState.COLLECTING, CellState.RELEASING):
        cells.enter(cell, state, at=pages.api.clock.now())
    cells.requeue(agent.attempt_id, lost, at=pages.api.clock.now())
    row = pages.page(f"/runs/{run}").rows("attempts")[0]
    assert (row["Outcome"], row["Why"]) == ("! errored", "preempted: the cloud took it back")
    assert row["Duration"] == "30s"


def test_the_previous_run_is_one_click_away(pages: PageDesk) -> None:
    old = launch(pages)
    finish(pages, old)
    new = str(pages.api.launch("key-2")["id"])
    links = [a["href"] for a in pages.page(f"/runs/{new}").all("a")]
    assert f"/compare?a={old}&b={new}" in links


def test_cancelling_is_a_form_that_acts_once(pages: PageDesk) -> None:
    run = launch(pages)
    form = pages.page(f"/runs/{run}").one("form", action=f"/runs/{run}/cancel")
    assert form["method"] == "post"
    answer = pages.post(f"/runs/{run}/cancel")
    assert answer.headers["location"] == f"/runs/{run}"
    assert pages.stores.runs.get(run).cancel_requested_at == pages.api.clock.now()
    shown = pages.page(f"/runs/{run}")
    assert "cancelling" in shown.one("dl", "tiles").text
    assert not shown.all("form", action=f"/runs/{run}/cancel")


def test_who_may_only_read_sees_no_form_and_is_refused(pages: PageDesk) -> None:
    run = launch(pages)
    reader = pages.as_viewer("read")
    assert not [f for f in reader.page(f"/runs/{run}").all("form") if "/runs/" in f.get("action")]
    for what in ("cancel", "rerun"):
        reader.post(f"/runs/{run}/{what}", status=403)
        pages.post(f"/runs/{run}/{what}", status=403, csrf="bm90IG91cnM=")
    assert pages.stores.runs.get(run).cancel_requested_at is None


def test_running_again_launches_once_for_a_form(pages: PageDesk) -> None:
    run = launch(pages)
    finish(pages, run)
    form = pages.page(f"/runs/{run}").one("form", action=f"/runs/{run}/rerun")
    radios = {one["value"]: one.has("disabled") for one in form.all("input", type="radio")}
    assert radios == {
        "": False,
        "failed": False,
        "errored": True,
        "missing": True,
        "not-run": False,
    }
    key = form.one("input", name="key")["value"]
    first = pages.post(f"/runs/{run}/rerun", only="failed", key=key).headers["location"]
    assert pages.post(f"/runs/{run}/rerun", only="failed", key=key).headers["location"] == first
    again = pages.page(first)
    assert [row["Cell"] for row in again.rows("jobs")] == ["there"]
    assert f"/compare?a={run}&b={first.removeprefix('/runs/')}" in [
        a["href"] for a in again.all("a")
    ]
    other = pages.post(f"/runs/{run}/rerun", key=key).headers["location"]
    assert other != first


def test_what_cannot_run_again_is_said_on_the_page(pages: PageDesk) -> None:
    run = launch(pages)
    going = pages.post(f"/runs/{run}/rerun", status=409)
    assert "still running" in going.text
    finish(pages, run, how="passed")
    shown = pages.post(f"/runs/{run}/rerun", status=409, only="missing")
    assert "no job of run" in shown.text
    assert pages.post(f"/runs/{run}/rerun", status=422, only="odd")


def test_a_run_is_found_by_the_beginning_of_its_id(pages: PageDesk) -> None:
    run = launch(pages)
    assert pages.get("/runs/latest", status=303).headers["location"] == f"/runs/{run}"
    assert pages.json("/runs/latest")["run"] == run
    assert "there is no run" in pages.page("/runs/nope", status=404).text


def test_statements_do_not_grow_with_cells_or_tests(pages: PageDesk) -> None:
    run = launch(pages)
    finish(pages, run)
    with pages.counted() as seen:
        pages.page(f"/runs/{run}")
    assert len(seen) <= 36, "\n".join(seen)


def test_a_file_whose_figures_contradict_its_tests_is_told_on_both_pages(pages: PageDesk) -> None:
    case = '<testcase classname="tests.test_a" name="test_b"/>'
    made = pages.api.client.post(
        "/api/v1/ingest?platform=here&subject=proof@1.10&name=f.xml",
        content=f'<testsuite name="pytest" tests="15">{case}</testsuite>'.encode(),
    ).json()
    (row,) = pages.page(f"/runs/{made['run']}").rows("cells")
    assert "ingested, INCONSISTENT" in " ".join(row.values())
    assert "14 missing" in " ".join(row.values())
    shown = pages.page(f"/runs/{made['run']}/cells/here")
    assert "INCONSISTENT: f.xml: it names 1 tests and sums up 15" in shown.text


def test_packages_of_the_interpreter_that_nobody_named_are_counted(pages: PageDesk) -> None:
    """On this computer alone: elsewhere the image is chosen."""
    platforms = "platforms:\n  - {id: here, provider: local}\n  - {id: there, provider: fake}\n"
    jobs = "jobs:\n  - {select: '*', on: all}\n"
    matrix = MATRIX.partition("platforms:")[0] + platforms + jobs
    run = str(pages.api.launch(matrix=matrix)["id"])
    for cell in ("here", "there"):
        agent = pages.api.begin(run, cell)
        assert agent.send(agent.line("environment", interpreter_packages=["six", "pip", "Proof"]))
    shown = pages.page(f"/runs/{run}").text
    said = "could import 1 package of the interpreter that payload.toml does not name."
    assert shown.count(said) == 1
    told = pages.api.client.get(f"/api/v1/runs/{run}").json()
    assert [cell["undeclared_packages"] for cell in told["cells"]] == [["six"], []]


@pytest.mark.parametrize(("time", "took"), [("", "–"), (' time="6.2"', "6.2s")])
def test_an_ingested_run_has_no_figure_that_nobody_states(
    pages: PageDesk, time: str, took: str
) -> None:
    case = f'<testcase classname="tests.test_a" name="test_b"{time}/>'
    url = "/api/v1/ingest?platform=here&subject=proof@1.10&name=f.xml"
    suite = f'<testsuite name="pytest" tests="1"{time}>{case}</testsuite>'
    run = pages.api.client.post(url, content=suite.encode()).json()["run"]
    shown = pages.page(f"/runs/{run}").text
    assert f"Duration {took} ingested" in shown
    [of_cell] = pages.page(f"/runs/{run}").rows("cells")
    assert of_cell["Duration"] == took
    assert "Cost – its cost is not stated" in shown
    assert "$" not in shown
    row = next(
        row for row in pages.page("/runs").rows("runs") if run[:13] in " ".join(row.values())
    )
    assert "$" not in " ".join(row.values())
    assert row["Duration"] == took
    costs = pages.api.client.get(f"/api/v1/costs?run={run}").json()
    assert (costs["bill"], costs["usd_per_validated_test"], costs["jobs"]) == (None, None, {})
    assert (costs["platforms"][0]["bill"], costs["platforms"][0]["jobs"]) == (None, {})
    told = pages.api.client.get(f"/api/v1/runs/{run}").json()
    assert (told["cost_usd"], told["cells"][0]["cost_usd"]) == (None, None)


def test_a_stated_machine_without_a_duration_has_no_duration_and_no_price(
    pages: PageDesk,
) -> None:
    notes = "apiVersion: seatrial/v1\nkind: Ingest\n"
    body = tar_of(
        **{"a.xml": '<testsuite tests="1"><testcase classname="a" name="b"/></testsuite>'},
        ingest_yaml=notes + 'machine: {usd_per_hour: "98.32", machine_id: box}\n',
    )
    url = "/api/v1/ingest?platform=here&subject=proof@1.10"
    run = pages.api.client.post(url, content=body).json()["run"]
    [machine] = pages.page(f"/runs/{run}").rows("machines")
    assert (machine["Held"], machine["Cost"]) == ("–", "–")
    facts = pages.page(f"/runs/{run}/cells/here").rows("environment")
    shown = {row["What"]: row["Value"] for row in facts}
    assert (shown["price"], shown["held"]) == ("its cost is not stated", "–")
