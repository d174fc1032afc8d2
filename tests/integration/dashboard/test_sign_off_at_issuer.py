"""Who signs where people sign in at an issuer: only accounts of the issuer approve."""

from __future__ import annotations

from orchestrator.api.app import create_app
from orchestrator.api.audit_calls import AuditCalls
from orchestrator.api.security import token_guard
from orchestrator.application.tokens import create_token
from orchestrator.domain.caller_identity import Scope
from tests.integration.dashboard.desk import HOST
from tests.integration.dashboard.issuer_door import Door
from tests.integration.dashboard.shown import read_page
from tests.integration.gate_world import check, put, ran
from tests.integration.test_api_gate_signoff import FAILS, WAIVER

WAIVER_FORM = {name: str(WAIVER[name]) for name in ("rule", "reason", "days")}


def test_a_person_signs_as_issuer_and_subject_whatever_they_are_called(door: Door) -> None:
    run = ran(door.api, tests=FAILS)
    put(door.api)
    check(door.api, "before", runs=[run])
    ana, other = (f"{door.issuer.url}#{subject}" for subject in ("ana", "other"))
    door.issuer.subject = "ana"
    door.sign_in()
    posted(door, "/gates/release/waivers", **WAIVER_FORM)
    [asked] = door.api.client.get("/api/v1/waivers").json()["items"]
    assert asked["author"] == ana

    door.issuer.name = "Somebody else"  # who can change that, is still who they are
    door.client.cookies.clear()
    door.sign_in()
    approve = f"/gates/release/waivers/{asked['id']}/approve"
    assert "cannot approve it" in posted(door, approve, status=422)
    token = door.api.with_token("gate", name=ana)
    refused = token.post(f"/api/v1/waivers/{asked['id']}/approve")
    assert refused.status_code == 422

    door.issuer.subject = "other"  # another account with the same display name
    door.client.cookies.clear()
    door.sign_in()
    posted(door, approve)
    [approved] = door.api.client.get("/api/v1/waivers").json()["items"]
    sessions = {one.id: one.name for one in door.api.database.stores.browser_sessions.list()}
    assert approved["approver"] == sessions[approved["approver_token"]] == other
    verdict = check(door.api, "after", runs=[run])
    assert verdict["decision"] == "PASS_WITH_EXCEPTIONS"
    [row] = read_page(door.client.get("/gates/release").text).rows("waivers")
    assert row["Requested by"] == f"{ana} Somebody else"
    assert row["Approved by"] == f"{other} Somebody else"


def test_where_there_is_an_issuer_no_token_approves(door: Door) -> None:
    """Otherwise a person could approve their own request with a token of another name."""
    run = ran(door.api, tests=FAILS)
    put(door.api)
    check(door.api, "before", runs=[run])
    door.sign_in()
    posted(door, "/gates/release/waivers", **WAIVER_FORM)
    [asked] = door.api.client.get("/api/v1/waivers").json()["items"]
    rest = door.api.speak(AuditCalls(create_app(door.context, guard=None), context=door.context))
    _, named = create_token(door.context, f"{door.issuer.url}#other", Scope.GATE, days=1)
    guarded = create_app(door.context, guard=token_guard(door.context))
    token = door.api.speak(guarded, headers={"Authorization": f"Bearer {named}"})
    page = f"https://{HOST}/gates/release"
    assert rest.get("/api/v1/waivers").json()["items"][0]["approval_page"] == page
    for client, body in (
        (rest, None),
        (rest, {"gate": "release"}),
        (token, None),
        (token, {"gate": "release"}),
    ):
        path = "approvals" if body else f"waivers/{asked['id']}/approve"
        answer = client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 422
        assert f"did not sign in at the issuer {door.issuer.url}" in answer.text
        if client is token:
            continue
        entry = door.api.with_token("admin").get("/api/v1/audit").json()["items"][0]
        assert (entry["outcome"], entry["status"]) == ("refused", 422)
    assert (
        door.api.client.get("/api/v1/approvals", params={"gate": "release"}).json()["items"] == []
    )
    [waiver] = door.api.client.get("/api/v1/waivers").json()["items"]
    assert waiver["approver"] == ""


def test_the_gate_s_page_offers_no_approval_to_a_token(door: Door) -> None:
    """The buttons are for those whose approval is taken; the others read where to sign in."""
    put(door.api)
    check(door.api, "before", runs=[ran(door.api, tests=FAILS)])
    door.sign_in()
    posted(door, "/gates/release/waivers", **WAIVER_FORM)
    [asked] = door.api.client.get("/api/v1/waivers").json()["items"]
    forms = [f"/gates/release/waivers/{asked['id']}/approve", "/gates/release/approvals"]
    door.client.cookies.clear()
    door.issuer.subject = "other"
    door.sign_in()
    shown = read_page(door.client.get("/gates/release").text)
    assert all(shown.all("form", action=one) for one in forms)
    assert "with a token of their own" not in shown.text

    door.client.cookies.clear()
    _, secret = create_token(door.context, "a robot", Scope.ADMIN, days=1)
    door.client.post("/login", data={"token": secret})
    shown = read_page(door.client.get("/gates/release").text)
    assert not any(shown.all("form", action=one) for one in forms)
    assert f"Only people who sign in at {door.provider.host} approve" in shown.text
    refused = posted(door, forms[1], status=422, verdict="V-0001")
    assert "did not sign in at the issuer" in refused
    entry = door.api.with_token("admin").get("/api/v1/audit").json()["items"][0]
    assert (entry["operation"], entry["outcome"]) == ("add_approval", "refused")


def test_one_s_own_waiver_leaves_an_entry_of_its_refusal(door: Door) -> None:
    run = ran(door.api, tests=FAILS)
    put(door.api)
    check(door.api, "before", runs=[run])
    door.sign_in()
    posted(door, "/gates/release/waivers", **WAIVER_FORM)
    [asked] = door.api.client.get("/api/v1/waivers").json()["items"]
    posted(door, f"/gates/release/waivers/{asked['id']}/approve", status=422)
    entry = door.api.with_token("admin").get("/api/v1/audit").json()["items"][0]
    assert (entry["operation"], entry["outcome"]) == ("approve_one_waiver", "refused")
    assert (entry["actor"], entry["status"]) == (asked["author"], 422)
    assert f"asked for {asked['id']} and cannot approve it" in entry["reason"]


def posted(door: Door, path: str, *, status: int = 303, **fields: object) -> str:
    page = read_page(door.client.get("/gates/release").text)
    csrf = page.all("input", name="csrf")[0]["value"]
    answer = door.client.post(path, data={"csrf": csrf, **fields})
    assert answer.status_code == status, answer.text
    return answer.text
