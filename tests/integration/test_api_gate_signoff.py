"""What people say to gates, who they are, and the keys that verdicts are signed with."""

from __future__ import annotations

from pathlib import Path

import pytest
from httpx import Response
from starlette.testclient import TestClient

from orchestrator.adapters.signing import verify_bundle
from orchestrator.application.ports.signer import NotVerifiedError
from tests.integration.api_context import Desk, desk
from tests.integration.gate_world import API, POLICY, check, put, ran

FAILS = {"tests/test_a.py::one": "failed"}
WAIVER = {
    "gate": "release",
    "rule": "job/unit@here",
    "reason": "The test is wrong; its mending is on the way.",
    "days": 7,
}
APPROVED = f"{POLICY}  approvals: {{on: [PASS], need: 1}}\n"


@pytest.fixture(scope="module")
def ready(shared_api: Desk) -> Desk:
    """A gate that has decided nothing yet; nobody changes it."""
    put(shared_api)
    return shared_api


def waive(api: Desk, **changed: object) -> dict[str, object]:
    """A waiver that the operator asked for, and that Bo approved."""
    asked = api.client.post(f"{API}/waivers", json={**WAIVER, **changed})
    assert asked.status_code == 201, asked.text
    answer = approve(api.with_token("gate", name="bo"), asked.json()["id"])
    assert answer.status_code == 200, answer.text
    shown: dict[str, object] = answer.json()
    return shown


def approve(client: TestClient, waiver: object) -> Response:
    return client.post(f"{API}/waivers/{waiver}/approve")


# Payloads that somebody read


def reviewed(api: Desk, payload: object, **changed: object):
    body = {"payload": payload, "level": "reviewed", "days": 9, **changed}
    return api.client.post(f"{API}/payload-reviews", json=body)


def test_a_policy_that_asks_for_a_reviewed_payload_fails_until_somebody_read_it(api: Desk) -> None:
    run = ran(api)
    asked = "spec:\n  evidence: {payload_level: reviewed, max_age: 30d}\n"
    put(api, POLICY.replace("spec:\n", asked))
    first = check(api, "before", runs=[run])
    (rule,) = [one for one in first["rules"] if one["id"] == "payload_level"]
    (payload,) = (one["digest"] for one in rule["inputs"]["payloads"])
    assert (first["decision"], rule["outcome"]) == ("FAIL", "violated")
    assert f"seatrial gate review {payload} --level reviewed" in rule["sentence"]
    answer = reviewed(api, f"sha256:{payload}", note="all of it")
    assert (answer.status_code, answer.json()["id"]) == (201, "R-0001")
    after = check(api, "after", runs=[run])
    assert after["decision"] == "PASS"
    assert after["evidence_digest"] == first["evidence_digest"]
    listed = api.client.get(f"{API}/payload-reviews", params={"payload": payload}).json()["items"]
    assert [(one["by"], one["note"], one["state"]) for one in listed] == [
        ("operator", "all of it", "active")
    ]
    assert listed[0]["token"]
    api.clock.move(days=9)
    assert check(api, "late", runs=[run])["decision"] == "FAIL"
    assert reviewed(api, payload, days=1).status_code == 201
    assert check(api, "again", runs=[run])["decision"] == "PASS"
    assert reviewed(api, payload, level="untrusted", days=1).status_code == 201
    assert check(api, "taken-back", runs=[run])["decision"] == "FAIL"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"payload": "0" * 64}, "payload"),
        ({"by": "ann"}, "by"),
        ({"days": 366}, "days"),
        ({"level": "believed"}, "level"),
    ],
)
def test_a_review_that_says_nothing_is_refused(ready: Desk, changed, field: str) -> None:
    answer = reviewed(ready, changed.pop("payload", "0" * 64), **changed)
    assert answer.status_code == 422
    assert field in answer.text


# Waivers


