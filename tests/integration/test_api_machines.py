"""Machines over REST: what the clouds show, ending one, and the way in."""

from __future__ import annotations

import pytest

from orchestrator.client.transport import read
from orchestrator.domain.cell import CellState
from orchestrator.domain.machine import Machine, MachineState, SshAccess
from orchestrator.domain.outcome import Outcome
from orchestrator.store.errors import StoreUnusableError
from tests.integration.api_clouds import LOGIN, Clouds, clouds
from tests.integration.api_context import Desk

MACHINES = "/api/v1/machines"


@pytest.fixture
def here(api: Desk) -> Clouds:
    return clouds(api)


def end(here: Clouds, name: str):
    return here.client.post(f"{MACHINES}/fake/{name}/terminate")


def test_everything_that_a_cloud_shows_is_listed_with_whose_it_is(here: Clouds) -> None:
    mine = here.rent("nobodys")
    here.rent("others", **{"seatrial-controller": "another"})
    survey = here.client.get(MACHINES).json()
    assert survey["unread"] == {}
    found = {item["id"]: item for item in survey["items"]}
    assert {name: item["ownership"] for name, item in found.items()} == {
        mine: "orphan",
        "fake-others": "foreign",
    }
    orphan = found[mine]
    assert (orphan["provider"], orphan["kind"], orphan["run"]) == ("fake", "machine", "run-x")
    assert (orphan["token"], orphan["controller"]) == ("nobodys", "me")
    assert orphan["expires_at"] == "2026-03-01T13:00:00Z"
    assert orphan["first_seen"] == "2026-03-01T12:00:00Z"
    assert orphan["ends_after"] == "2026-03-01T12:20:00Z"
    assert found["fake-others"]["ends_after"] is None


def test_a_tag_that_is_no_time_takes_no_other_machine_along(here: Clouds) -> None:
    mine = here.rent("nobodys")
    others = {"seatrial-controller": "another"}
    for number, said in enumerate(("9" * 20, "9" * 12, "\u00b2", "-1e3", "tomorrow", "")):
        here.rent(f"others-{number}", **others, **{"seatrial-expires-at": said})
    items = {item["id"]: item for item in here.client.get(MACHINES).json()["items"]}
    assert items.pop(mine)["ownership"] == "orphan"
    found = [(item["ownership"], item["expires_at"]) for item in items.values()]
    assert found == [("foreign", None)] * 6


def test_orphans_leave_out_what_somebody_owns(here: Clouds) -> None:
    mine = here.rent("nobodys")
    here.rent("others", **{"seatrial-controller": "another"})
    items = here.client.get(MACHINES, params={"orphans": "true"}).json()["items"]
    assert [item["id"] for item in items] == [mine]


def test_a_cloud_that_cannot_be_asked_is_named(here: Clouds) -> None:
    here.rent("nobodys")
    here.cloud.fail_verb("inventory", times=1)
    survey = here.client.get(MACHINES).json()
    assert survey["items"] == []
    assert "inventory" in survey["unread"]["fake"]


def test_an_orphan_is_ended_now(here: Clouds) -> None:
    name = here.rent("nobodys")
    answer = end(here, name)
    assert answer.status_code == 202
    assert answer.json()["id"] == name
    here.cloud.inspect(name)
    assert here.cloud.live() == ()


