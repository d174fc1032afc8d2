"""Runs over REST, on a real database."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from orchestrator.api.app import create_app
from orchestrator.api.dependencies import idempotency_key
from orchestrator.api.runs import RunRequest
from orchestrator.domain.machine import ConfigError, Extent, Provider
from orchestrator.domain.outcome import Outcome
from tests.databases import lease
from tests.integration.api_context import MATRIX, Desk, archive, sha256

RUNS = "/api/v1/runs"


def launch(api: Desk, key: str | None = "k", **body: object):
    headers = {} if key is None else {"Idempotency-Key": key}
    return api.client.post(RUNS, json={"matrix": MATRIX} | body, headers=headers)


def stored(api: Desk) -> int:
    return len(api.database.stores.runs.page(limit=200, before=None)[0])


def test_a_launch_answers_with_the_run_and_begins_its_cells(api: Desk) -> None:
    answer = launch(api)
    assert answer.status_code == 202
    run = answer.json()
    assert answer.headers["location"] == f"{RUNS}/{run['id']}"
    assert "idempotency-replayed" not in answer.headers
    assert [cell["id"] for cell in run["cells"]] == ["here", "there"]
    assert run["subject"] == {"name": "proof", "version": "1.10"}
    assert (run["state"], run["outcome"], run["matrix"]) == ("running", None, "nightly")
    assert api.woken == [f"{run['id']}-0", f"{run['id']}-1"]
    assert api.client.get(answer.headers["location"]).json() == run


def test_a_matrix_may_come_as_an_object(api: Desk) -> None:
    matrix = {
        "apiVersion": "seatrial/v1",
        "kind": "Matrix",
        "metadata": {"name": "object"},
        "subject": {"name": "proof", "version": "1.10"},
        "limits": {"max_usd": "1.00"},
        "platforms": [{"id": "only", "provider": "fake"}],
        "jobs": [{"id": "unit"}],
    }
    assert launch(api, matrix=matrix).json()["matrix"] == "object"


def test_the_same_key_and_body_answer_with_the_same_run(api: Desk) -> None:
    first, second = launch(api), launch(api)
    assert second.status_code == 202
    assert second.headers["idempotency-replayed"] == "true"
    assert second.json() == first.json()
    assert stored(api) == 1


def test_the_same_key_with_another_body_is_refused(api: Desk) -> None:
    launch(api)
    answer = launch(api, name="other.yaml")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:seatrial:problem:key-reused")
    assert stored(api) == 1


def test_the_same_key_for_another_route_is_refused(api: Desk) -> None:
    run = launch(api).json()["id"]
    for cell in ("here", "there"):
        api.begin(run, cell)
    api.finish(run, "here", "there")
    answer = api.client.post(f"{RUNS}/{run}/rerun", headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422
    assert stored(api) == 1


def test_a_key_whose_request_is_being_worked_on_is_in_flight(api: Desk) -> None:
    body = RunRequest(matrix=MATRIX)
    key = idempotency_key("k", "POST /runs", body)
    now = api.clock.now()
    api.database.stores.runs.claim_key(key.key, key.fingerprint, at=now, stale_before=now)
    answer = launch(api)
    assert answer.status_code == 409
    assert answer.headers["retry-after"] == "1"
    assert stored(api) == 0
    api.clock.move(minutes=3)
    assert launch(api).status_code == 202


def test_a_key_there_must_be(shared_api: Desk) -> None:
    answer = launch(shared_api, key=None)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["parameter"] == "Idempotency-Key"
    assert stored(shared_api) == 0


_FROM_WHEEL = MATRIX.replace('"1.10"}', '"1.10", wheel: dist/x.whl}')
_UNSENT = "is not on the server: upload the"


@pytest.mark.parametrize("path", [f"{RUNS}", "/api/v1/plan", "/api/v1/schedules"])
@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        # The jobs are another payload's too: the path alone is what is wrong.
        (
            {"matrix": MATRIX.replace('"*"', "mine") + "payload: {path: .}\n"},
            "/payload/path",
            f"the path '.' {_UNSENT} payload",
        ),
        ({"matrix": _FROM_WHEEL}, "/subject/wheel", f"'dist/x.whl' {_UNSENT} wheel"),
        (
            {"matrix": MATRIX + "baseline: {payload: {path: ../old}}\n"},
            "/baseline/payload",
            f"'../old' {_UNSENT} payload",
        ),
        ({"subject": "a" * 64}, "/subject", "would not be used"),
        ({"baseline": "a" * 64}, "/baseline", "would not be used"),
    ],
)
def test_nothing_takes_the_place_of_what_was_asked_for(
    api: Desk, path: str, body: dict[str, object], pointer: str, said: str
) -> None:
    when = {"name": "x", "cron": "0 2 * * *", "tz": "UTC", "owner": "me"}
    asked = {"matrix": MATRIX} | body | (when if path.endswith("schedules") else {})
    answer = api.client.post(path, json=asked, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422, answer.text
    [problem] = answer.json()["errors"]
    assert problem["pointer"].endswith(pointer)
    assert said in problem["detail"]
    assert stored(api) == 0


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "ü".encode()])
def test_a_key_must_be_plain(shared_api: Desk, key: str | bytes) -> None:
    assert launch(shared_api, key=key).status_code == 422  # type: ignore[arg-type]
    assert stored(shared_api) == 0


def test_a_refused_launch_gives_its_key_back(api: Desk) -> None:
    assert launch(api, payload="0" * 64).status_code == 422
    assert launch(api).status_code == 202


def test_many_at_once_with_one_key_launch_one_run(api: Desk) -> None:
    answers = []
    barrier = threading.Barrier(8)

    def send() -> None:
        barrier.wait()
        answers.append(launch(api))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored(api) == 1
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert len({a.json()["id"] for a in answers if a.status_code == 202}) == 1
    fresh = [a for a in answers if a.status_code == 202 and "idempotency-replayed" not in a.headers]
    assert len(fresh) == 1


def test_a_bad_matrix_is_refused_with_its_places_and_nothing_is_stored(api: Desk) -> None:
    bad = MATRIX.replace("provider: fake}", "provder: fake}")
    answer = launch(api, matrix=bad, name="release.yaml")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    found = {error["pointer"]: error for error in problem["errors"]}
    typo = found["/platforms/0/provder"]
    assert (typo["line"], typo["column"]) == (7, 16)
    assert "did you mean 'provider'" in typo["detail"]
    assert found["/platforms/0/provider"]["detail"] == "is missing"
    assert problem["detail"].startswith("release.yaml: line 7, column ")
    assert stored(api) == 0
    assert launch(api).status_code == 202, "the key was given back"


def test_a_provider_that_is_not_installed_is_told_with_the_other_errors(api: Desk) -> None:
    def provider(name: str) -> Provider:
        raise ConfigError(f"provider {name} needs its extra", extent=Extent.PROJECT)

    app = create_app(replace(api.context, provider=provider), guard=None)
    bad = MATRIX.replace("provider: fake}", "provider: fake, marker: 1}")
    answer = api.speak(app).post("/api/v1/plan", json={"matrix": bad})
    found = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}
    assert found["/platforms/0/provider"] == "provider fake needs its extra"
    assert found["/platforms/1/provider"] == "provider fake needs its extra"
    assert "/platforms/0/marker" in found


def test_an_impossible_matrix_as_an_object_is_refused_without_lines(shared_api: Desk) -> None:
    answer = launch(shared_api, matrix={"apiVersion": "seatrial/v1"})
    assert answer.status_code == 422
    assert all("line" not in error for error in answer.json()["errors"])


def test_an_unknown_payload_must_be_uploaded_first(shared_api: Desk) -> None:
    answer = launch(shared_api, payload="0" * 64)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:seatrial:problem:payload-missing"
    assert answer.json()["errors"][0]["pointer"] == "/payload"


def test_an_uploaded_payload_can_be_launched(api: Desk) -> None:
    data = archive(**{"tests/test_it.py": "def test_it(): pass\n"})
    digest = sha256(data)
    assert api.client.put(f"/api/v1/payloads/{digest}", content=data).status_code == 201
    assert launch(api, payload=digest).json()["payload"] == digest


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"matrix": 3}, "/matrix"),
        ({"matrix": None}, "/matrix"),
        ({}, "/matrix"),
        ({"matrix": "x", "payload": "../etc/passwd"}, "/payload"),
        ({"matrix": "x", "subject": "abc"}, "/subject"),
        ({"matrix": "x", "name": ""}, "/name"),
        ({"matrix": "x", "mtrix": "y"}, "/mtrix"),
    ],
)
def test_a_bad_body_is_refused_with_the_field_named(
    shared_api: Desk, body: dict[str, object], pointer: str
) -> None:
    answer = shared_api.client.post(RUNS, json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_a_body_that_is_no_object_is_refused(shared_api: Desk) -> None:
    for content in (b"[]", b'"x"', b"3", b"null", b""):
        answer = shared_api.client.post(
            RUNS,
            content=content,
            headers={"Idempotency-Key": "k", "Content-Type": "application/json"},
        )
        assert answer.status_code == 422, content
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_plan_tells_places_and_the_worst_cost_and_changes_nothing(shared_api: Desk) -> None:
    plan = shared_api.client.post("/api/v1/plan", json={"matrix": MATRIX}).json()
    assert [one["cell"]["id"] for one in plan["cells"]] == ["here", "there"]
    there = plan["cells"][1]
    assert there["cell"]["platform"]["provider"] == "fake"
    assert there["cell"]["jobs"] == ["unit", "demo"]
    told = [(p["name"], p["market"], p["price_usd_per_hour"]) for p in there["places"]]
    assert told == [("north", "on-demand", "0.50"), ("south", "on-demand", "0.50")]
    assert plan["headroom"] == []
    assert float(plan["worst_usd"]) == pytest.approx(2 * float(there["worst_usd"]))
    assert plan["max_usd"] == "9.00"
    assert {one["cell"]: one["packages_bytes"] for one in plan["shipments"]}["there"] is None
    assert all(one["payload_bytes"] > 0 for one in plan["shipments"])
    assert stored(shared_api) == 0


def test_runs_are_listed_newest_first_page_by_page(api: Desk) -> None:
    ids = [launch(api, key=f"k{n}").json()["id"] for n in range(5)]
    seen, cursor = [], None
    for _ in range(3):
        page = api.client.get(RUNS, params={"limit": 2} | ({"before": cursor} if cursor else {}))
        seen += [item["id"] for item in page.json()["items"]]
        cursor = page.json()["next"]
    assert seen == ids[::-1]
    assert cursor is None


def test_a_list_tells_what_show_tells_without_the_cells(api: Desk) -> None:
    run = launch(api).json()["id"]
    agent = api.begin(run, "here")
    agent.send(agent.manifest("a", "b", "c"), agent.test("a"), agent.test("b", "failed"))
    held = lease("lease-1", agent.attempt_id)
    leases = api.database.stores.leases
    leases.reserve(held, run_id=run, exclusive=False)
    leases.launching("lease-1", at=api.clock.now())
    api.clock.move(hours=1)
    shown = api.client.get(f"{RUNS}/{run}").json()
    listed = api.client.get(RUNS).json()["items"][0]
    assert shown["counts"]["passed"] == shown["counts"]["failed"] == 1
    assert shown["counts"]["missing"] == 1
    assert shown["cost_usd"] == "0.7000"
    for detail in (
        "cells",
        "failure_groups",
        "known_issues",
        "quarantined",
        "diagnosed",
        "wheel",
        "pruned",
    ):
        del shown[detail]
    assert listed == shown


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "before=", "before=%00"])
def test_a_list_refuses_what_it_cannot_do(shared_api: Desk, query: str) -> None:
    answer = shared_api.client.get(f"{RUNS}?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] in ("limit", "before")


def test_a_run_is_found_by_latest_and_by_the_beginning_of_its_id(api: Desk) -> None:
    old, new = launch(api, key="1").json()["id"], launch(api, key="2").json()["id"]
    assert api.client.get(f"{RUNS}/latest").json()["id"] == new
    unique = next(new[:n] for n in range(27) if old[:n] != new[:n])
    assert api.client.get(f"{RUNS}/{unique}").json()["id"] == new


def test_an_ambiguous_beginning_lists_its_matches(api: Desk) -> None:
    ids = [launch(api, key=key).json()["id"] for key in "12"]
    answer = api.client.get(f"{RUNS}/{ids[0][:3]}")
    assert answer.status_code == 409
    assert answer.json()["matches"] == ids[::-1]


def test_an_id_that_fits_nothing_is_not_found(api: Desk) -> None:
    launch(api)
    odd = ("nope", "%00", "%25", "_", "x" * 5000, "..%2f..", "%F0%9F%92%A5", "latest%00")
    for name in odd:
        answer = api.client.get(f"{RUNS}/{name}")
        assert answer.status_code == 404, name
        assert answer.headers["content-type"] == "application/problem+json"


def test_latest_of_nothing_is_not_found(shared_api: Desk) -> None:
    assert shared_api.client.get(f"{RUNS}/latest").status_code == 404


def test_cancelling_writes_the_row_once(api: Desk) -> None:
    run = launch(api).json()["id"]
    first = api.client.post(f"{RUNS}/{run}/cancel")
    assert first.status_code == 202
    asked = first.json()["cancel_requested_at"]
    assert asked == "2026-03-01T12:00:00Z"
    api.clock.move(minutes=1)
    assert api.client.post(f"{RUNS}/latest/cancel").json()["cancel_requested_at"] == asked


def test_a_finished_run_is_launched_again_as_a_new_one(api: Desk) -> None:
    run = launch(api).json()["id"]
    rerun = f"{RUNS}/{run}/rerun"
    assert api.client.post(rerun, headers={"Idempotency-Key": "r"}).status_code == 409
    assert api.client.post(f"{rerun}/plan").status_code == 409
    for cell in ("here", "there"):
        agent = api.begin(run, cell)
        how = "failed" if cell == "there" else "passed"
        agent.send(
            agent.line("phase", "unit", name="started"),
            agent.manifest("a"),
            agent.test("a", how),
            agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0),
            agent.line("phase", "demo", name="started"),
            agent.line("phase", "demo", name="finished", exit_code=0, duration_s=1.0),
        )
    api.finish(run, "here", "there", outcome=Outcome.FAILED)
    planned = api.client.post(f"{rerun}/plan", json={"only": "failed"}).json()
    [one] = planned["cells"]
    assert (one["cell"]["id"], one["cell"]["jobs"]) == ("there", ["unit"])
    assert len(api.client.get(RUNS).json()["items"]) == 1
    answer = api.client.post(rerun, json={"only": "failed"}, headers={"Idempotency-Key": "r"})
    assert answer.status_code == 202, answer.text
    again = answer.json()
    assert again["rerun_of"] == run
    [one] = again["cells"]
    assert (one["id"], [job["id"] for job in one["jobs"]]) == ("there", ["unit"])
    replay = api.client.post(rerun, json={"only": "failed"}, headers={"Idempotency-Key": "r"})
    assert replay.headers["idempotency-replayed"] == "true"
    assert replay.json()["id"] == again["id"]
    whole = api.client.post(rerun, headers={"Idempotency-Key": "whole"})
    assert [c["id"] for c in whole.json()["cells"]] == ["here", "there"]
    held = {"only": "failed", "hold_minutes": 5}
    kept = api.client.post(rerun, json=held, headers={"Idempotency-Key": "held"}).json()
    assert api.database.stores.runs.spec(kept["id"]).hold_minutes == 5
    none = api.client.post(rerun, json={"only": "errored"}, headers={"Idempotency-Key": "none"})
    assert none.status_code == 409
    bad = api.client.post(rerun, json={"only": "bad"}, headers={"Idempotency-Key": "bad"})
    assert bad.status_code == 422
    assert bad.json()["errors"][0]["pointer"] == "/only"


COMMIT = {"sha": "1f0c2d9a41b2" + "0" * 28, "branch": "main", "author": "Ann", "is_dirty": False}


def test_runs_are_listed_by_what_they_test(api: Desk) -> None:
    told = launch(api, commit=COMMIT).json()
    launch(api, "other", commit=COMMIT | {"branch": "topic", "author": "Bo", "sha": "a" * 40})
    launch(api, "none")
    assert told["commit"] == COMMIT
    asked = ("commit=1f0c2d9", "branch=main", "author=Ann", "commit=1f&branch=main&author=Ann")
    for query in asked:
        items = api.client.get(f"{RUNS}?{query}").json()["items"]
        assert [(one["id"], one["commit"]) for one in items] == [(told["id"], COMMIT)], query
    assert api.client.get(f"{RUNS}?commit=1f&branch=topic").json()["items"] == []
    assert len(api.client.get(RUNS).json()["items"]) == 3


def test_a_commit_must_look_like_one(shared_api: Desk) -> None:
    answer = launch(shared_api, commit={"sha": "main"})
    assert answer.status_code == 422
    assert "/commit/sha" in answer.text
