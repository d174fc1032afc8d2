"""Schedules over REST."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api_context import MATRIX, Desk
from tests.integration.gate_world import POLICY, put

PATH = "/api/v1/schedules"
BODY = {
    "name": "nightly",
    "cron": "0 2 * * *",
    "tz": "Europe/Berlin",
    "owner": "release team",
    "matrix": MATRIX,
}


def post(api: Desk, **changes: object) -> Any:
    return api.client.post(PATH, json=BODY | changes)


def test_a_schedule_is_added_with_its_next_three_times(api: Desk) -> None:
    answer = post(api, deadline="06:00", reuse_hours=36)
    assert answer.status_code == 201
    shown = answer.json()
    assert shown["upcoming"] == [f"2026-03-0{day}T01:00:00Z" for day in (2, 3, 4)]
    assert (shown["schedule"]["reuse_max_age_s"], shown["schedule"]["lineage"]) == (
        36.0 * 3600,
        "run@nightly",
    )
    assert api.client.get(f"{PATH}/nightly").json() == shown
    assert api.client.get(PATH).json() == {"items": [shown], "next": None}
    assert post(api, deadline="06:00", reuse_hours=36).status_code == 201
    assert post(api, cron="0 3 * * *").status_code == 409


def test_a_schedule_keeps_the_commit_of_its_payload(api: Desk) -> None:
    commit = {"sha": "1f0c2d9a41b2", "branch": "main", "author": "Ann", "is_dirty": True}
    assert post(api, commit=commit).json()["schedule"]["commit"].items() >= commit.items()
    assert post(api, commit={"sha": "no digest"}).status_code == 422


def test_a_matrix_may_be_an_object(api: Desk) -> None:
    matrix = {
        "apiVersion": "seatrial/v1",
        "kind": "Matrix",
        "metadata": {"name": "small"},
        "subject": {"name": "proof", "version": "1.10"},
        "platforms": [{"id": "here", "provider": "local"}],
        "jobs": [{"id": "unit"}],
    }
    assert post(api, matrix=matrix).status_code == 201


@pytest.mark.parametrize(
    ("changes", "pointer", "said"),
    [
        ({"cron": "61 2 * * *"}, "/cron", "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "/cron", "Bad day-of-month"),
        ({"tz": "Europe/Berln"}, "/tz", "did you mean 'Europe/Berlin'?"),
        ({"name": "a b"}, "/name", "letters, digits"),
        ({"deadline": "6 o'clock"}, "/deadline", "06:00"),
        ({"catch_up": "all"}, "/catch_up", "`queue`"),
        ({"overlap": "maybe"}, "/overlap", "cancel-previous"),
        ({"select": {"kind": "branch"}}, "/subject", "`url` and `branch`"),
        (
            {"select": {"kind": "branch", "url": "https://git.example/lib", "branch": "main"}},
            "/subject",
            "a subject from git is built by running its own code, and others can reach",
        ),
        ({"matrix": MATRIX.replace("id: there", "id: here")}, "/platforms/0/id", "here"),
        ({"payload": "0" * 64}, "/payload", "was not uploaded"),
        ({"payload": "mine"}, "/payload", "is not written as it must be: ^(builtin|"),
        ({"owner": "a\nb"}, "/owner", "must be one line without control characters"),
    ],
)
def test_what_cannot_fire_is_refused_now(
    shared_api: Desk, changes: dict[str, object], pointer: str, said: str
) -> None:
    answer = post(shared_api, **changes)
    assert answer.status_code == 422
    [first, *_] = answer.json()["errors"]
    assert first["pointer"] == pointer
    assert said in first["detail"]
    assert shared_api.client.get(PATH).json() == {"items": [], "next": None}


def test_a_gate_must_be_known(shared_api: Desk) -> None:
    answer = post(shared_api, gate="release")
    assert answer.status_code == 404
    assert "'release'" in answer.json()["detail"]


def test_a_gate_that_no_run_of_the_matrix_can_pass_is_refused(api: Desk) -> None:
    policy = POLICY.replace("{id: here}", "{id: rack}").replace("on: [here]", "on: [rack]")
    sent = {"gate": "release", "policy": {"policy": policy, "name": "gate.yaml"}}
    answer = post(api, **sent)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "pointer": "/gate",
            "detail": "gate 'release' requires rack, and matrix 'nightly' has only here, there:"
            " it can never pass; add the platform to the matrix, or give it `level: advisory` in"
            " the policy",
        }
    ]
    advisory = POLICY.replace("{id: here}", "{id: here}\n    - {id: rack, level: advisory}")
    assert post(api, **sent | {"policy": {"policy": advisory}}).status_code == 201


def test_a_policy_that_comes_with_a_schedule_is_the_gates(api: Desk) -> None:
    sent = {"gate": "release", "policy": {"policy": POLICY, "name": "gate.yaml"}, "owner": ""}
    assert post(api, **sent).json()["schedule"]["owner"] == "release-team"
    assert api.client.get("/api/v1/gates/release").json()["text"] == POLICY
    changed = POLICY.replace("release-team", "others")
    answer = api.client.put(f"{PATH}/nightly", json=BODY | sent | {"policy": {"policy": changed}})
    assert answer.json()["schedule"]["owner"] == "others"
    assert api.client.get("/api/v1/gates/release").json()["text"] == changed


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"cron": "61 2 * * *"}, 422),
        ({"payload": "0" * 64}, 422),
        ({"cron": "0 3 * * *"}, 409),
        ({"gate": "other"}, 422),
        ({"gate": ""}, 422),
    ],
)
def test_a_refused_schedule_leaves_the_policy_as_it_was(
    api: Desk, changes: dict[str, object], status: int
) -> None:
    before = put(api)
    assert post(api, gate="release").status_code == 201
    policy = {"policy": POLICY.replace("release-team", "others")}
    sent = {"gate": "release", "policy": policy} | changes
    assert post(api, **sent).status_code == status
    assert api.client.put(f"{PATH}/unknown", json=BODY | sent | {"name": "unknown"}).is_error
    assert api.client.get("/api/v1/gates").json()["items"] == [before]


def test_pause_resume_trigger_and_remove(api: Desk) -> None:
    post(api)
    paused = api.client.post(f"{PATH}/nightly/pause").json()
    assert (paused["schedule"]["paused_at"], paused["upcoming"]) == ("2026-03-01T12:00:00Z", [])
    resumed = api.client.post(f"{PATH}/nightly/resume").json()
    assert (resumed["schedule"]["paused_at"], len(resumed["upcoming"])) == (None, 3)
    answer = api.client.post(f"{PATH}/nightly/trigger")
    assert answer.status_code == 202
    firing = answer.json()
    assert (firing["due_at"], firing["state"], firing["by"]) == (
        "2026-03-01T12:00:00Z",
        "claimed",
        "operator",
    )
    assert api.client.get(f"{PATH}/nightly").json()["firings"] == [firing]
    assert api.client.delete(f"{PATH}/nightly").status_code == 204
    for verb, path in (("GET", ""), ("POST", "/pause"), ("POST", "/trigger"), ("DELETE", "")):
        answer = api.client.request(verb, f"{PATH}/nightly{path}")
        assert answer.status_code == 404
        assert "there is no schedule 'nightly'" in answer.json()["detail"]


def test_its_product_is_the_one_of_its_runs(api: Desk) -> None:
    renamed = MATRIX.replace("subject: {name: proof", "subject: {name: hull")
    assert renamed != MATRIX
    assert post(api, matrix=renamed).status_code == 201
    assert api.database.stores.schedules.get("nightly").product == "proof"
    assert api.launch(matrix=renamed)["subject"]["name"] == "hull"
    assert api.database.stores.releases.products() == ["proof"]


def test_a_change_keeps_firings_and_a_pause(api: Desk) -> None:
    assert api.client.put(f"{PATH}/nightly", json=BODY).status_code == 404
    post(api)
    firing = api.client.post(f"{PATH}/nightly/trigger").json()
    api.client.post(f"{PATH}/nightly/pause")
    later = BODY | {"cron": "0 4 * * *", "deadline": "08:00"}
    changed = api.client.put(f"{PATH}/nightly", json=later)
    assert changed.status_code == 200
    shown = changed.json()
    assert (shown["schedule"]["cron"], shown["schedule"]["deadline"]) == ("0 4 * * *", "08:00")
    assert (shown["firings"], shown["upcoming"]) == ([firing], [])
    assert shown["schedule"]["paused_at"] is not None
    resumed = api.client.post(f"{PATH}/nightly/resume").json()
    assert resumed["upcoming"][0] == "2026-03-02T03:00:00Z"
    refused = api.client.put(f"{PATH}/nightly", json=later | {"name": "other"})
    assert refused.status_code == 422
    assert "a schedule keeps its name" in refused.text
    assert api.client.put(f"{PATH}/nightly", json=later | {"tz": "Moon"}).status_code == 422


def test_with_a_token_its_name_signs_a_trigger(api: Desk) -> None:
    post(api)
    client = api.with_token("run")
    assert client.post(f"{PATH}/nightly/trigger").json()["by"] == "a run"
    answer = client.post(f"{PATH}/nightly/trigger", json={"by": "somebody else"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/by")
    assert "no name can be sent" in answer.json()["detail"]
