"""Signing in at an OpenID Connect issuer: a response counts only where all of it is right."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from orchestrator.adapters.openid_connect import CLOCK_SKEW_S, OpenIdConnect
from orchestrator.application.browser_sessions import cookie_of, list_sessions
from orchestrator.application.context import SignInPorts
from orchestrator.application.ports.identity_provider import (
    AuthorizationRequest,
    IssuedIdentity,
    IssuerUnreachableError,
)
from orchestrator.application.tokens import Credential, check_credential, create_token
from orchestrator.bootstrap.projects import PortApplications
from orchestrator.domain.audit import AuditFilters
from orchestrator.domain.caller_identity import Scope
from tests.integration.api_context import Slots
from tests.integration.dashboard.desk import HOST, dashboard
from tests.integration.dashboard.issuer_door import CALLBACK, PUBLIC, Door
from tests.integration.dashboard.shown import read_page
from tests.integration.project_worlds import two_projects
from tests.oidc_issuer import CLIENT


def test_a_person_signs_in_with_the_role_of_their_group(door: Door) -> None:
    page = read_page(door.client.get("/login?next=/gates").text)
    assert page.one("a", href="/login/oidc?next=%2Fgates").text == "Sign in with 127.0.0.1"
    answer = door.sign_in("/gates?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/gates?x=1")
    cookies = answer.headers.get_list("set-cookie")
    [session] = [one for one in cookies if one.startswith(f"{cookie_of(HOST)}=")]
    for word in ("HttpOnly", "SameSite=lax", "Secure", "Max-Age=28800"):
        assert word in session
    assert door.client.get("/gates").status_code == 200
    [stored] = door.api.database.stores.browser_sessions.list()
    assert (stored.name, stored.scope) == (f"{door.issuer.url}#248289761001", Scope.GATE)
    assert (stored.display_name, stored.token) == ("Ana Lee", None)
    shown = read_page(door.client.get("/gates").text)
    assert shown.one("button", title="Signed in as Ana Lee").text == "Sign out"


def test_the_request_is_for_a_code_with_pkce_state_and_nonce(door: Door) -> None:
    first, second = (parse_qs(urlsplit(door.begin()).query) for _ in range(2))
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) >= 43
        assert first[name] != second[name]
    assert first["code_challenge_method"] == ["S256"]
    assert first["response_type"] == ["code"]
    assert first["redirect_uri"] == [f"https://{HOST}{CALLBACK}"]


@pytest.mark.parametrize(
    ("groups", "scope"),
    [
        (["dev"], Scope.RUN),
        (["dev", "release-managers", "others"], Scope.GATE),
        (["sre", "dev"], Scope.ADMIN),
        ("dev", Scope.RUN),
    ],
)
def test_the_highest_role_of_all_groups_counts(door: Door, groups: Any, scope: Scope) -> None:
    door.issuer.groups = groups
    assert door.sign_in().status_code == 303
    assert [one.scope for one in door.api.database.stores.browser_sessions.list()] == [scope]


@pytest.mark.parametrize("groups", [[], ["Dev"], ["dev "], [{"name": "sre"}], {"sre": 1}, None, 7])
def test_without_a_group_that_has_a_role_nobody_gets_in(door: Door, groups: Any) -> None:
    door.issuer.claims = {"groups": groups}
    door.refused("is in no group that has a role here")


# What the issuer says


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "another"}, "aud"),
        ({"aud": ["another", "more"]}, "aud"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"iss": "https://login.evil.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": None}, "aud"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a" * 200}, "at most 200 printable ASCII"),
        ({"sub": "ünï"}, "printable ASCII"),
        ({"nonce": "of another request"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"at_hash": "of another token"}, "at_hash"),
        ({"exp": "tomorrow"}, "exp"),
    ],
)
def test_a_claim_that_is_not_right_is_refused(door: Door, claims: dict[str, Any], why: str) -> None:
    door.issuer.claims = claims
    door.refused(why)


@pytest.mark.parametrize(
    ("name", "seconds", "is_taken"),
    [
        ("exp", -(CLOCK_SKEW_S - 10), True),
        ("exp", -(CLOCK_SKEW_S + 10), False),
        ("nbf", CLOCK_SKEW_S - 10, True),
        ("nbf", CLOCK_SKEW_S + 10, False),
        ("iat", CLOCK_SKEW_S - 10, True),
        ("iat", CLOCK_SKEW_S + 10, False),
    ],
)
def test_clocks_may_differ_by_a_minute_and_no_more(
    door: Door, name: str, seconds: int, is_taken: bool
) -> None:
    door.issuer.claims = {name: int(time.time()) + seconds}
    if is_taken:
        assert door.sign_in().status_code == 303
    else:
        door.refused("not valid")


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_only_a_signature_with_the_issuers_key_counts(door: Door, algorithm: str) -> None:
    door.issuer.algorithm = algorithm
    door.refused("not valid")


def test_a_token_signed_by_another_key_of_the_same_id_is_refused(door: Door) -> None:
    assert door.sign_in().status_code == 303
    door.client.cookies.clear()
    for one in door.api.database.stores.browser_sessions.list():
        door.api.database.stores.browser_sessions.end(one.id)
    kid = door.issuer.keys[0].kid
    door.issuer.rotate()
    door.issuer.keys[0] = type(door.issuer.keys[0]).import_key(
        door.issuer.keys[0].as_dict(private=True) | {"kid": kid}
    )
    door.refused("not valid")


# Keys


def test_a_rotated_key_is_fetched_and_at_most_twice_a_minute(door: Door) -> None:
    assert door.sign_in().status_code == 303
    door.issuer.rotate()
    door.clock.moved = timedelta(seconds=31)
    assert door.sign_in().status_code == 303
    door.issuer.rotate()  # within half a minute: the issuer is not asked for each bad token
    asked = door.issuer.asked.count("/keys")
    assert door.sign_in().status_code == 401
    assert door.sign_in().status_code == 401
    assert door.issuer.asked.count("/keys") == asked == 2
    door.clock.moved = timedelta(seconds=62)
    door.issuer.skew_s = 62
    assert door.sign_in().status_code == 303


def test_metadata_and_keys_are_fetched_once_for_many_sign_ins(door: Door) -> None:
    for _ in range(3):
        assert door.sign_in().status_code == 303
    assert door.issuer.asked.count("/keys") == 1
    assert door.issuer.asked.count("/.well-known/openid-configuration") == 1


def test_a_key_that_was_withdrawn_is_not_believed_for_ever(door: Door) -> None:
    assert door.sign_in().status_code == 303
    door.clock.moved = timedelta(seconds=601)
    door.issuer.skew_s = 601
    assert door.sign_in().status_code == 303
    assert door.issuer.asked.count("/keys") == 2


# The response


def test_a_response_counts_once_and_for_the_browser_that_asked(door: Door) -> None:
    address = door.agree(door.begin())
    kept = dict(door.client.cookies)
    assert door.client.get(address).status_code == 303
    again = door.client.get(address)
    assert (again.status_code, "Begin it again" in again.text) == (401, True)
    door.client.cookies.clear()
    for name, value in kept.items():
        door.client.cookies.set(name, value)
    replayed = door.client.get(address)
    assert "was used already" in read_page(replayed.text).one(id="refused").text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("state=", "state=x"), "not to a request of this browser"),
        (("state=", "other="), "not to a request of this browser"),
        (("iss=http", "iss=https"), "of another issuer"),
        (("code=", "code=x"), "invalid_grant"),
        (("code=", "error=access_denied&error_description=<b>no</b>&c="), "access_denied: <b>no"),
    ],
)
def test_a_response_that_was_changed_is_refused(
    door: Door, change: tuple[str, str], why: str
) -> None:
    address = door.agree(door.begin()).replace(*change)
    answer = door.client.get(address)
    assert answer.status_code == 401
    assert why in read_page(answer.text).one(id="refused").text
    assert cookie_of(HOST) not in door.client.cookies


def test_a_response_names_the_issuer_where_its_metadata_says_so(door: Door) -> None:
    address = door.agree(door.begin()).replace("iss=", "other=")
    assert door.client.get(address).status_code == 303
    door.client.cookies.clear()
    door.issuer.metadata = {"authorization_response_iss_parameter_supported": True}
    door.clock.moved = timedelta(seconds=601)
    door.issuer.skew_s = 601
    for said in ("code=", "error=x&c="):
        address = door.agree(door.begin())
        answer = door.client.get(address.replace("iss=", "other=").replace("code=", said))
        assert "does not name its issuer" in read_page(answer.text).one(id="refused").text
    assert cookie_of(HOST) not in door.client.cookies
    assert door.sign_in().status_code == 303


@pytest.mark.parametrize("kept", ["", "x", "e30=", "bnVsbA==", "\u007f", "W10="])
def test_a_response_without_a_request_is_refused(door: Door, kept: str) -> None:
    address = door.agree(door.begin())
    door.client.cookies.clear()
    headers = {"Cookie": f"{cookie_of(HOST)}_sign_in={kept}"} if kept else {}
    assert door.client.get(address, headers=headers).status_code == 401


def test_signing_in_leads_nowhere_else(door: Door) -> None:
    for after in ("https://evil.example/", "//evil.example", "/\\evil.example", ""):
        assert door.sign_in(after).headers["location"] == "/"


def test_from_another_name_of_the_host_the_public_address_comes_first(door: Door) -> None:
    answer = door.client.get("/login/oidc?next=/runs", headers={"Host": "127.0.0.1:8470"})
    assert answer.headers["location"] == f"https://{HOST}/login/oidc?next=%2Fruns"
    assert "set-cookie" not in answer.headers


# The issuer's trouble


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://login.evil.example"},
        {"token_endpoint": "http://login.evil.example/token"},
        {"jwks_uri": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
def test_metadata_that_cannot_be_right_is_not_used(door: Door, metadata: dict[str, Any]) -> None:
    door.issuer.metadata = metadata
    answer = door.client.get("/login/oidc")
    assert answer.status_code == 502
    assert "the controller's log says why" in read_page(answer.text).one(id="refused").text


def test_an_issuer_that_is_not_there_leaves_tokens_working(door: Door) -> None:
    door.provider._settings = replace(door.provider._settings, issuer="http://127.0.0.1:9")
    assert door.client.get("/login/oidc").status_code == 502
    _, secret = create_token(door.api.context, "mine", Scope.READ, days=1)
    assert door.client.post("/login", data={"token": secret}).status_code == 303


def test_an_issuer_that_does_not_answer_stops_no_page(door: Door) -> None:
    """Many strangers begin a sign-in at once; the threads that answer pages stay free."""
    _, secret = create_token(door.api.context, "mine", Scope.READ, days=1)

    async def look() -> int:
        silent = Silent(asyncio.get_running_loop())
        ports = SignInPorts(issuer=silent, public_url=PUBLIC)
        context = replace(door.api.context, sign_in=ports)
        app = httpx.ASGITransport(dashboard(context))
        async with httpx.AsyncClient(transport=app, base_url=PUBLIC) as client:
            strangers = [asyncio.create_task(client.get("/login/oidc")) for _ in range(100)]
            try:
                async with asyncio.timeout(60):
                    await silent.is_asked.wait()
                    headers = {"Authorization": f"Bearer {secret}"}
                    answer = await client.get("/gates", headers=headers)
            finally:
                silent.may_answer.set()
            assert {one.status_code for one in await asyncio.gather(*strangers)} == {502}
            return answer.status_code

    assert asyncio.run(look()) == 200


class Silent:
    """An issuer that answers when it is told to."""

    issuer = "https://silent.example"
    host = "silent.example"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_asked = asyncio.Event()
        self.may_answer = threading.Event()

    def authorize(self) -> AuthorizationRequest:
        self.loop.call_soon_threadsafe(self.is_asked.set)
        assert self.may_answer.wait(120)
        raise IssuerUnreachableError("it has gone")

    def identify(self, response_url: str, **kept: str) -> IssuedIdentity:
        raise NotImplementedError

    def logout_url(self, id_token: str) -> str | None:
        raise NotImplementedError


def test_an_issuer_that_failed_is_not_asked_again_at_once(door: Door) -> None:
    door.issuer.metadata = {"issuer": "https://login.evil.example"}
    for _ in range(3):
        assert door.client.get("/login/oidc").status_code == 502
    assert door.issuer.asked.count("/.well-known/openid-configuration") == 1
    door.issuer.metadata = {}
    assert door.client.get("/login/oidc").status_code == 502
    door.clock.moved = timedelta(seconds=11)
    assert door.client.get("/login/oidc").status_code == 303


# Sessions


def test_a_session_is_rotated_at_sign_in_and_the_earlier_one_is_over(door: Door) -> None:
    door.sign_in()
    first = door.client.cookies[cookie_of(HOST)]
    door.sign_in()
    second = door.client.cookies[cookie_of(HOST)]
    assert first != second
    assert len(door.api.database.stores.browser_sessions.list()) == 1
    door.client.cookies.set(cookie_of(HOST), first, domain=HOST)
    assert door.client.get("/gates", headers={"Cookie": f"{cookie_of(HOST)}={first}"}).is_redirect


def test_signing_out_ends_both_sessions(door: Door) -> None:
    door.sign_in()
    page = read_page(door.client.get("/gates").text)
    csrf = page.all("input", name="csrf")[0]["value"]
    answer = door.client.post("/logout", data={"csrf": csrf})
    assert answer.status_code == 200
    away = read_page(answer.text).one("a").get("href")
    assert away.startswith(f"{door.issuer.url}/end?")
    assert f'content="0;url={door.issuer.url}/end?' in answer.text
    assert (
        httpx.get(away, trust_env=False, timeout=60).headers["location"] == f"https://{HOST}/login"
    )
    assert door.api.database.stores.browser_sessions.list() == []
    assert door.client.get("/gates").is_redirect


def test_a_controller_that_was_restarted_meanwhile_redeems_as_the_issuer_wants_it(
    door: Door,
) -> None:
    """Its first question at the token endpoint is by the metadata, not by the default."""
    door.issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    asked = door.provider.authorize()
    back = httpx.get(f"{asked.url}&consent=1", trust_env=False, timeout=60).headers["location"]
    restarted = OpenIdConnect(door.provider._settings, door.clock)
    found = restarted.identify(
        back, state=asked.state, nonce=asked.nonce, code_verifier=asked.code_verifier
    )
    assert found.subject == door.issuer.subject


@pytest.mark.parametrize("end", ["http://login.example/end", 7])
def test_a_logout_that_cannot_be_asked_for_is_logged(
    door: Door, caplog: pytest.LogCaptureFixture, end: object
) -> None:
    door.issuer.metadata = {"end_session_endpoint": end}
    assert door.provider.logout_url("a token") is None
    assert "still signed in at the issuer" in caplog.text


def test_where_the_issuer_has_no_logout_only_ours_ends(door: Door) -> None:
    door.issuer.metadata = {"end_session_endpoint": None}
    door.sign_in()
    csrf = read_page(door.client.get("/gates").text).all("input", name="csrf")[0]["value"]
    answer = door.client.post("/logout", data={"csrf": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("change", ["no issuer", "another issuer", "other roles"])
def test_a_session_ends_with_the_issuer_and_the_roles_it_was_begun_with(
    door: Door, change: str
) -> None:
    door.sign_in()
    [cookie] = [one for one in door.client.cookies.jar if one.name == cookie_of(HOST)]
    credential = Credential(cookie.value or "", is_session=True)
    assert check_credential(door.context, credential)
    ports = door.context.sign_in
    settings = replace(door.provider._settings, issuer="https://other.example")
    ports = {
        "no issuer": replace(ports, issuer=None, roles=()),
        "another issuer": replace(ports, issuer=OpenIdConnect(settings, door.clock)),
        "other roles": replace(ports, roles=(("release-managers", Scope.READ),)),
    }[change]
    restarted = replace(door.context, sign_in=ports)
    assert check_credential(restarted, credential) is None
    assert list_sessions(restarted) == []
    assert list_sessions(door.context) != []


@pytest.mark.parametrize("ending", [".json", ".csv", ".md"])
def test_no_other_address_signs_in_without_an_entry(door: Door, ending: str) -> None:
    address = door.agree(door.begin())
    other = address.replace(CALLBACK, f"{CALLBACK}{ending}")
    assert door.client.get(other).status_code == 404
    assert door.client.head(address).status_code == 405
    assert cookie_of(HOST) not in door.client.cookies
    assert door.api.database.stores.browser_sessions.list() == []


def test_a_sign_in_and_a_refused_one_are_in_the_audit_log(door: Door) -> None:
    door.sign_in()
    door.issuer.groups = []
    door.client.cookies.clear()
    door.sign_in()
    refused, done = door.api.with_token("admin").get("/api/v1/audit").json()["items"][:2]
    name = f"{door.issuer.url}#{door.issuer.subject}"
    for entry, outcome in ((done, "done"), (refused, "refused")):
        assert (entry["actor"], entry["operation"]) == (name, "signed_in_at_issuer")
        assert entry["outcome"] == outcome
    [session] = list_sessions(door.context)
    assert (done["resource"], done["reason"]) == (f"sessions/{session.id}", "")
    assert (session.address, session.agent) == ("testclient", "testclient")
    assert (done["before"], done["after"]["name"], done["after"]["scope"]) == (None, name, "gate")
    why = f"The sign-in at {door.provider.host} was refused: {name} is in no group that has a role"
    assert refused["reason"].startswith(why)


def test_a_refused_sign_in_has_its_reason_and_nothing_of_what_was_sent(door: Door) -> None:
    address = door.agree(door.begin())
    secrets = parse_qs(urlsplit(address).query)
    assert door.client.get(address).status_code == 303
    assert door.client.get(address).status_code == 401  # the cookie of the request is gone
    door.client.cookies.clear()
    other = door.agree(door.begin())
    assert door.client.get(other.replace("state=", "state=x")).status_code == 401
    admin = door.api.with_token("admin")
    forged, repeated = admin.get("/api/v1/audit").json()["items"][:2]
    assert "begun in another window, or too long ago" in repeated["reason"]
    assert forged["reason"].endswith("the response is not to a request of this browser.")
    secrets |= {f"other {name}": value for name, value in parse_qs(urlsplit(other).query).items()}
    exported = admin.get("/api/v1/audit/export").text
    assert secrets
    assert not [one for name, [one] in secrets.items() if "iss" not in name and one in exported]


def test_a_role_is_of_the_project_that_is_signed_in_to(
    door: Door, tmp_path: Path, slots: Slots
) -> None:
    roles = {"first": (("sre", Scope.ADMIN),), "further": (("dev", Scope.RUN),)}
    with two_projects(tmp_path, slots, full="further") as both:
        for one in both:
            ports = replace(
                one.desk.context.sign_in,
                issuer=door.provider,
                public_url=PUBLIC,
                roles=roles[one.name],
            )
            one.desk.context = replace(one.desk.context, sign_in=ports)
        whole = PortApplications.from_contexts([one.desk.context for one in both], (HOST,), None)
        door.client = door.api.speak(whole.application, base=PUBLIC, follow_redirects=False)
        door.issuer.groups = ["dev"]
        assert door.sign_in().status_code == 401
        page = read_page(door.client.get("/login?project=further").text)
        begun = door.client.get(page.one("a", href="/login/oidc?next=%2F&project=further")["href"])
        answer = door.client.get(door.agree(begun.headers["location"]))
        assert answer.status_code == 303, answer.text
        assert door.client.cookies[cookie_of(HOST)].startswith("further.")
        assert door.client.get("/launch").status_code == 200
        stores = [one.desk.database.stores for one in both]
        assert [len(one.browser_sessions.list()) for one in stores] == [0, 1]
        lines = [list(one.audit.lines(AuditFilters())) for one in stores]
        outcomes = [[json.loads(line)["outcome"] for line in some] for some in lines]
        assert outcomes == [["refused"], ["done"]]
