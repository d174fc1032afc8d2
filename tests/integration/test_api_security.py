"""Who may do what: every route of a TCP port, with every kind of token."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.integration.api_context import MATRIX, Desk

API = "/api/v1"
NONE = "0" * 64
ROUTES = {
    ("GET", f"{API}/runs"): "read",
    ("GET", f"{API}/runs/nope"): "read",
    ("GET", f"{API}/runs/nope/events"): "read",
    ("GET", f"{API}/runs/nope/cells/c/log"): "read",
    ("GET", f"{API}/runs/nope/cells/c/tests"): "read",
    ("GET", f"{API}/runs/nope/cells/c/artifacts/a"): "read",
    ("GET", f"{API}/runs/nope/reports/summary.md"): "read",
    ("GET", f"{API}/runs/nope/reports/cell/SUMMARY.md"): "read",
    ("GET", f"{API}/runs/nope/reports/summary/plots"): "read",
    ("GET", f"{API}/compare?base=nope&head=nope"): "read",
    ("GET", f"{API}/runs/nope/export/junit"): "read",
    ("GET", f"{API}/runs/nope/annotations"): "read",
    ("GET", f"{API}/runs/nope/slowest-tests"): "read",
    ("POST", f"{API}/runs/nope/annotations"): "run",
    ("GET", f"{API}/payloads/{NONE}"): "read",
    ("HEAD", f"{API}/payloads/{NONE}"): "read",
    ("GET", f"{API}/platforms"): "read",
    ("GET", f"{API}/schema/matrix"): "read",
    ("GET", f"{API}/schema/payload"): "read",
    ("GET", f"{API}/payload-reviews"): "read",
    ("GET", "/metrics"): "read",
    ("GET", f"{API}/failure-groups"): "read",
    ("GET", f"{API}/tests"): "read",
    ("GET", f"{API}/tests/nope/history"): "read",
    ("GET", f"{API}/benchmarks/nope/series"): "read",
    ("GET", f"{API}/aliases"): "read",
    ("POST", f"{API}/aliases"): "run",
    ("POST", f"{API}/aliases/nope/confirm"): "run",
    ("POST", f"{API}/aliases/nope/reject"): "run",
    ("POST", f"{API}/aliases/nope/undo"): "run",
    ("GET", f"{API}/known-issues"): "read",
    ("POST", f"{API}/known-issues"): "gate",
    ("POST", f"{API}/known-issues/nope/expire"): "gate",
    ("GET", f"{API}/schedules"): "read",
    ("POST", f"{API}/schedules"): "gate",
    ("GET", f"{API}/schedules/nope"): "read",
    ("PUT", f"{API}/schedules/nope"): "gate",
    ("POST", f"{API}/schedules/nope/pause"): "gate",
    ("POST", f"{API}/schedules/nope/resume"): "gate",
    ("POST", f"{API}/schedules/nope/trigger"): "run",
    ("DELETE", f"{API}/schedules/nope"): "gate",
    ("GET", f"{API}/gates"): "read",
    ("GET", f"{API}/gates/nope"): "read",
    ("PUT", f"{API}/gates/nope"): "gate",
    ("GET", f"{API}/gates/nope/policies"): "read",
    ("POST", f"{API}/gates/nope/evaluate"): "gate",
    ("POST", f"{API}/gates/nope/dry-run"): "read",
    ("GET", f"{API}/gates/nope/verdicts"): "read",
    ("GET", f"{API}/verdicts/nope"): "read",
    ("GET", f"{API}/verdicts/nope/statement"): "read",
    ("GET", f"{API}/verdicts/nope/evidence"): "read",
    ("GET", f"{API}/verdicts/nope/replay"): "read",
    ("GET", f"{API}/waivers"): "read",
    ("POST", f"{API}/waivers"): "gate",
    ("POST", f"{API}/waivers/W-0001/approve"): "gate",
    ("POST", f"{API}/payload-reviews"): "gate",
    ("GET", f"{API}/approvals?gate=nope"): "read",
    ("POST", f"{API}/approvals"): "gate",
    ("GET", f"{API}/keys"): "read",
    ("GET", f"{API}/keyring"): "read",
    ("POST", f"{API}/keys/rotate"): "admin",
    ("POST", f"{API}/keys/nope/retire"): "admin",
    ("GET", f"{API}/quarantines"): "read",
    ("GET", f"{API}/quarantines/suggestions?product=any"): "read",
    ("POST", f"{API}/quarantines"): "gate",
    ("POST", f"{API}/quarantines/nope/end"): "gate",
    ("POST", f"{API}/lint"): "read",
    ("POST", f"{API}/ingest"): "run",
    ("POST", f"{API}/plan"): "run",
    ("POST", f"{API}/runs"): "run",
    ("POST", f"{API}/runs/nope/cancel"): "run",
    ("POST", f"{API}/runs/nope/rerun"): "run",
    ("POST", f"{API}/runs/nope/rerun/plan"): "run",
    ("GET", f"{API}/runs/nope/cells/c/retests"): "read",
    ("POST", f"{API}/runs/nope/cells/c/retests"): "run",
    ("DELETE", f"{API}/runs/nope/cells/c/retests"): "run",
    ("GET", f"{API}/runs/nope/cells/c/bisect"): "read",
    ("POST", f"{API}/runs/nope/cells/c/bisect"): "run",
    ("POST", f"{API}/runs/nope/cells/c/bisect/plan"): "run",
    ("POST", f"{API}/runs/nope/confirmation-run"): "run",
    ("PUT", f"{API}/payloads/{NONE}"): "run",
    ("PUT", f"{API}/subjects/{NONE}"): "run",
    ("GET", f"{API}/channels"): "read",
    ("GET", f"{API}/channels/nope/deliveries"): "read",
    ("POST", f"{API}/channels"): "admin",
    ("POST", f"{API}/channels/nope/test"): "admin",
    ("POST", f"{API}/channels/nope/rotate"): "admin",
    ("DELETE", f"{API}/channels/nope"): "admin",
    ("GET", f"{API}/tokens"): "admin",
    ("POST", f"{API}/tokens"): "admin",
    ("DELETE", f"{API}/tokens/nope"): "admin",
    ("GET", f"{API}/sessions"): "admin",
    ("DELETE", f"{API}/sessions/nope"): "admin",
    ("GET", f"{API}/costs"): "read",
    ("GET", f"{API}/costs/prices"): "read",
    ("POST", f"{API}/costs/refresh"): "admin",
    ("GET", f"{API}/machines"): "read",
    ("POST", f"{API}/machines/terminate-all"): "admin",
    ("GET", f"{API}/audit"): "admin",
    ("GET", f"{API}/audit/export"): "admin",
    ("GET", f"{API}/audit/verification"): "admin",
    ("GET", f"{API}/prune"): "admin",
    ("POST", f"{API}/prune"): "admin",
    ("POST", f"{API}/machines/nope/a/b/terminate"): "admin",
    ("GET", f"{API}/runs/nope/cells/c/access"): "admin",
}
"""Every route that is guarded, and the scope that is just enough."""
ASKING = {("POST", f"{API}/costs/refresh"), ("GET", f"{API}/machines")}
"""These ask every cloud that is set up where the tests run: nobody comes in here."""
OPEN = {"/healthz", "/readyz"}
SCOPES = ["read", "run", "gate", "admin"]
MISSING = [
    (method, path)
    for method, path in ROUTES
    if method != "PUT" and ("nope" in path or NONE in path)
]


def refused(answer, status: int, *, head: bool = False) -> bool:
    problem = answer.headers["content-type"] == "application/problem+json"
    return answer.status_code == status and problem and (head or answer.json()["status"] == status)


def test_the_table_knows_every_route(shared_api: Desk) -> None:
    listed = {
        (method.upper(), path)
        for path, methods in shared_api.app.openapi()["paths"].items()
        for method in methods
        if path not in OPEN
    }
    assert len(listed) == len(ROUTES)


def test_without_a_token_that_stands_nobody_comes_in(shared_api: Desk) -> None:
    client = shared_api.with_token(None)
    long = "Bearer " + "x" * 10_000
    bad = cycle(("", "Bearer nonsense", "Bearer \xff", "Basic YTpi", long))
    let_in = []
    for (method, path), header in zip(ROUTES, bad, strict=False):
        for said in {"", header}:
            headers = {"Authorization": said.encode("latin-1")} if said else {}
            answer = client.request(method, path, content=b"{broken", headers=headers)
            asked = answer.headers.get("www-authenticate", "").startswith("Bearer")
            if not (asked and refused(answer, 401, head=method == "HEAD")):
                let_in.append((method, path, said[:20]))
    assert let_in == []


@pytest.mark.parametrize("scope", SCOPES)
def test_each_scope_opens_what_it_names_and_what_stands_below(shared_api: Desk, scope: str) -> None:
    client, wrong = shared_api.with_token(scope), []
    for (method, path), needed in ROUTES.items():
        may = SCOPES.index(scope) >= SCOPES.index(needed)
        if may and (method, path) in ASKING:
            continue
        answer = client.request(method, path)
        right = answer.status_code not in (401, 403, 500) if may else refused(answer, 403)
        if not right:
            wrong.append((method, path, answer.status_code))
    assert wrong == []


def test_what_is_not_there_is_not_found(shared_api: Desk) -> None:
    headers = {"Idempotency-Key": "k"}
    found = [
        (method, path)
        for method, path in MISSING
        if not refused(
            shared_api.client.request(method, path, headers=headers), 404, head=method == "HEAD"
        )
    ]
    assert found == []


def test_an_expired_and_a_revoked_token_do_not_stand(api: Desk) -> None:
    client = api.with_token("admin")
    assert client.get(f"{API}/runs").status_code == 200
    api.clock.move(days=1)
    assert client.get(f"{API}/runs").status_code == 401
    other = api.with_token("admin")
    *_, mine = other.get(f"{API}/tokens").json()["items"]
    assert other.delete(f"{API}/tokens/{mine['id']}").status_code == 204
    assert other.get(f"{API}/runs").status_code == 401


def test_health_and_documentation_need_no_token(shared_api: Desk) -> None:
    client = shared_api.with_token(None)
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json", "/docs/static/docs.js"):
        assert client.get(path).status_code == 200, path


def test_another_host_is_refused_on_a_port_and_ignored_on_the_socket(shared_api: Desk) -> None:
    client = shared_api.with_token("admin")
    for path in ("/healthz", "/docs", "/openapi.json", f"{API}/runs", "/nope"):
        answer = client.get(path, headers={"Host": "evil.example"})
        assert refused(answer, 400), path
        assert "evil.example" in answer.json()["detail"]
        allowed = client.get(path, headers={"Host": "trials.example:8470"})
        assert allowed.status_code != 400, path
        open_to_all = shared_api.client.get(path, headers={"Host": "evil.example"})
        assert open_to_all.status_code != 400, path


def test_a_token_is_shown_once_and_kept_as_a_digest(api: Desk) -> None:
    made = api.client.post(f"{API}/tokens", json={"name": "ci", "scope": "run", "days": 7})
    assert made.status_code == 201
    token = made.json()
    assert token["secret"].startswith("seatrial_")
    assert token["expires_at"] == "2026-03-08T12:00:00Z"
    listed = api.client.get(f"{API}/tokens").json()["items"]
    assert [item["id"] for item in listed] == [token["id"]]
    assert listed[0]["prefix"] == token["secret"][: len("seatrial_") + 4]
    assert token["secret"] not in api.client.get(f"{API}/tokens").text
    headers = {"Authorization": f"Bearer {token['secret']}"}
    guest = api.speak(api.guarded, headers=headers)
    assert guest.post(f"{API}/plan", json={"matrix": MATRIX}).status_code == 200
    assert api.client.delete(f"{API}/tokens/{token['id']}").status_code == 204
    assert guest.post(f"{API}/plan", json={"matrix": MATRIX}).status_code == 401
    assert api.client.delete(f"{API}/tokens/{token['id']}").status_code == 204


def test_a_bad_token_is_not_made(api: Desk) -> None:
    for body, pointer in (
        ({"scope": "read"}, "/name"),
        ({"name": "", "scope": "read"}, "/name"),
        ({"name": "a\x00b", "scope": "read"}, "/name"),
        ({"name": "n", "scope": "root"}, "/scope"),
        ({"name": "n", "scope": "read", "days": 0}, "/days"),
        ({"name": "n", "scope": "read", "days": 10**20}, "/days"),
    ):
        answer = api.client.post(f"{API}/tokens", json=body)
        assert answer.status_code == 422, body
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert api.client.get(f"{API}/tokens").json() == {"items": [], "next": None}


def test_a_body_that_is_too_large_is_not_read_by_strangers(api: Desk) -> None:
    body = b'{"matrix": "' + b"x" * 2_000_000 + b'"}'
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    for client, status in ((api.with_token(None), 401), (api.with_token("run"), 413)):
        answer = client.post(f"{API}/runs", content=body, headers=headers)
        assert refused(answer, status)