def test_a_waiver_lets_a_rule_go_until_it_expires(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api, POLICY.replace("spec:\n", "spec:\n  evidence: {max_age: 30d}\n"))
    first = check(api, "before", runs=[run])
    assert first["decision"] == "FAIL"
    waiver = waive(api)
    assert (waiver["id"], waiver["verdict"]) == ("W-0001", "V-0001")
    assert (waiver["evidence_digest"], waiver["evidence"]) == (first["evidence_digest"], "")
    after = check(api, "after", runs=[run])
    assert after["decision"] == "PASS_WITH_EXCEPTIONS"
    (rule,) = [rule for rule in after["rules"] if rule["outcome"] == "waived"]
    assert rule["by"] == ["W-0001"]
    assert after["evidence_digest"] == first["evidence_digest"]
    assert after["snapshot_digest"] != first["snapshot_digest"]
    api.clock.move(days=7)
    assert check(api, "late", runs=[run])["decision"] == "FAIL"
    (listed,) = api.client.get(f"{API}/waivers", params={"gate": "release"}).json()["items"]
    assert listed["is_expired"] is True


def test_a_waiver_may_be_for_this_evidence_only(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    first = check(api, "before", runs=[run])
    assert waive(api, only_this=True)["evidence"] == first["evidence_digest"]
    assert check(api, "same", runs=[run])["decision"] == "PASS_WITH_EXCEPTIONS"
    again = ran(api, "key-2", FAILS)
    assert check(api, "next", runs=[again])["decision"] == "FAIL"


def test_a_waiver_is_for_the_verdict_that_was_read_though_another_came(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    seen = check(api, "before", runs=[run])
    newer = check(api, "newer", runs=[ran(api, "key-2", FAILS)])
    waiver = waive(api, only_this=True, verdict=seen["id"])
    assert waiver["evidence"] == waiver["evidence_digest"] == seen["evidence_digest"]
    assert waiver["verdict"] == seen["id"]
    assert check(api, "same", runs=[run])["decision"] == "PASS_WITH_EXCEPTIONS"
    assert check(api, "next", runs=newer["runs"])["decision"] == "FAIL"


def test_a_verdict_of_another_gate_is_neither_waived_nor_approved(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    seen = check(api, runs=[run])
    other = POLICY.replace("name: release", "name: other")
    assert api.client.put(f"{API}/gates/other", json={"policy": other}).status_code == 200
    asked = {"verdict": seen["id"], "gate": "other"}
    for path, body in (
        ("waivers", {**WAIVER, **asked, "only_this": True}),
        ("approvals", asked),
    ):
        answer = api.client.post(f"{API}/{path}", json=body)
        assert answer.status_code == 404
        assert "V-0001 is of the gate 'release', not of 'other'" in answer.json()["detail"]
        unknown = api.client.post(f"{API}/{path}", json={**body, "verdict": "V-0009"})
        assert (unknown.status_code, "'V-0009'" in unknown.json()["detail"]) == (404, True)
    assert api.client.get(f"{API}/waivers").json()["items"] == []
    approvals = api.client.get(f"{API}/approvals", params={"gate": "other"}).json()
    assert approvals["items"] == []


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"approver": "bo"}, "/approver"),
        ({"author": "ann"}, "/author"),
        ({"reason": " "}, "/reason"),
        ({"days": 91}, "/days"),
        ({"days": 355_000}, "/days"),
        ({"days": 0}, "/days"),
        ({"rule": "job/unit@nowhere"}, "/rule"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_waiver_that_cannot_stand_is_refused(
    ready: Desk, changed: dict[str, object], pointer: str
) -> None:
    answer = ready.client.post(f"{API}/waivers", json={**WAIVER, **changed})
    assert answer.status_code == 422
    assert pointer in [one["pointer"] for one in answer.json()["errors"]]
    assert ready.client.get(f"{API}/waivers").json()["items"] == []


def test_a_waiver_is_for_what_a_verdict_has_failing(api: Desk) -> None:
    put(api)

    def refused(rule: str) -> str:
        answer = api.client.post(f"{API}/waivers", json={**WAIVER, "rule": rule})
        [error] = answer.json()["errors"]
        assert (answer.status_code, error["pointer"]) == (422, "/rule")
        return str(error["detail"])

    assert "no verdict yet" in refused("job/unit@here")
    check(api, runs=[ran(api, tests=FAILS)])
    assert "is ok: there is nothing to waive" in refused("platform/here")
    assert "V-0001 has no rule 'skips/here'" in refused("skips/here")
    assert waive(api)["failing"] == {"tests/test_a.py::one": 1}


def test_a_waiver_excuses_no_test_that_fails_later(api: Desk) -> None:
    put(api)
    check(api, "before", runs=[ran(api, tests=FAILS)])
    waive(api)
    more = ran(api, "key-2", {**FAILS, "tests/test_a.py::two": "failed"})
    after = check(api, "after", runs=[more])
    (rule,) = [one for one in after["rules"] if one["id"] == WAIVER["rule"]]
    assert (after["decision"], rule["outcome"]) == ("FAIL", "violated")
    assert "W-0001 does not excuse tests/test_a.py::two, which is new" in rule["sentence"]


@pytest.mark.parametrize("checked", [False, True], ids=["new", "checked"])
def test_what_nothing_waives_is_refused_at_once(api: Desk, *, checked: bool) -> None:
    put(api)
    if checked:
        check(api, runs=[ran(api)])
    for rule, said in (
        ("freshness/here", "stale evidence cannot be waived: run it again"),
        ("attestation/here", "set `evidence.attestation` of the policy"),
        ("evidence", "missing evidence cannot be waived: run it"),
        ("subject", "a verdict is about one subject"),
        ("flaky", "the rule that fails is that of the job"),
    ):
        answer = api.client.post(f"{API}/waivers", json={**WAIVER, "rule": rule})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert (error["pointer"], said in error["detail"]) == ("/rule", True), error
    assert api.client.get(f"{API}/waivers").json()["items"] == []


def test_a_platform_that_nobody_was_asked_for_cannot_be_waived(api: Desk) -> None:
    more = "    - {id: here}\n    - {id: there}\n"
    put(api, POLICY.replace("    - {id: here}\n", more))
    check(api, runs=[ran(api)])
    answer = api.client.post(f"{API}/waivers", json={**WAIVER, "rule": "platform/there"})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert "of V-0001 cannot be waived: There is no evidence of there" in error["detail"]
    assert "`seatrial gate check release`" in error["detail"]


def test_a_waiver_for_no_gate_is_not_found(api: Desk) -> None:
    assert api.client.post(f"{API}/waivers", json=WAIVER).status_code == 404


# Approvals


def test_a_verdict_that_needs_approval_waits_for_it(api: Desk) -> None:
    run = ran(api)
    put(api, APPROVED)
    first = check(api, "before", runs=[run])
    assert first["decision"] == "INCONCLUSIVE"
    yes = api.client.post(f"{API}/approvals", json={"gate": "release"}).json()
    assert (yes["evidence"], yes["by"]) == (first["evidence_digest"], "operator")
    assert yes["token"] == "socket"
    again = api.client.post(f"{API}/approvals", json={"gate": "release"})
    assert again.json() == yes
    assert check(api, "after", runs=[run])["decision"] == "PASS"
    listed = api.client.get(f"{API}/approvals", params={"gate": "release"}).json()["items"]
    assert listed == [yes]
    other = ran(api, "key-2")
    assert check(api, "other", runs=[other])["decision"] == "INCONCLUSIVE"


def test_only_verdicts_can_be_approved(ready: Desk) -> None:
    for changed in ({"gate": "nope"}, {}, {"verdict": "V-0009"}):
        body = {"gate": "release", **changed}
        assert ready.client.post(f"{API}/approvals", json=body).status_code == 404, changed


# Keys


def test_the_first_verdict_makes_a_key_that_only_the_controller_reads(
    api: Desk, tmp_path: Path
) -> None:
    run = ran(api)
    put(api)
    key = check(api, runs=[run])["key_id"]
    (listed,) = api.client.get(f"{API}/keys").json()["items"]
    assert (listed["id"], listed["is_over"]) == (key, False)
    assert listed["created_at"] == "2026-03-01T12:00:00Z"
    assert listed["not_after"] == "2027-03-01T12:00:00Z"
    path = tmp_path / "keys" / "signing" / f"{key}.pem"
    assert path.stat().st_mode & 0o777 == 0o600


def statement(api: Desk, verdict: dict[str, object]) -> bytes:
    return api.client.get(f"{API}/verdicts/{verdict['id']}/statement").content


def test_a_rotated_key_still_proves_what_it_signed(api: Desk) -> None:
    run = ran(api)
    put(api)
    old = check(api, "old", runs=[run])
    api.clock.move(hours=1)
    new_key = api.client.post(f"{API}/keys/rotate").json()["id"]
    new = check(api, "new", runs=[run])
    assert new["key_id"] == new_key != old["key_id"]
    ring = api.client.get(f"{API}/keyring").content
    for verdict in (old, new):
        assert verify_bundle(statement(api, verdict), ring).key.id == verdict["key_id"]
    states = {one["id"]: one["is_over"] for one in api.client.get(f"{API}/keys").json()["items"]}
    assert states == {old["key_id"]: True, new_key: False}


def test_a_key_ends_after_a_year_and_another_takes_over(api: Desk) -> None:
    run = ran(api)
    put(api)
    old = check(api, "old", runs=[run])
    api.clock.move(days=365)
    new = check(api, "new", runs=[run])
    assert new["key_id"] != old["key_id"]
    ring = api.client.get(f"{API}/keyring").content
    assert verify_bundle(statement(api, new), ring)
    assert verify_bundle(statement(api, old), ring)


def test_a_retired_key_proves_nothing_that_was_made_later(api: Desk) -> None:
    run = ran(api)
    put(api)
    verdict = check(api, runs=[run])
    key = verdict["key_id"]
    gone = api.client.post(f"{API}/keys/{key}/retire").json()
    assert gone["retired_at"] == "2026-03-01T12:00:00Z"
    api.clock.move(hours=1)
    assert api.client.post(f"{API}/keys/{key}/retire").json() == gone
    assert check(api, "next", runs=[run])["key_id"] != key
    ring = api.client.get(f"{API}/keyring").content
    with pytest.raises(NotVerifiedError, match=f"{key} was retired on 2026-03-01 12:00 UTC"):
        verify_bundle(statement(api, verdict), ring)


def test_a_key_that_cannot_be_kept_is_no_verdict(api: Desk, tmp_path: Path) -> None:
    run = ran(api)
    put(api)
    (tmp_path / "keys").write_text("a file where the folder should be")
    answer = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"runs": [run]},
        headers={"Idempotency-Key": "k"},
    )
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:seatrial:problem:signing-key")
    assert api.client.get(f"{API}/gates/release/verdicts").json()["items"] == []


def test_controllers_of_one_database_know_each_others_keys(
    tmp_path: Path, database_url: str
) -> None:
    with desk(tmp_path / "one", database_url) as one, desk(tmp_path / "two", database_url) as two:
        run = ran(one)
        put(one)
        first, second = check(one, "a", runs=[run]), check(two, "b", runs=[run])
        assert first["key_id"] != second["key_id"]
        assert first["document_digest"] == second["document_digest"]
        for ring in (each.client.get(f"{API}/keyring").content for each in (one, two)):
            for desk_, verdict in ((one, first), (two, second)):
                found = verify_bundle(statement(desk_, verdict), ring)
                assert found.key.id == verdict["key_id"]
        two.clock.move(hours=1)
        two.client.post(f"{API}/keys/rotate")
        assert check(one, "c", runs=[run])["key_id"] == first["key_id"]
