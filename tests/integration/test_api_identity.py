"""Who asks for an exception and who approves it: the owner of the token, whatever it is called."""

from __future__ import annotations

import pytest

from tests.integration.api_context import MANIFEST, Desk, archive, sha256
from tests.integration.gate_world import API, POLICY, check, put, ran
from tests.integration.test_api_gate_signoff import FAILS, WAIVER, approve, waive

SPELLED = (
    "Ann Lee",
    "ANN  LEE",
    "ann\N{ZERO WIDTH SPACE} lee",
    "\N{RIGHT-TO-LEFT OVERRIDE}ann lee",
    "\N{FULLWIDTH LATIN SMALL LETTER A}nn lee",
)


def test_nobody_approves_what_they_asked_for_with_any_token_of_theirs(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    check(api, "before", runs=[run])
    ann, *others = (api.with_token("gate", name=name) for name in SPELLED)
    asked = ann.post(f"{API}/waivers", json=WAIVER).json()
    assert (asked["author"], asked["approver"], asked["approved_at"]) == ("Ann Lee", "", None)
    assert check(api, "asked", runs=[run])["decision"] == "FAIL"
    for hers in (ann, *others):
        refused = approve(hers, asked["id"])
        assert refused.status_code == 422
        assert "'Ann Lee' asked for W-0001 and cannot approve it" in refused.json()["detail"]
    (again,) = api.client.get(f"{API}/waivers").json()["items"]
    assert again == asked
    assert check(api, "still", runs=[run])["decision"] == "FAIL"

    bo = api.with_token("gate", name="bo")
    approved = approve(bo, asked["id"]).json()
    tokens = {one["id"]: one["name"] for one in api.client.get(f"{API}/tokens").json()["items"]}
    assert (approved["approver"], tokens[approved["approver_token"]]) == ("bo", "bo")
    assert tokens[approved["author_token"]] == "Ann Lee"
    assert approve(bo, asked["id"]).json() == approved
    late = approve(api.with_token("gate", name="cy"), asked["id"])
    assert late.status_code == 409
    assert "W-0001 is approved already, by bo at 2026-" in late.json()["detail"]
    [kept] = api.client.get(f"{API}/waivers").json()["items"]
    assert kept == approved
    assert check(api, "after", runs=[run])["decision"] == "PASS_WITH_EXCEPTIONS"


def test_a_home_with_one_person_says_how_there_can_be_two(api: Desk) -> None:
    put(api)
    check(api, runs=[ran(api, tests=FAILS)])
    asked = api.client.post(f"{API}/waivers", json=WAIVER).json()
    assert (asked["author"], asked["author_token"]) == ("operator", "socket")
    refused = approve(api.client, asked["id"])
    assert refused.status_code == 422
    for words in ("'operator' asked for W-0001", "`seatrial serve`", "`seatrial token create"):
        assert words in refused.json()["detail"]


def test_a_waiver_that_is_over_or_nowhere_is_not_approved(api: Desk) -> None:
    put(api)
    check(api, runs=[ran(api, tests=FAILS)])
    asked = api.client.post(f"{API}/waivers", json=WAIVER).json()
    bo = api.with_token("gate", name="bo")
    assert approve(bo, "W-0009").status_code == 404
    assert approve(api.with_token("run"), asked["id"]).status_code == 403
    api.clock.move(days=7)
    late = approve(api.with_token("gate", name="bo"), asked["id"])
    assert (late.status_code, "W-0001 expired at 2026-03-08" in late.json()["detail"]) == (
        422,
        True,
    )


def test_the_author_of_an_exception_does_not_approve_the_verdict(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api, f"{POLICY}  approvals: {{on: [PASS_WITH_EXCEPTIONS], need: 1}}\n")
    check(api, "before", runs=[run])
    ann = api.with_token("gate", name="ann")
    asked = ann.post(f"{API}/waivers", json=WAIVER).json()
    approve(api.client, asked["id"])
    idle = ann.post(f"{API}/approvals", json={"gate": "release"}).json()
    assert idle["remark"] == "V-0001 asks for no approval"
    check(api, "waived", runs=[run])
    hers = api.with_token("gate", name="A\N{ZERO WIDTH SPACE}NN")
    for client, decision in ((hers, "INCONCLUSIVE"), (api.client, "PASS_WITH_EXCEPTIONS")):
        said = client.post(f"{API}/approvals", json={"gate": "release"})
        assert said.status_code == 201
        assert ("author's own approval" in said.json()["remark"]) is (client is hers)
        assert ("says `approvals: {on: []}`" in said.json()["remark"]) is (client is hers)
        assert check(api, decision, runs=[run])["decision"] == decision


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("\N{CYRILLIC SMALL LETTER A}nn", "Cyrillic \N{CYRILLIC SMALL LETTER A} (U+0430); Latin n"),
        ("\N{ZERO WIDTH SPACE}", "must have a letter or a digit"),
    ],
)
def test_nobody_gets_a_token_with_a_name_like_anothers(
    shared_api: Desk, name: str, says: str
) -> None:
    answer = shared_api.client.post(
        f"{API}/tokens", json={"name": name, "scope": "gate", "days": 1}
    )
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/name")
    assert says in answer.json()["errors"][0]["detail"]


def launch_of_product(api: Desk, name: str) -> None:
    """A run whose product no gate has."""
    data = archive(MANIFEST.replace('name = "proof"', f'name = "{name}"'))
    digest = sha256(data)
    api.client.put(f"{API}/payloads/{digest}", content=data).raise_for_status()
    api.launch("key-other", payload=digest)


def test_a_policy_says_how_long_exceptions_may_last(api: Desk) -> None:
    put(api)
    forever = POLICY + (
        "  exceptions: [{id: E-1, rule: platform/here, reason: r, author: ann,"
        " approved_by: [bo], expires: 2026-07-01}]\n"
    )
    refused = api.client.put(f"{API}/gates/release", json={"policy": forever})
    assert refused.json()["errors"][0]["pointer"] == "/spec/exceptions/0/expires"
    said = "2026-07-01 is 122 days ahead: `exception_max_age` allows 90"
    assert (refused.status_code, refused.json()["errors"][0]["detail"]) == (422, said)
    put(api, forever + "  exception_max_age: 122d\n")
    check(api, "before", runs=[ran(api, tests=FAILS)])
    assert waive(api, days=122)["id"] == "W-0001"
    launch_of_product(api, "other")
    issue = {
        "product": "proof",
        "title": "t",
        "owner": "me",
        "match": {"contains": "shapes differ"},
    }
    for product, expires, status in (
        ("proof", "2026-07-01", 201),
        ("proof", "2999-01-01", 422),
        ("other", "2026-05-30", 201),
        ("other", "2026-05-31", 422),
    ):
        body = {**issue, "product": product, "expires": expires}
        answer = api.client.post(f"{API}/known-issues", json=body)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.json()["errors"][0]["pointer"] == "/expires"
            assert "`exception_max_age`" in answer.json()["detail"]


def test_a_policy_knows_who_put_it(api: Desk) -> None:
    answer = api.with_token("gate").put(f"{API}/gates/release", json={"policy": POLICY})
    assert answer.json()["by"] == "a gate"
