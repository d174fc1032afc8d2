"""Kinds of failures, tests under all their names, and known issues, over REST."""

from __future__ import annotations

import pytest

from tests.databases import Agent, attempt
from tests.integration.api_context import MATRIX, Desk
from tests.unit.domain.failure_cases import A10G_TESTS, TPU_TRAINING, a10g_short

API = "/api/v1"
ISSUE = {
    "product": "proof",
    "title": "DelayedScaling",
    "owner": "fp8-team",
    "expires": "2026-04-30",
    "match": {"exception": "ValidationError", "contains": "scaling_factor_compute_algo"},
}


def ran(api: Desk, key: str, tests: dict[str, str]) -> str:
    """A run whose first cell has these tests; one with a traceback failed."""
    headers = {"Idempotency-Key": key}
    run = api.client.post(f"{API}/runs", json={"matrix": MATRIX}, headers=headers).json()
    stores = api.database.stores
    cell = stores.cells.of_run(run["id"])[0]
    agent = Agent(stores, attempt(stores, cell.id))
    lines = [
        agent.test(name, "failed" if text else "passed", longrepr=text)
        for name, text in tests.items()
    ]
    assert agent.send(*lines)
    return str(run["id"])


TEN = {f"t.py::{test}": a10g_short(test, 7) for test in A10G_TESTS}


