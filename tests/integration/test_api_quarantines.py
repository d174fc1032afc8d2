"""Quarantines and reuse over REST."""

from __future__ import annotations

from orchestrator.application.list_flaky import list_flaky
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.reuse_inputs import Reuse
from tests.integration.api_context import BEGIN, MATRIX, Desk
from tests.integration.test_api_history import API, get, post, ran

TEST = "t.py::test_flaky"
BOOM = "E   AssertionError: boom"
BODY = {
    "product": "proof",
    "nodeid": TEST,
    "reason": "no seed",
    "owner": "me",
    "days": 14,
}


def test_a_quarantine_is_added_listed_and_ended_once(api: Desk) -> None:
    ran(api, "one", {TEST: BOOM})
    added = post(api, "/quarantines", BODY, 201)
    assert (added["id"], added["state"], added["returns_after"]) == ("Q-0001", "active", 20)
    assert get(api, "/quarantines", product="proof")["items"] == [added]
    assert get(api, "/quarantines", product="other")["items"] == []
    assert (added["author"], added["author_token"]) == ("operator", "socket")
    ended = post(api, "/quarantines/Q-0001/end", None)
    assert (ended["state"], ended["ended_by"]) == ("ended", "operator")
    assert post(api, "/quarantines/Q-0001/end", None) == ended
    assert "Q-0009" in post(api, "/quarantines/Q-0009/end", None, 404)["detail"]


def test_a_body_that_is_no_quarantine_is_refused_in_words(api: Desk) -> None:
    unknown = post(api, "/quarantines", BODY | {"until": "for ever"}, 422)
    assert [(one["pointer"], one["detail"]) for one in unknown["errors"]] == [
        ("/until", "Extra inputs are not permitted")
    ]
    named = post(api, "/quarantines", BODY | {"author": "somebody else"}, 422)
    assert "token" in named["errors"][0]["detail"]
    listed = api.client.post(f"{API}/quarantines", json=[BODY]).json()
    assert "must be a JSON object" in listed["detail"]


def test_a_bad_quarantine_is_not_stored(api: Desk) -> None:
    ran(api, "one", {TEST: BOOM})
    for changes in (
        {"days": 91},
        {"days": 355_000},
        {"days": 0},
        {"owner": ""},
        {"nodeid": "t.py::test_flakey"},
        {"returns_after": 0},
        {"until": "for ever"},
    ):
        refused = post(api, "/quarantines", BODY | changes, 422)
        assert next(iter(changes)) in str(refused["errors"])
    assert get(api, "/quarantines")["items"] == []


def test_a_run_marks_its_failures_in_quarantine_and_counts_them(api: Desk) -> None:
    ran(api, "one", {TEST: BOOM})
    post(api, "/quarantines", BODY, 201)
    run = ran(api, "two", {TEST: BOOM, "t.py::test_other": BOOM})
    shown = get(api, f"/runs/{run}")
    [marked] = shown["quarantined"]
    assert (marked["quarantine"]["id"], marked["nodeid"], marked["state"]) == (
        "Q-0001",
        TEST,
        "active",
    )
    assert shown["counts"]["failed"] == 2
    report = api.client.get(f"{API}/runs/{run}/reports/summary.md").text
    assert "Failing tests in quarantine" in report
    assert "A quarantine changes no count" in report


def test_flaky_tests_are_suggested(api: Desk) -> None:
    for number, text in enumerate(("", BOOM, "", BOOM, "")):
        run = str(api.launch(f"run-{number}")["id"])
        agent = api.begin(run, "here")
        word = "failed" if text else "passed"
        assert agent.send(agent.manifest(TEST), agent.test(TEST, word, longrepr=text))
        api.finish(run, "here")
    [found] = get(api, "/quarantines/suggestions", product="proof")["items"]
    assert (found["nodeid"], found["evidence"]["failures"], found["quarantine"]) == (TEST, 2, "")


def test_a_test_that_only_ever_passed_when_tried_again_is_suggested_as_on_the_page(
    api: Desk,
) -> None:
    run = str(api.launch("one")["id"])
    agent = api.begin(run, "here")
    assert agent.send(
        agent.manifest(TEST),
        agent.line("test", "unit", record="rerun", nodeid=TEST),
        agent.test(TEST, "passed"),
    )
    api.finish(run, "here")
    [found] = get(api, "/quarantines/suggestions", product="proof")["items"]
    [shown] = list_flaky(api.context, "proof", runs=50).tests
    assert (found["nodeid"], found["evidence"]["passed_on_retry"]) == (TEST, 1)
    assert (shown.test.nodeid, shown.how.value) == (TEST, "retried")
    assert found["platforms"] == ["here"]


def launched(api: Desk, key: str, **more: object) -> dict:
    body = {"matrix": MATRIX, **more}
    answer = api.client.post(f"{API}/runs", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code == 202, answer.text
    found: dict = answer.json()
    return found


def test_a_launch_says_how_old_evidence_may_be(api: Desk) -> None:
    stores = api.database.stores
    asked, plain = launched(api, "one", reuse_hours=36), launched(api, "two")
    assert stores.runs.spec(asked["id"]).reuse_max_age_s == 36 * 3600
    assert stores.runs.spec(plain["id"]).reuse_max_age_s is None
    for wrong in (0, -1, 9000):
        body = {"matrix": MATRIX, "reuse_hours": wrong}
        answer = api.client.post(f"{API}/runs", json=body, headers={"Idempotency-Key": "x"})
        assert answer.status_code == 422


def test_reused_results_are_shown_and_marked(api: Desk) -> None:
    stores = api.database.stores
    first = ran(api, "one", {TEST: "", "t.py::test_b": ""})
    second = launched(api, "two", reuse_hours=36)["id"]
    source, cell = stores.cells.of_run(first)[0], stores.cells.of_run(second)[0]
    stores.cells.enter(source.id, CellState.RELEASING, at=BEGIN)
    stores.cells.conclude(source.id, Cause(Outcome.PASSED, ""), at=BEGIN)
    unit = Reuse(job="unit", why="proven by run x", run=first, cell=source.id, at=BEGIN)
    stores.reusable_results.decide(
        cell.id, [unit, Reuse(job="demo", why="image changed: a → b")], at=BEGIN
    )
    told = get(api, f"/runs/{second}")["cells"][0]["jobs"]
    jobs = {job["id"]: job for job in told}
    assert (jobs["unit"]["reused_from"], jobs["unit"]["reason"]) == (first, "reused")
    assert (jobs["unit"]["reuse"], jobs["unit"]["at"]) == (
        "proven by run x",
        "2026-03-01T12:00:00Z",
    )
    assert (jobs["demo"]["reused_from"], jobs["demo"]["reuse"]) == ("", "image changed: a → b")
    assert jobs["unit"]["counts"]["passed"] == 2
    tests = get(api, f"/runs/{second}/cells/{cell.name}/tests")["items"]
    assert [test["nodeid"] for test in tests] == [TEST, "t.py::test_b"]
    assert get(api, f"/runs/{second}/cells/{cell.name}/tests", job="demo")["items"] == []
    assert get(api, "/runs")["items"][0]["counts"]["passed"] == 2
    report = api.client.get(f"{API}/runs/{second}/reports/platform.md?cell={cell.name}").text
    assert "Earlier Evidence" in report
    assert "not reused: image changed: a → b" in report
