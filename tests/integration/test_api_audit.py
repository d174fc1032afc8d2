"""The audit log: each call that changes something has an entry, and none can be changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import text

from orchestrator.api.audit_calls import CHANGES_NOTHING, REFUSED_A_MINUTE, AuditCalls
from orchestrator.dashboard import urls
from orchestrator.dashboard.app import create_dashboard
from orchestrator.domain.audit import AuditFilters
from orchestrator.store.errors import StoreError
from tests.integration.api_context import MATRIX, Desk, desk, served
from tests.integration.gate_world import POLICY
from tests.integration.test_api_quarantines import BODY as QUARANTINE
from tests.integration.test_api_quarantines import BOOM, TEST, ran

API = "/api/v1"
SCHEDULE = {"name": "nightly", "cron": "0 2 * * *", "tz": "Europe/Berlin", "matrix": MATRIX}
CHANNEL = {
    "name": "room",
    "kind": "slack",
    "target": "https://hooks.slack.com/services/T000/B000/canary-of-slack",
}

HOOK = {"name": "hook", "kind": "webhook", "target": "https://example.org/hook"}


def entries(api: Desk, **asked: object) -> list[dict[str, Any]]:
    """The newest first."""
    answer = api.client.get(f"{API}/audit", params={"limit": 200, **asked})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def mutating(api: Desk) -> list[tuple[str, str, str]]:
    """Method, path and operation id of every operation that is not sent as GET or HEAD."""
    return [
        (method.upper(), path, operation["operationId"])
        for path, methods in api.app.openapi()["paths"].items()
        for method, operation in methods.items()
        if method not in ("get", "head")
    ]


def routes_below(router: FastAPI | APIRouter) -> Iterator[APIRoute]:
    for one in router.routes:
        if isinstance(one, APIRoute):
            yield one
        elif hasattr(one, "original_router"):
            yield from routes_below(one.original_router)


def filled(path: str) -> str:
    return path.replace("{sha256}", "0" * 64).replace("{", "").replace("}", "")


def shape(resource: str) -> tuple[str, int]:
    """What a resource is of, and how many names follow."""
    kind, *names = resource.split("/")
    return kind, len(names)


def test_every_operation_that_changes_something_has_an_entry_when_it_is_refused(api: Desk) -> None:
    guest = api.with_token("read", name="a guest")
    for method, path, operation in mutating(api):
        answer = guest.request(method, filled(path), headers={"User-Agent": "curl/8"})
        if operation in CHANGES_NOTHING or answer.status_code != 403:
            assert operation in CHANGES_NOTHING, (operation, answer.status_code)
            continue
        entry = entries(api)[0]
        assert (entry["operation"], entry["outcome"], entry["status"]) == (
            operation,
            "refused",
            403,
        )
        assert (entry["actor"], entry["agent"]) == ("a guest", "curl/8")
        assert "the token 'a guest' has read" in str(entry["reason"])
        assert entry["resource"]
        assert "{" not in str(entry["resource"])
    assert {one["operation"] for one in entries(api)} == {
        operation for *_, operation in mutating(api) if operation not in CHANGES_NOTHING
    }


def test_every_form_of_the_pages_has_an_entry_when_it_is_refused(api: Desk) -> None:
    dashboard = create_dashboard(api.context)
    pages = api.speak(AuditCalls(dashboard, context=api.context, resources=urls.RESOURCES))
    pages.headers["Authorization"] = api.with_token("read", name="a guest").headers["Authorization"]
    forms = [(one.path, one.name) for one in routes_below(dashboard) if "POST" in one.methods]
    assert len(forms) > 20
    guest = api.with_token("read", name="a guest")
    for method, path, _ in mutating(api):
        guest.request(method, filled(path))
    known = {shape(one["resource"]) for one in entries(api)}
    for path, operation in forms:
        answer = pages.post(filled(path).replace(":path", ""))
        if operation not in ("sign_in", "sign_out", *CHANGES_NOTHING):
            assert answer.status_code == 403, (path, answer.status_code)
            entry = entries(api)[0]
            assert (entry["operation"], entry["outcome"]) == (operation, "refused")
            assert entry["actor"] == "a guest"
            assert shape(entry["resource"]) in known, (path, entry["resource"])


def as_ada(api: Desk) -> Callable[..., dict[str, Any]]:
    """Sends requests that succeed, as an administrator."""
    client = api.with_token("admin", name="Ada")
    client.headers["User-Agent"] = "seatrial/test"

    def sent(method: str, path: str, **more: object) -> dict[str, Any]:
        answer = client.request(method, f"{API}{path}", **more)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else {}

    return sent


def test_an_entry_has_what_was_before_and_after(api: Desk) -> None:
    sent = as_ada(api)
    sent("PUT", "/gates/release", json={"policy": POLICY})
    sent("POST", "/schedules", json=SCHEDULE)
    sent("PUT", "/schedules/nightly", json={**SCHEDULE, "cron": "0 3 * * *"})
    sent("POST", "/schedules/nightly/pause")
    sent("DELETE", "/schedules/nightly")
    found = entries(api)[::-1]
    assert {one["resource"] for one in found[:-4]} >= {"gates/release"}
    added, replaced, paused, removed = found[-4:]
    assert [(one["operation"], one["resource"]) for one in found[-4:]] == [
        ("add_schedule", "schedules/nightly"),
        ("replace_schedule", "schedules/nightly"),
        ("pause_schedule", "schedules/nightly"),
        ("remove_schedule", "schedules/nightly"),
    ]
    assert {(one["actor"], one["agent"], one["outcome"]) for one in found} == {
        ("Ada", "seatrial/test", "done")
    }
    assert added["before"] is None
    assert added["after"]["document"]["cron"] == "0 2 * * *"
    assert replaced["before"]["document"]["cron"] == "0 2 * * *"
    assert replaced["after"]["document"]["cron"] == "0 3 * * *"
    assert paused["before"]["document"]["paused_at"] is None
    assert paused["after"]["document"]["paused_at"]
    assert removed["before"] == paused["after"]
    assert removed["after"] is None


def test_a_quarantine_has_entries_with_its_product(api: Desk) -> None:
    ran(api, "one", {TEST: BOOM})
    sent = as_ada(api)
    one = sent("POST", "/quarantines", json=QUARANTINE)
    sent("POST", f"/quarantines/{one['id']}/end")
    ended, made = entries(api, resource=f"quarantines/{one['id']}")
    assert (made["operation"], ended["operation"]) == ("create_quarantine", "end_one_quarantine")
    assert ended["before"]["document"]["ended_at"] is None
    assert ended["after"]["document"]["ended_by"] == "Ada"
    assert ended["product"] == "proof"


def test_no_entry_has_a_secret(api: Desk) -> None:
    sent = as_ada(api)
    slack = sent("POST", "/channels", json=CHANNEL)
    hook = sent("POST", "/channels", json=HOOK)
    renewed = sent("POST", "/channels/hook/rotate", json={"overlap_hours": 1})
    token = sent("POST", "/tokens", json={"name": "ci", "scope": "run"})
    sent("DELETE", f"/tokens/{token['id']}")
    revoked, made, rotated, *_ = entries(api)
    assert made["after"]["name"] == "ci"
    assert (revoked["before"]["revoked_at"], bool(revoked["after"]["revoked_at"])) == (None, True)
    assert len(rotated["before"]["channel"]["secrets"]) == 1
    assert len(rotated["after"]["channel"]["secrets"]) == 2
    log = api.client.get(f"{API}/audit/export").text
    assert slack["id"] in log
    digest = hashlib.sha256(token["secret"].encode()).hexdigest()
    for secret in (token["secret"], digest, "canary-of-slack", hook["secret"], renewed["secret"]):
        assert secret not in log


def test_a_machine_s_end_and_a_prune_have_entries(api: Desk) -> None:
    client = api.with_token("admin", name="Ada")
    assert client.post(f"{API}/prune", json={}).status_code == 200
    newest = entries(api)[0]
    assert (newest["operation"], newest["resource"]) == ("prune_now", "prune")
    assert newest["after"]["rows"] == 0
    refused = client.post(f"{API}/machines/fake/nope/terminate")
    assert refused.status_code == 404
    assert entries(api)[0] == newest, "what is not there was not changed"


def test_a_launch_and_a_cancel_are_written_with_the_run(api: Desk) -> None:
    run = api.launch()
    entry = entries(api, resource="runs")[0]
    assert (entry["operation"], entry["resource"]) == ("launch", f"runs/{run['id']}")
    assert (entry["actor"], entry["token"], entry["address"]) == (
        "operator",
        "socket",
        "testclient",
    )
    assert entry["product"] == "proof"
    assert api.client.post(f"{API}/runs/{run['id']}/cancel").status_code == 202
    cancelled = entries(api)[0]
    assert cancelled["before"]["cancel_requested_at"] is None
    assert cancelled["after"]["cancel_requested_at"] == "2026-03-01T12:00:00Z"


def test_pages_filters_and_the_export_agree(api: Desk) -> None:
    ada = api.with_token("admin", name="Ada")
    for number in range(7):
        created = api.client.post(f"{API}/tokens", json={"name": f"n{number}", "scope": "read"})
        assert created.status_code == 201
        api.clock.move(minutes=1)
    since = api.clock.now().isoformat()
    ada.post(f"{API}/tokens", json={"name": "last", "scope": "read"})
    first = api.client.get(f"{API}/audit", params={"limit": 5}).json()
    rest = api.client.get(f"{API}/audit", params={"limit": 5, "before": first["next"]}).json()
    numbers = [one["number"] for one in (*first["items"], *rest["items"])]
    assert numbers == [8, 7, 6, 5, 4, 3, 2, 1]
    assert rest["next"] is None
    assert [one["number"] for one in entries(api, actor="Ada")] == [8]
    assert [one["number"] for one in entries(api, since=since)] == [8]
    assert entries(api, resource="token") == []
    assert len(entries(api, resource="tokens")) == 8
    lines = api.client.get(f"{API}/audit/export").text.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8]
    previous = "0" * 64
    for line in lines:
        entry = json.loads(line)
        digest = entry.pop("digest")
        assert entry["previous"] == previous
        assert hashlib.sha256(json.dumps(entry, ensure_ascii=False).encode()).hexdigest() == digest
        previous = digest
    assert api.client.get(f"{API}/audit/verification").json() == {
        "entries": 8,
        "head": previous,
        "broken_at": None,
        "reason": "",
    }


def test_unknown_callers_cannot_fill_the_disk(api: Desk) -> None:
    stranger = api.with_token(None)
    for _ in range(REFUSED_A_MINUTE + 5):
        assert stranger.post(f"{API}/tokens").status_code == 401
    found = entries(api)
    assert len(found) == REFUSED_A_MINUTE
    assert (found[0]["actor"], found[0]["status"]) == ("", 401)
    api.clock.move(minutes=1)
    stranger.post(f"{API}/tokens")
    assert len(entries(api)) == REFUSED_A_MINUTE + 1


def test_a_token_that_may_only_read_cannot_fill_the_disk(api: Desk) -> None:
    guest, other = api.with_token("read", name="guest"), api.with_token("read", name="other")
    for _ in range(REFUSED_A_MINUTE + 5):
        assert guest.post(f"{API}/tokens").status_code == 403
    assert len(entries(api, actor="guest")) == REFUSED_A_MINUTE
    other.post(f"{API}/tokens")
    assert len(entries(api, actor="other")) == 1, "each caller has a limit of their own"
    api.clock.move(minutes=1)
    guest.post(f"{API}/tokens")
    assert len(entries(api, actor="guest")) == REFUSED_A_MINUTE + 1


def test_the_address_of_an_entry_is_not_the_client_s_to_choose(api: Desk) -> None:
    with served(api.guarded) as port:
        headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
        httpx.post(f"http://127.0.0.1:{port}{API}/tokens", headers=headers, json={}, timeout=60)
    assert entries(api)[0]["address"] == "127.0.0.1"


@pytest.fixture
def logged(database_url, tmp_path):
    """Either database, with five entries."""
    with desk(tmp_path, database_url) as opened:
        for number in range(5):
            body = {"name": f"n{number}", "scope": "read"}
            assert opened.client.post(f"{API}/tokens", json=body).status_code == 201
        yield opened


def run_sql(api: Desk, *statements: str) -> None:
    with api.database.sessions.write() as session:
        for statement in statements:
            session.execute(text(statement))


def test_the_chain_holds_where_many_write_at_once(logged: Desk) -> None:
    def write(number: int) -> int:
        body = {"name": f"thread {number}", "scope": "read"}
        return int(logged.client.post(f"{API}/tokens", json=body).status_code)

    assert logged.client
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(write, range(40))) == {201}
    found = logged.context.stores.audit.verify()
    assert (found.entries, found.broken_at) == (45, None)


_COLUMNS = "number, at, actor, resource, document, digest"


@pytest.mark.parametrize(
    "columns",
    [
        "number, at, 'somebody', resource, document, digest, rowid + 1000",
        "number + 1000, at, 'somebody', resource, document, digest, rowid + 1000",
        "number + 1000, at, 'somebody', resource, document, digest || 'x', rowid",
    ],
)
def test_sqlite_replaces_no_entry(api: Desk, columns: str) -> None:
    for number in range(3):
        body = {"name": f"n{number}", "scope": "read"}
        assert api.client.post(f"{API}/tokens", json=body).status_code == 201
    statement = (
        f"INSERT OR REPLACE INTO audit_entry ({_COLUMNS}, rowid)"
        f" SELECT {columns} FROM audit_entry WHERE number = 2"
    )
    with pytest.raises(StoreError, match="append-only"):
        run_sql(api, statement)
    found = api.context.stores.audit.verify()
    assert (found.entries, found.broken_at) == (3, None)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET actor = 'somebody' WHERE number = 2",
        "DELETE FROM audit_entry WHERE number = 2",
        *(
            f"INSERT INTO audit_entry ({_COLUMNS}) SELECT {_COLUMNS} FROM audit_entry"
            f" WHERE number = 2 ON CONFLICT ({key}) DO UPDATE SET actor = 'somebody'"
            for key in ("number", "digest")
        ),
    ],
)
def test_the_database_refuses_to_change_an_entry(logged: Desk, statement: str) -> None:
    with pytest.raises(StoreError, match="append-only"):
        run_sql(logged, statement)
    assert logged.context.stores.audit.verify().broken_at is None


@pytest.mark.parametrize(
    ("statement", "broken_at", "reason"),
    [
        ("UPDATE audit_entry SET actor = 'somebody' WHERE number = 2", 2, "its columns"),
        ("DELETE FROM audit_entry WHERE number = 3", 3, "is missing"),
        ("DELETE FROM audit_entry WHERE number = 1", 1, "is missing"),
        (
            "UPDATE audit_entry SET document = replace(document, 'n3', 'nX') WHERE number = 4",
            4,
            "its digest is another",
        ),
    ],
)
def test_verification_says_where_the_chain_is_broken(
    logged: Desk, statement: str, broken_at: int, reason: str
) -> None:
    postgres = logged.database.sessions.is_postgres
    if postgres:
        run_sql(logged, "SET LOCAL session_replication_role = replica", statement)
    else:
        kind = statement.split()[0].lower()
        run_sql(logged, f"DROP TRIGGER audit_entry_no_{kind}", statement)
    found = logged.context.stores.audit.verify()
    assert found.broken_at == broken_at
    assert reason in found.reason


def test_an_entry_that_was_written_anew_with_its_digest_breaks_the_next_one(logged: Desk) -> None:
    rows = list(logged.context.stores.audit.lines(AuditFilters()))
    entry = json.loads(rows[1])
    del entry["digest"]
    forged = json.dumps({**entry, "actor": "somebody"}, ensure_ascii=False)
    digest = hashlib.sha256(forged.encode()).hexdigest()
    change = (
        f"UPDATE audit_entry SET document = '{forged}', digest = '{digest}', actor = 'somebody'"
        " WHERE number = 2"
    ).replace(":", "\\:")
    if logged.database.sessions.is_postgres:
        run_sql(logged, "SET LOCAL session_replication_role = replica", change)
    else:
        run_sql(logged, "DROP TRIGGER audit_entry_no_update", change)
    found = logged.context.stores.audit.verify()
    assert (found.broken_at, found.entries) == (3, 2)
    assert "the entry before it" in found.reason