def get(api: Desk, path: str, **query: object):
    answer = api.client.get(f"{API}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(api: Desk, path: str, body: object = None, status: int = 200):
    answer = api.client.post(f"{API}{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_run_shows_its_failures_by_signature_and_its_known_issues(api: Desk) -> None:
    run = ran(api, "a", TEN | {"t.py::other": TPU_TRAINING, "t.py::fine": ""})
    assert post(api, "/known-issues", ISSUE, 201)["id"] == "KI-0001"
    shown = get(api, f"/runs/{run}")
    first, second = shown["failure_groups"]
    assert (first["count"], first["known_issues"], first["tolerated"]) == (10, ["KI-0001"], 10)
    assert (
        first["signature"]["frame"] == "kernel_pytorch.precision.fp8_training_engine.to_te_recipe"
    )
    assert (second["count"], second["known_issues"]) == (1, [])
    assert [(use["issue"]["id"], use["state"], use["count"]) for use in shown["known_issues"]] == [
        ("KI-0001", "applies", 10)
    ]
    assert shown["counts"]["failed"] == 11
    assert shown["cells"][0]["fingerprint"] == ""
    for query in ({"run": run}, {"product": "proof"}, {"run": "latest"}):
        listed = get(api, "/failure-groups", **query)
        assert [item["count"] for item in listed["items"]] == [10, 1]
        assert (listed["runs"], listed["is_cut"]) == (1, False)
    assert get(api, "/failure-groups", product="other")["items"] == []
    assert api.client.get(f"{API}/failure-groups", params={"run": "nope"}).status_code == 404


def test_groups_of_the_newest_runs_name_known_issues_and_quarantines(api: Desk) -> None:
    tests = TEN | {"t.py::other": TPU_TRAINING, "t.py::another": TPU_TRAINING}
    run = ran(api, "a", tests)
    ran(api, "b", tests)
    post(api, "/known-issues", ISSUE, 201)
    post(api, "/known-issues", ISSUE | {"scope": {"platforms": ["elsewhere"]}}, 201)
    unstable = {"product": "proof", "nodeid": "t.py::other", "reason": "r", "owner": "me"}
    post(api, "/quarantines", unstable | {"days": 14}, 201)

    def excuses(**query: object) -> list[object]:
        listed = get(api, "/failure-groups", **query)["items"]
        keys = ("count", "known_issues", "quarantines", "tolerated")
        return [tuple(item[key] for key in keys) for item in listed]

    assert excuses(run=run) == [(10, ["KI-0001"], [], 10), (2, [], ["Q-0001"], 1)]
    assert excuses(product="proof") == [(20, ["KI-0001"], [], 20), (4, [], ["Q-0001"], 2)]
    assert excuses() == excuses(product="proof")
    post(api, "/quarantines/Q-0001/end")
    post(api, "/known-issues/KI-0001/expire")
    assert excuses(product="proof") == [(20, [], [], 0), (4, [], [], 0)]


def test_aliases_are_suggested_decided_and_followed(api: Desk) -> None:
    old = ran(api, "a", {"t.py::A::test_keeps": "", "t.py::A::test_moves": ""})
    new = ran(api, "b", {"t.py::A::test_keeps": "", "t.py::B::test_moves": TPU_TRAINING})
    told = post(api, "/aliases", {"old_run": old, "new_run": new})
    assert [(f["family"], f["summary"]) for f in told["families"]] == [
        ("unit", "2 = 1 same + 1 moved")
    ]
    (alias,) = told["suggestions"]
    assert (alias["change"], alias["state"]) == ("moved", "suggested")
    confirmed = post(api, f"/aliases/{alias['id']}/confirm", None)
    assert (confirmed["state"], confirmed["decided_by"]) == ("confirmed", "operator")
    listed = {test["nodeid"]: test for test in get(api, "/tests", product="proof")["items"]}
    assert listed["t.py::A::test_moves"]["now"] == alias["new_test"]
    assert listed["t.py::B::test_moves"]["now"] is None
    history = get(api, f"/tests/{alias['old_test']}/history")
    assert history["test"]["nodeid"] == "t.py::B::test_moves"
    assert [one["outcome"] for one in history["items"]] == ["failed", "passed"]
    assert [one["nodeid"] for one in history["older_names"]] == ["t.py::A::test_moves"]
    assert history["flaky"]["passed_on_retry"] == 0
    undone = post(api, f"/aliases/{alias['id']}/undo")
    assert (undone["state"], undone["decided_at"]) == ("suggested", None)
    assert post(api, f"/aliases/{alias['id']}/reject")["state"] == "rejected"
    assert [a["id"] for a in get(api, "/aliases", state="rejected")["items"]] == [alias["id"]]
    assert get(api, "/aliases", product="other")["items"] == []


def test_decisions_that_contradict_each_other_are_refused(api: Desk) -> None:
    one = ran(api, "a", {"t.py::A::test_moves": ""})
    two = ran(api, "b", {"t.py::B::test_moves": ""})
    (there,) = post(api, "/aliases", {"old_run": one, "new_run": two})["suggestions"]
    (back,) = post(api, "/aliases", {"old_run": two, "new_run": one})["suggestions"]
    post(api, f"/aliases/{there['id']}/confirm")
    refused = post(api, f"/aliases/{back['id']}/confirm", status=409)
    assert refused["type"] == "urn:seatrial:problem:alias-conflict"
    assert "circle" in refused["detail"]


def test_tests_are_paged(api: Desk) -> None:
    ran(api, "a", {f"t.py::test_{n}": "" for n in range(5)})
    first = get(api, "/tests", limit=3)
    rest = get(api, "/tests", limit=3, after=first["next"])
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 2, None)
    assert len(get(api, "/tests", contains="test_1")["items"]) == 1
    assert get(api, "/tests", job="other")["items"] == []


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"match": {}}, "/match"),
        ({"product": "*"}, "/product"),
        ({"match": {"signature": "s1-000000000000"}}, "/match/signature"),
        ({"match": {"signature": "s1-*"}}, "/match/signature"),
        ({"expires": "2026-02-28"}, "/expires"),
        ({"expires": "soon"}, "/expires"),
        ({"scope": {"versions": "0.4"}}, "/scope/versions"),
        ({"scope": {"requires_package": ">=2"}}, "/scope/requires_package"),
        ({"owner": ""}, "/owner"),
        ({"title": "a\x00b"}, "/title"),
        ({"url": "javascript:alert(1)"}, "/url"),
        ({"max_failures": 0}, "/max_failures"),
        ({"effect": "hide"}, "/effect"),
    ],
)
def test_a_bad_known_issue_is_not_stored(shared_api: Desk, changes: dict, pointer: str) -> None:
    refused = post(shared_api, "/known-issues", ISSUE | changes, 422)
    assert [fault["pointer"] for fault in refused["errors"]] == [pointer]
    assert get(shared_api, "/known-issues")["items"] == []


def test_a_known_issue_of_a_product_without_a_run_is_refused(api: Desk) -> None:
    ran(api, "a", TEN)
    refused = post(api, "/known-issues", ISSUE | {"product": "porof"}, 422)
    (error,) = refused["errors"]
    assert error["pointer"] == "/product"
    assert "no run is of this product; did you mean 'proof'?" in error["detail"]
    assert get(api, "/known-issues")["items"] == []
    assert post(api, "/known-issues", ISSUE, 201)["product"] == "proof"


def test_a_known_issue_is_ended_once(api: Desk) -> None:
    made = post(api, "/known-issues", ISSUE, 201)
    assert (made["opened"], made["is_over"]) == ("2026-03-01", False)
    assert (made["author"], made["author_token"]) == ("operator", "socket")
    refused = post(api, "/known-issues/KI-0001/expire", {"by": "you"}, 422)
    assert "no name can be sent" in refused["detail"]
    ended = post(api, "/known-issues/KI-0001/expire", None)
    assert (ended["is_over"], ended["ended_by"]) == (True, "operator")
    assert post(api, "/known-issues/KI-0001/expire", None) == ended
    assert get(api, "/known-issues", product="proof")["items"] == [ended]
    assert get(api, "/known-issues", product="other")["items"] == []
