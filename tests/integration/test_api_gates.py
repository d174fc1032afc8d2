"""Gates over REST: policies, evaluations, verdicts that are signed and replayed."""

from __future__ import annotations

import hashlib
import json

import pytest

from orchestrator.adapters.signing import verify_bundle
from tests.integration.api_context import Desk
from tests.integration.gate_world import API, POLICY, begun, check, put, ran
from tests.integration.test_api_ingest import tar_of

OTHER = POLICY.replace("- {id: here}", "- {id: here, level: advisory}\n    - {id: there}")
LAX = POLICY.replace("on: [here]}", "on: [here], level: advisory}")
FAILS = {"tests/test_a.py::one": "failed", "tests/test_a.py::two": "passed"}


# Policies


def test_a_policy_is_put_once_and_every_version_is_kept(api: Desk) -> None:
    first = put(api)
    api.clock.move(hours=1)
    assert put(api, f"# said better\n{POLICY}") == first
    api.clock.move(hours=1)
    second = put(api, OTHER)
    assert second["digest"] != first["digest"]
    assert second["first_seen"] == "2026-03-01T14:00:00Z"
    history = api.client.get(f"{API}/gates/release/policies").json()["items"]
    assert [one["digest"] for one in history] == [second["digest"], first["digest"]]
    assert api.client.get(f"{API}/gates").json()["items"] == [second]
    assert api.client.get(f"{API}/gates/release").json() == second


def test_a_policy_as_an_object_is_a_policy(api: Desk) -> None:
    text = put(api)
    said = {
        "apiVersion": "seatrial/v1",
        "kind": "ReleaseGate",
        "metadata": {"name": "release", "product": "proof", "owner": "release-team"},
        "spec": {"platforms": [{"id": "here"}], "jobs": [{"id": "unit", "on": ["here"]}]},
    }
    answer = api.client.put(f"{API}/gates/release", json={"policy": said})
    assert answer.json()["digest"] == text["digest"]