def test_a_leased_machine_is_not_ended_and_its_run_is_named(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1")
    name = here.rent("lease-1", **{"seatrial-run": run, "seatrial-cell": "an-id"})
    (item,) = here.client.get(MACHINES).json()["items"]
    assert (item["ownership"], item["cell"]) == ("leased", "here")
    answer = end(here, name)
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:seatrial:problem:machine-in-use"
    assert f"seatrial cancel {run}" in answer.json()["detail"]
    assert here.cloud.terminates == 0


def test_another_controllers_machine_is_its_own_until_it_expires(here: Clouds) -> None:
    name = here.rent("others", **{"seatrial-controller": "another"})
    answer = end(here, name)
    assert answer.status_code == 409
    assert "another's until 2026-03-01 13:00:00 UTC" in answer.json()["detail"]
    assert here.cloud.terminates == 0
    here.desk.clock.move(hours=2)
    assert end(here, name).status_code == 202


def test_rules_stay_while_a_lease_is_open_though_no_machine_is_seen_yet(
    here: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {"seatrial-project": "seatrial", "seatrial-shared": "true"}
    rule = Machine(id="rule", token="", state=MachineState.READY, kind="firewall", tags=tags)
    monkeypatch.setattr(here.provider, "inventory", lambda: (rule,))
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1")
    (item,) = here.client.get(MACHINES, params={"orphans": "true"}).json()["items"]
    assert (item["id"], item["ownership"]) == ("rule", "idle")
    answer = end(here, "rule")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:seatrial:problem:machine-stays"
    assert "lease lease-1 of fake still uses it" in answer.json()["detail"]
    assert here.cloud.terminates == 0
    here.settle("lease-1")
    assert end(here, "rule").status_code == 202
    assert here.cloud.terminates == 1


def test_what_no_cloud_shows_is_not_found(here: Clouds) -> None:
    here.rent("nobodys")
    for path in ("fake/nope", "fake/a/b/c", "nope/a", "fake/%2e%2e/x"):
        assert here.client.post(f"{MACHINES}/{path}/terminate").status_code == 404, path
    assert here.cloud.terminates == 0


@pytest.mark.parametrize("verb", ["inventory", "terminate"])
def test_a_cloud_that_fails_is_no_success(here: Clouds, verb: str) -> None:
    name = here.rent("nobodys")
    here.cloud.fail_verb(verb, times=1)
    answer = end(here, name)
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_way_in_is_told_with_the_key_and_kept_by_nobody(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1")
    answer = here.client.get(f"/api/v1/runs/{run}/cells/here/access")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "address": "203.0.113.7",
        "bastion": None,
        "proxy_command": [],
        "port": 22,
        "user": "ubuntu",
        "host_key": "ssh-ed25519 HOST",
        "private_key": LOGIN.private_key,
        "key_file": "",
        "lease": "lease-1",
        "kind": "ssh",
    }
    assert LOGIN.private_key not in repr(read(SshAccess, answer.json()))


def test_a_cell_without_a_machine_has_no_way_in(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    answer = here.client.get(f"/api/v1/runs/{run}/cells/here/access")
    assert answer.status_code == 409
    assert "--hold-on-failure" in answer.json()["detail"]
    assert here.client.get(f"/api/v1/runs/{run}/cells/nope/access").status_code == 404


def test_a_machine_that_is_kept_is_told_in_the_run(here: Clouds) -> None:
    run = str(here.desk.launch(hold_minutes=30)["id"])
    for cell in ("here", "there"):
        here.desk.begin(run, cell)
        here.lease(run, cell, f"lease-{cell}")
    stores, at = here.desk.database.stores, here.desk.clock.now()
    assert shown(here, run) == [None, None]
    for cell in ("here", "there"):
        cell_id = here.desk.cell_id(run, cell)
        for state in (CellState.COLLECTING, CellState.RELEASING):
            stores.cells.enter(cell_id, state, at=at)
    assert set(shown(here, run)) == {"2026-03-01T12:30:00Z"}
    stores.runs.request_cancel(run, at=at)
    assert shown(here, run) == [None, None]


def shown(here: Clouds, run: str) -> list[str | None]:
    cells = here.client.get(f"/api/v1/runs/{run}").json()["cells"]
    return [cell["kept_until"] for cell in cells]


@pytest.mark.parametrize("minutes", ["-1", "1441", '"soon"', "1e400"])
def test_a_hold_is_a_day_at_most(shared_api: Desk, minutes: str) -> None:
    body = f'{{"matrix": "x", "hold_minutes": {minutes}}}'
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = shared_api.client.post("/api/v1/runs", content=body, headers=headers)
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json()["errors"]] == ["/hold_minutes"]


def test_a_run_that_passed_keeps_nothing(here: Clouds) -> None:
    run = str(here.desk.launch(hold_minutes=30)["id"])
    for cell in ("here", "there"):
        here.desk.begin(run, cell)
    here.desk.finish(run, "here", "there", outcome=Outcome.PASSED)
    assert shown(here, run) == [None, None]


def test_the_emergency_stop_cancels_every_run_and_ends_every_machine(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1")
    here.rent("lease-1")
    here.rent("others", **{"seatrial-controller": "another"})
    answer = here.client.post(f"{MACHINES}/terminate-all")
    assert answer.status_code == 202
    items = answer.json()["items"]
    assert {(one["id"], one["failure"]) for one in items} == {
        ("fake-lease-1", ""),
        ("fake-others", ""),
    }
    assert here.client.get(f"/api/v1/runs/{run}").json()["cancel_requested_at"] is not None
    again = here.client.post(f"{MACHINES}/terminate-all").json()
    assert {one["state"] for one in again["items"]} == {"stopping"}
    assert again["not_cancelled"] == ""


def test_the_emergency_stop_ends_machines_where_the_database_does_not_answer(
    here: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> tuple[str, ...]:
        raise StoreUnusableError("the disk is full")

    here.rent("mine")
    monkeypatch.setattr(here.desk.context.stores.runs, "unfinished", broken)
    report = here.client.post(f"{MACHINES}/terminate-all").json()
    assert [one["failure"] for one in report["items"]] == [""]
    assert report["not_cancelled"] == "the disk is full"