def test_a_policy_that_is_none_is_refused_with_its_place(api: Desk) -> None:
    answer = api.client.put(
        f"{API}/gates/release", json={"policy": f"{POLICY}  colour: red\n", "name": "gate.yaml"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["line"] == 9
    assert "gate.yaml" in answer.json()["detail"]
    assert api.client.get(f"{API}/gates").json()["items"] == []


def test_a_policy_of_another_gate_is_refused(api: Desk) -> None:
    answer = api.client.put(f"{API}/gates/other", json={"policy": POLICY})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/metadata/name"


def test_a_gate_keeps_its_product(api: Desk) -> None:
    first = put(api, POLICY)
    other = POLICY.replace("product: proof", "product: other")
    answer = api.client.put(f"{API}/gates/release", json={"policy": other})
    assert answer.status_code == 422
    assert "keeps its product" in answer.json()["errors"][0]["detail"]
    assert api.client.get(f"{API}/gates/release").json()["digest"] == first["digest"]


# Verdicts


def test_a_green_run_passes_and_the_verdict_says_what_it_is_made_of(api: Desk) -> None:
    run = ran(api)
    policy = put(api)
    verdict = check(api, runs=[run])
    assert verdict["decision"] == "PASS", verdict["summary"]
    assert verdict["id"] == "V-0001"
    assert verdict["runs"] == [run]
    assert verdict["lineage"] == "release"
    assert verdict["policy_digest"] == policy["digest"]
    assert verdict["subject"]["version"] == "1.10"
    assert len(verdict["subject"]["payload_sha256"]) == 64
    wrong = [rule["id"] for rule in verdict["rules"] if rule["outcome"] != "ok"]
    assert wrong == ["payload_level"]  # nobody has said that they read it, and nobody has to
    assert api.client.get(f"{API}/verdicts/V-0001").json() == verdict


def test_a_red_run_fails(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    verdict = check(api, runs=[run])
    assert verdict["decision"] == "FAIL"
    violated = [rule["id"] for rule in verdict["rules"] if rule["outcome"] == "violated"]
    assert violated == ["job/unit@here"]


def test_without_a_run_the_newest_finished_one_is_looked_at(api: Desk) -> None:
    put(api)
    assert check(api, "none")["decision"] == "INCONCLUSIVE"
    ran(api, "key-1")
    green = ran(api, "key-2")
    begun(api, "key-3")
    verdict = check(api, "newest")
    assert (verdict["decision"], verdict["runs"]) == ("PASS", [green])
    assert check(api, "prefix", runs=[green[:-1], "latest"])["decision"] == "INCONCLUSIVE"


def test_a_run_that_goes_on_is_inconclusive(api: Desk) -> None:
    run, agent = begun(api)
    agent.send(agent.manifest("a"), agent.test("a"))
    put(api)
    assert check(api, runs=[run])["decision"] == "INCONCLUSIVE"


def test_unattested_evidence_does_not_pass(api: Desk) -> None:
    run = ran(api, attested=False)
    put(api)
    assert check(api, runs=[run])["decision"] == "INCONCLUSIVE"


def test_the_same_request_is_one_verdict(api: Desk) -> None:
    run = ran(api)
    put(api)
    first = check(api, "again", runs=[run])
    api.clock.move(hours=1)
    assert check(api, "again", runs=[run]) == first
    other = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"runs": [ran(api, "key-2")]},
        headers={"Idempotency-Key": "again"},
    )
    assert other.status_code == 422
    assert other.json()["type"] == "urn:seatrial:problem:key-reused"
    assert len(api.client.get(f"{API}/gates/release/verdicts").json()["items"]) == 1


def test_the_version_that_was_asked_for_decides_whatever_was_put_since(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    strict, lax = put(api), put(api, LAX)
    asked = check(api, "strict", runs=[run], policy_digest=strict["digest"])
    assert (asked["decision"], asked["policy_digest"]) == ("FAIL", strict["digest"])
    assert check(api, "lax", runs=[run], policy_digest=lax["digest"])["decision"] == "PASS"
    assert check(api, "present", runs=[run])["policy_digest"] == lax["digest"]
    replayed = api.client.get(f"{API}/verdicts/{asked['id']}/replay").json()
    assert (replayed["identical"], replayed["decision"]) == (True, "FAIL")


def test_a_version_that_the_gate_never_had_decides_nothing(api: Desk) -> None:
    run = ran(api)
    put(api)
    other = api.client.put(
        f"{API}/gates/other", json={"policy": POLICY.replace("name: release", "name: other")}
    )
    for digest in ("0" * 64, other.json()["digest"]):
        answer = api.client.post(
            f"{API}/gates/release/evaluate",
            json={"runs": [run], "policy_digest": digest},
            headers={"Idempotency-Key": "k"},
        )
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "urn:seatrial:problem:policy-missing",
        )
        assert f"'release' never had the policy {digest!r}" in answer.json()["detail"]
        assert "`seatrial gate check FILE`" in answer.json()["detail"]
    assert api.client.get(f"{API}/gates/release/verdicts").json()["items"] == []


def test_a_key_with_another_policy_is_another_request(api: Desk) -> None:
    run = ran(api)
    strict, lax = put(api), put(api, LAX)
    made = check(api, "again", runs=[run], policy_digest=strict["digest"])
    assert check(api, "again", runs=[run], policy_digest=strict["digest"]) == made
    answer = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"runs": [run], "policy_digest": lax["digest"]},
        headers={"Idempotency-Key": "again"},
    )
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:seatrial:problem:key-reused"


def test_a_run_of_another_product_is_refused(api: Desk) -> None:
    run = ran(api)
    put(api, POLICY.replace("product: proof", "product: other"))
    answer = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"runs": [run]},
        headers={"Idempotency-Key": "k"},
    )
    assert (answer.status_code, answer.json()["type"]) == (
        422,
        "urn:seatrial:problem:wrong-product",
    )


def test_a_policy_that_comes_with_a_check_is_the_gates_once_it_has_decided(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    verdict = check(api, "lax", runs=[run], policy=LAX, name="gate.yaml")
    assert verdict["decision"] == "PASS"
    assert check(api, "lax", runs=[run], policy=LAX) == verdict
    assert api.client.get(f"{API}/gates/release").json()["digest"] == verdict["policy_digest"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"runs": ["01nowhere"]}, 404),
        ({"runs": ["latest"], "policy": LAX.replace("name: release", "name: other")}, 422),
        ({"runs": ["latest"], "policy": LAX.replace("product: proof", "product: other")}, 422),
        ({"runs": ["latest"], "policy": f"{LAX}  colour: red\n"}, 422),
    ],
    ids=["unknown run", "another gate", "another product", "no policy"],
)
def test_a_refused_check_leaves_the_policy_as_it_was(
    api: Desk, body: dict[str, object], status: int
) -> None:
    ran(api)
    before = put(api)
    answer = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"policy": LAX} | body,
        headers={"Idempotency-Key": "k"},
    )
    assert answer.status_code == status, answer.text
    assert api.client.get(f"{API}/gates").json()["items"] == [before]
    assert api.client.get(f"{API}/gates/release/verdicts").json()["items"] == []


def test_a_check_of_another_products_run_stores_no_gate(api: Desk) -> None:
    run = ran(api)
    answer = api.client.post(
        f"{API}/gates/release/evaluate",
        json={"runs": [run], "policy": POLICY.replace("product: proof", "product: other")},
        headers={"Idempotency-Key": "k"},
    )
    assert answer.json()["type"] == "urn:seatrial:problem:wrong-product"
    assert api.client.get(f"{API}/gates").json()["items"] == []


def test_verdicts_are_listed_by_pages_and_lines(api: Desk) -> None:
    run = ran(api)
    put(api)
    for number in range(3):
        check(api, f"k{number}", runs=[run], lineage="nightly" if number else "")
    path = f"{API}/gates/release/verdicts"
    page = api.client.get(path, params={"limit": 2}).json()
    assert [one["id"] for one in page["items"]] == ["V-0003", "V-0002"]
    rest = api.client.get(path, params={"limit": 2, "before": page["next"]}).json()
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (["V-0001"], None)
    line = api.client.get(path, params={"lineage": "nightly"}).json()["items"]
    assert [one["id"] for one in line] == ["V-0003", "V-0002"]


def test_a_dry_run_keeps_nothing(api: Desk) -> None:
    run = ran(api)
    put(api)
    path = f"{API}/gates/release/dry-run"
    said = api.client.post(path, json={"runs": [run], "now": "2026-03-01T12:00:00Z"}).json()
    assert said["decision"] == "PASS"
    assert said["at"] == "2026-03-01T12:00:00Z"
    late = api.client.post(path, json={"runs": [run], "now": "2026-03-09T12:00:00Z"}).json()
    assert late["decision"] == "INCONCLUSIVE"
    for wrong in (0, 1772366400, "0", "-1.5", "1772366400", True, "2026-03-09T12:00:00"):
        answer = api.client.post(path, json={"runs": [run], "now": wrong})
        assert answer.status_code == 422, wrong
        assert answer.json()["errors"][0]["pointer"] == "/now"
    assert api.client.post(path, json={"runs": [run], "now": None}).status_code == 200
    other = POLICY.replace("{id: here}", "{id: there}").replace("on: [here]", "on: [there]")
    assert api.client.post(path, json={"runs": [run], "policy": other}).json()["decision"] != "PASS"
    assert api.client.get(f"{API}/gates/release/verdicts").json()["items"] == []
    assert api.client.get(f"{API}/keys").json()["items"] == []


# What stays of a verdict


def test_a_verdict_is_signed_and_verifies_with_the_keyring_alone(api: Desk) -> None:
    run = ran(api)
    put(api)
    verdict = check(api, runs=[run])
    statement = api.client.get(f"{API}/verdicts/V-0001/statement")
    assert statement.headers["content-type"].startswith("application/vnd.in-toto+jsonl")
    assert hashlib.sha256(statement.content).hexdigest() == verdict["envelope_digest"]
    found = verify_bundle(statement.content, api.client.get(f"{API}/keyring").content)
    assert found.verdict["decision"] == "PASS"
    assert found.key.id == verdict["key_id"]
    (cell,) = found.statements
    assert cell["predicate"]["result"] == "PASSED"
    assert cell["predicate"]["passedTests"] == ["unit: tests/test_a.py::one", "here/demo"]
    digests = [one["digest"] for one in cell["subject"]]
    assert digests == [{"sha256": verdict["subject"]["payload_sha256"]}]


def test_the_frozen_evidence_is_kept_by_its_digest(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    verdict = check(api, runs=[run])
    answer = api.client.get(f"{API}/verdicts/V-0001/evidence")
    assert hashlib.sha256(answer.content).hexdigest() == verdict["snapshot_digest"]
    (cell,) = json.loads(answer.content)["cells"]
    (failed,) = cell["jobs"][0]["failed"]
    assert (failed["exception"], failed["frame"]) == ("ValueError", "lib.core.work")


def test_replayed_later_the_bytes_are_the_same(api: Desk) -> None:
    run = ran(api, tests=FAILS)
    put(api)
    verdict = check(api, runs=[run])
    api.clock.move(days=400)
    put(api, OTHER)
    ran(api, "key-2")
    again = api.client.get(f"{API}/verdicts/V-0001/replay").json()
    assert again["identical"] is True
    assert again["replayed_digest"] == verdict["document_digest"]
    assert again["decision"] == "FAIL"


def test_a_later_runs_cell_stands_for_an_earlier_ones(api: Desk) -> None:
    red, green = ran(api, "key-1", FAILS), ran(api, "key-2")
    put(api)
    verdict = check(api, runs=[green, red])
    assert verdict["runs"] == [red, green]
    wrong = [one["id"] for one in verdict["rules"] if one["outcome"] == "violated"]
    assert wrong == ["flaky/unit@here"]  # the job passed later, and what failed first is told


RETESTED = {
    "a.xml": (
        '<testsuite name="s" tests="1"><testcase classname="t" name="one">{}</testcase></testsuite>'
    ),
    "ctrf.json": (
        '{{"reportFormat": "CTRF", "results": {{"tool": {{"name": "x"}}, "summary": {{"tests": 1}},'
        ' "tests": [{{"name": "one", "status": "passed"{}}}]}}}}'
    ),
    "log.txt": (
        "============================= test session starts ==============================\n"
        "collected 1 item\n\n{}tests/test_a.py::one PASSED [100%]\n\n"
        "============================== 1 passed{} in 0.1s ==============================\n"
    ),
}


@pytest.mark.parametrize(
    ("name", "retest"),
    [
        ("a.xml", ('<flakyFailure message="no"/>',)),
        ("a.xml", ('<flakyError message="no"/>',)),
        ("a.xml", ('<rerunFailure message="no"/>',)),
        ("ctrf.json", (', "flaky": true',)),
        ("ctrf.json", (', "retries": 1',)),
        ("ctrf.json", (', "retryAttempts": [{"attempt": 1, "status": "failed"}]',)),
        ("log.txt", ("tests/test_a.py::one RERUN [100%]\n", ", 1 rerun")),
        *((name, ("", "")) for name in RETESTED),
    ],
)
def test_what_another_ci_ran_again_is_flaky_at_a_gate(
    api: Desk, name: str, retest: tuple[str, ...]
) -> None:
    believed = POLICY.replace("  platforms:", "  evidence: {attestation: optional}\n  platforms:")
    put(api, believed.partition("  jobs:")[0])
    posted = api.client.post(
        f"{API}/ingest?platform=here&subject=proof@1.10&name={name}",
        content=RETESTED[name].format(*retest).encode(),
    )
    assert posted.status_code == 201, posted.text
    verdict = check(api, runs=[posted.json()["run"]])
    wrong = [rule for rule in verdict["rules"] if rule["outcome"] != "ok"]
    assert verdict["decision"] == ("FAIL" if any(retest) else "PASS")
    assert [rule["kind"] for rule in wrong] == ["failed_first"] * any(retest)
    assert all("passed when the suite ran it again" in rule["sentence"] for rule in wrong)


@pytest.mark.parametrize(
    ("seconds", "decision", "said"),
    [
        ("", "INCONCLUSIVE", "Nobody states what here cost"),
        (", seconds: 3600", "FAIL", "The machines cost 98.32 USD, more than"),
    ],
)
def test_a_cost_rule_needs_the_duration_of_a_stated_machine(
    api: Desk, seconds: str, decision: str, said: str
) -> None:
    limited = POLICY.replace(
        "  platforms:",
        '  evidence: {attestation: optional}\n  cost: {max_usd: "0.01", on_exceed: fail}\n'
        "  platforms:",
    )
    put(api, limited.partition("  jobs:")[0])
    notes = f'apiVersion: seatrial/v1\nkind: Ingest\nmachine: {{usd_per_hour: "98.32"{seconds}}}\n'
    suite = '<testsuite tests="1"><testcase classname="tests.test_a" name="one"/></testsuite>'
    body = tar_of(**{"a.xml": suite}, ingest_yaml=notes)
    posted = api.client.post(f"{API}/ingest?platform=here&subject=proof@1.10", content=body)
    assert posted.status_code == 201, posted.text
    verdict = check(api, runs=[posted.json()["run"]])
    [rule] = [rule for rule in verdict["rules"] if rule["kind"] == "cost"]
    assert verdict["decision"] == decision
    assert rule["sentence"].startswith(said)
