"""Who may look and act: tokens in cookies and headers, and forms of our own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.api.audit_calls import REFUSED_A_MINUTE, AuditCalls
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.credentials import LINK_LIFE, SignInLink
from orchestrator.application.tokens import Credential, create_token
from orchestrator.bootstrap.http_server import AsgiDispatch
from orchestrator.dashboard.session import Viewer
from orchestrator.domain.caller_identity import Caller, Scope, SessionLimits
from tests.integration import gate_world
from tests.integration.api_context import Desk, Slots, desk
from tests.integration.dashboard.desk import HOST, PageDesk, dashboard
from tests.integration.dashboard.shown import read_page

OURS = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
ACTION = "/gates/release/verdicts"


@pytest.fixture
def api(tmp_path: Path, slots: Slots) -> Iterator[Desk]:
    """The interface with the sessions that a browser gets."""
    with slots.fresh() as database, desk(tmp_path, database, SessionLimits()) as opened:
        yield opened


@pytest.fixture
def pages(pages: PageDesk) -> PageDesk:
    gate_world.put(pages.api)
    return pages


@pytest.fixture(scope="module")
def site(shared_pages: PageDesk) -> PageDesk:
    """A gate that nobody makes decide."""
    gate_world.put(shared_pages.api)
    return shared_pages


def nobody(pages: PageDesk) -> TestClient:
    faces = AsgiDispatch(pages.api.guarded, dashboard(pages.api.context))
    return pages.api.speak(faces, base=f"http://{HOST}", follow_redirects=False)


def send(pages: PageDesk, csrf: str, **headers: str) -> Any:
    """The form of an action, as another page might send it."""
    form = {"csrf": csrf, "key": "k"}
    return pages.client.post(ACTION, data=form, headers=headers, follow_redirects=False)


# Signing in and out


def test_a_token_opens_the_pages_until_it_is_taken_back(pages: PageDesk) -> None:
    client = nobody(pages)
    token, secret = create_token(pages.api.context, "mine", Scope.READ, days=1)
    answer = client.post("/login", data={"token": f" {secret} ", "next": "/gates?x=1#y"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/gates?x=1#y")
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=lax" in kept
    assert "Max-Age=28800" in kept
    assert client.get("/gates").status_code == 200
    assert pages.stores.tokens.revoke(token.id, at=pages.api.clock.now())
    assert client.get("/gates").headers["location"] == "/login?next=%2Fgates"


def test_an_expired_token_is_out(pages: PageDesk) -> None:
    pages.get("/gates")
    pages.api.clock.move(hours=24)
    pages.get("/gates", status=303)
    pages.post(ACTION, status=303)
    assert pages.stores.gates.verdicts() == []


def test_a_session_ends_by_itself_and_with_its_token(pages: PageDesk) -> None:
    """The token of the desk lasts a day: the third session ends with it."""
    pages.api.clock.move(hours=1)
    for hours, life in ((8, "Max-Age=28800"), (8, "Max-Age=28800"), (7, "Max-Age=25200")):
        answer = nobody(pages).post("/login", data={"token": pages.token})
        assert life in answer.headers["set-cookie"]
        client = nobody(pages)
        client.cookies.set(cookie_of(HOST), session_in(answer))
        for _ in range(2 * hours):  # somebody uses it, so that it is never idle
            assert client.get("/gates").status_code == 200
            pages.api.clock.move(minutes=30)
        assert client.get("/gates").status_code == 303


def test_a_session_that_nobody_uses_is_over_after_an_hour(pages: PageDesk) -> None:
    for minutes in (59, 59, 59):
        pages.api.clock.move(minutes=minutes)
        pages.get("/gates")
    pages.api.clock.move(minutes=60)
    pages.get("/gates", status=303)


def test_a_new_sign_in_ends_the_session_that_the_browser_had(pages: PageDesk) -> None:
    earlier = pages.client.cookies[cookie_of(HOST)]
    answer = pages.client.post("/login", data={"token": pages.token}, follow_redirects=False)
    assert session_in(answer) != earlier
    client = nobody(pages)
    client.cookies.set(cookie_of(HOST), earlier)
    assert client.get("/gates").status_code == 303


def test_sessions_are_listed_and_revoked_by_an_administrator(pages: PageDesk) -> None:
    admin = pages.api.with_token("admin")
    [shown] = admin.get("/api/v1/sessions").json()["items"]
    assert (shown["name"], shown["scope"]) == (pages.viewer.name, pages.viewer.caller.scope)
    assert pages.viewer.credential.secret not in str(shown)
    gate = pages.api.with_token("gate")
    assert gate.get("/api/v1/sessions").status_code == 403
    assert gate.delete(f"/api/v1/sessions/{shown['id']}").status_code == 403
    pages.get("/gates")
    statuses = [admin.delete(f"/api/v1/sessions/{shown['id']}").status_code for _ in range(2)]
    assert statuses == [204, 404]
    assert admin.get("/api/v1/sessions").json()["items"] == []
    pages.get("/gates", status=303)


def session_in(answer: Any) -> str:
    value: str = SimpleCookie(answer.headers["set-cookie"])[cookie_of(HOST)].value
    return value


def test_a_session_is_no_token_and_a_token_no_session(site: PageDesk) -> None:
    session = site.viewer.credential.secret
    assert session != site.token
    for path in ("/gates.json", "/api/v1/runs"):
        client = nobody(site)
        for secret, cookie, status in (
            (site.token, "", 200),
            (session, "", 401),
            ("", site.token, 401),
            ("", session, 200),
        ):
            headers = {"Authorization": f"Bearer {secret}"} if secret else {}
            headers |= {"Cookie": f"{cookie_of(HOST)}={cookie}"} if cookie else {}
            assert client.get(path, headers=headers).status_code == status, (path, status)


def test_no_secret_is_in_the_database(site: PageDesk) -> None:
    session = site.viewer.credential.secret
    with site.api.database.sessions.engine.connect() as connection:
        rows = connection.exec_driver_sql("select secret_sha256, token from browser_session").all()
    assert (sha256(session.encode()).hexdigest(), site.viewer.person.token) in [
        tuple(r) for r in rows
    ]
    assert session not in str(rows)


def test_the_link_that_serve_prints_fills_the_form_in_and_signs_nobody_in(site: PageDesk) -> None:
    client = nobody(site)
    for method in ("GET", "HEAD"):
        answer = client.request(method, f"/login?token={site.token}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert "set-cookie" not in answer.headers
    page = read_page(client.get(f"/login?token={site.token}&next=/gates").text)
    form = {name: page.one("input", name=name)["value"] for name in ("token", "next")}
    answer = client.post("/login", data=form, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/gates")
    assert client.get("/gates").status_code == 200


def test_a_printed_link_signs_in_once_while_it_is_young(pages: PageDesk) -> None:
    at = pages.api.clock.now()
    used, late = (SignInLink.to(pages.token, at=at) for _ in range(2))
    assert pages.token not in repr((used.secret, late.secret))
    for link, after, statuses in (
        (used, timedelta(), (303, 401)),
        (late, LINK_LIFE, (401, 401)),
    ):
        context = replace(pages.api.context, sign_in=replace(pages.api.context.sign_in, link=link))
        client = pages.api.speak(dashboard(context), base=f"http://{HOST}", follow_redirects=False)
        pages.api.clock.move(seconds=after.total_seconds())
        page = read_page(client.get(f"/login?token={link.secret}").text)
        form = {"token": page.one("input", name="token")["value"]}
        other = {"token": link.secret[:-1]}
        assert client.post("/login", data=other, headers=OURS).status_code == 401
        for status in statuses:
            answer = client.post("/login", data=form, headers=OURS)
            assert answer.status_code == status
        assert client.get("/gates", headers={"Authorization": f"Bearer {link.secret}"}).is_redirect


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_another_site_signs_nobody_in_and_ends_no_session(
    pages: PageDesk, headers: dict[str, str]
) -> None:
    form = {"token": pages.token}
    answer = pages.client.post("/login", data=form, headers=headers, follow_redirects=False)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    pages.get("/gates")


def test_every_sign_in_with_a_token_has_an_entry_and_guesses_are_limited(pages: PageDesk) -> None:
    context = pages.api.context
    pages_alone = AuditCalls(dashboard(context), context=context)
    client = pages.api.speak(pages_alone, base=f"http://{HOST}", follow_redirects=False)
    admin = pages.api.with_token("admin")
    for data, headers, found in (
        ({"token": pages.token}, OURS, ("done", 303)),
        ({"token": "a guess"}, OURS, ("refused", 401)),
        ({"token": pages.token}, {"Origin": "https://evil.example"}, ("refused", 403)),
    ):
        client.post("/login", data=data, headers=headers)
        entry = admin.get("/api/v1/audit").json()["items"][0]
        assert (entry["operation"], entry["outcome"], entry["status"]) == ("sign_in", *found)
        assert entry["reason"] == {
            303: "",
            401: "This token is unknown, expired or revoked. A link that `seatrial serve` prints"
            " signs in once, in its first minutes.",
            403: "The form is too old, or not of this session",
        }.get(entry["status"])
    for _ in range(REFUSED_A_MINUTE + 5):
        client.post("/login", data={"token": "a guess"})
    entries = admin.get("/api/v1/audit", params={"limit": 200}).json()["items"]
    assert sum(one["actor"] == "" for one in entries) == REFUSED_A_MINUTE


def test_the_entry_of_a_session_says_whose_it_was(pages: PageDesk) -> None:
    context = pages.api.context
    admin = pages.api.with_token("admin", name="Ada")
    faces = AsgiDispatch(pages.api.guarded, AuditCalls(dashboard(context), context=context))
    client = pages.api.speak(faces, base=f"http://{HOST}", follow_redirects=False)
    client.headers["User-Agent"] = "Firefox"
    for _ in range(2):  # the second sign-in ends the first session
        client.post("/login", data={"token": pages.token}, headers=OURS)
    listed = admin.get("/api/v1/sessions").json()["items"]
    [session] = [one for one in listed if one["agent"] == "Firefox"]
    assert session["address"] == "testclient"
    assert admin.delete(f"/api/v1/sessions/{session['id']}").status_code == 204
    ended, replaced, began, first = admin.get("/api/v1/audit").json()["items"][:4]
    assert (ended["operation"], ended["actor"]) == ("revoke_session", "Ada")
    path = f"sessions/{session['id']}"
    assert (ended["resource"], began["resource"]) == (path, path)
    whose = {name: session[name] for name in ("name", "scope", "token", "address", "agent")}
    for shown in (ended["before"], began["after"], first["after"], replaced["before"]):
        assert {name: shown[name] for name in whose} == whose
    assert (ended["after"], began["before"], replaced["after"]) == (None, None, None)
    assert replaced["resource"] == first["resource"]


def test_a_form_of_nobody_is_a_refused_call(pages: PageDesk) -> None:
    context = pages.api.context
    pages_alone = AuditCalls(dashboard(context), context=context)
    client = pages.api.speak(pages_alone, base=f"http://{HOST}", follow_redirects=False)
    assert client.post("/schedules/nightly/remove").status_code == 303
    entry = pages.api.with_token("admin").get("/api/v1/audit").json()["items"][0]
    assert (entry["operation"], entry["outcome"]) == ("remove", "refused")
    assert (entry["actor"], entry["reason"]) == ("", "nobody is signed in")


@pytest.mark.parametrize("token", ["", "x", "seatrial_" + "A" * 43, "ü\u0000", "A" * 100_000])
def test_a_wrong_token_is_said_and_nothing_is_kept(site: PageDesk, token: str) -> None:
    answer = nobody(site).post("/login", data={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    page = read_page(answer.text)
    assert "unknown, expired or revoked" in page.one(role="alert").text
    assert page.one(id="token").get("value") == ""


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/\n/evil.example",
        "",
        "gates",
    ],
)
def test_signing_in_leads_nowhere_else(site: PageDesk, after: str) -> None:
    form = {"token": site.token, "next": after}
    assert nobody(site).post("/login", data=form).headers["location"] == "/"
    shown = nobody(site).get("/login", params={"next": after}).text
    assert read_page(shown).one("input", name="next")["value"] == "/"


def test_signing_out_forgets_the_token(pages: PageDesk) -> None:
    answer = pages.post("/logout")
    assert answer.headers["location"] == "/login"
    assert "Max-Age=0" in answer.headers["set-cookie"]
    pages.client.cookies.set(cookie_of(HOST), pages.viewer.credential.secret)
    pages.get("/gates", status=303)  # whoever kept a copy of it is out, too
    assert pages.client.get("/logout").status_code == 405


def test_a_secure_page_keeps_a_secure_cookie(site: PageDesk) -> None:
    client = site.api.speak(nobody(site).app, base=f"https://{HOST}", follow_redirects=False)
    answer = client.post("/login", data={"token": site.token})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("peer", "said", "is_secure"),
    [
        ("127.0.0.1", "https", True),
        ("::1", "https", True),
        ("127.0.0.1", "http", False),
        ("203.0.113.7", "https", False),
    ],
)
def test_a_proxy_on_the_loopback_says_that_the_page_is_secure(
    site: PageDesk, peer: str, said: str, is_secure: bool
) -> None:
    headers = {"X-Forwarded-Proto": said}
    address = f"http://{HOST}"
    client = TestClient(nobody(site).app, base_url=address, client=(peer, 1), headers=headers)
    form = {"token": site.token}
    kept = client.post("/login", data=form, follow_redirects=False).headers["set-cookie"]
    assert ("Secure" in kept) == is_secure


# What is asked of whom


def test_a_header_is_as_good_as_a_cookie_and_goes_first(site: PageDesk) -> None:
    client = nobody(site)
    good = {"Authorization": f"bearer  {site.token}"}
    assert client.get("/gates.json", headers=good).status_code == 200
    client.cookies.set(cookie_of(HOST), site.viewer.credential.secret)
    assert client.get("/gates", headers={"Authorization": "Bearer wrong"}).status_code == 303
    assert client.get("/gates", headers={"Authorization": "Basic eDp5"}).status_code == 200


def test_who_is_signed_out_is_told_in_the_format_that_was_asked_for(site: PageDesk) -> None:
    client = nobody(site)
    assert client.get("/gates?a=b").headers["location"] == "/login?next=%2Fgates%3Fa%3Db"
    answer = client.get("/gates.json")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    part = client.get("/gates?a=b&part=x", headers={"HX-Request": "true"})
    assert part.status_code == 401
    assert part.headers["hx-redirect"] == "/login?next=%2Fgates%3Fa%3Db"
    assert client.post(ACTION).headers["location"] == "/login?next=%2F"


@pytest.mark.parametrize("cookie", ["x", "seatrial_;", "\xff\xfe", "A" * 4_000])
def test_a_cookie_of_anything_is_nobody(site: PageDesk, cookie: str) -> None:
    header = f"{cookie_of(HOST)}={cookie}".encode("latin-1")
    answer = nobody(site).get("/gates", headers={b"Cookie": header})
    assert answer.status_code == 303


def test_a_scope_that_is_too_low_is_refused(site: PageDesk) -> None:
    for scope in ("read", "run"):
        reader = site.as_viewer(scope)
        answer = reader.post(ACTION, status=403)
        assert f"needs the scope gate; the token &#39;a {scope}&#39; has {scope}" in answer.text
    assert site.stores.gates.verdicts() == []


# Forms


def test_our_form_is_taken_and_each_has_another_value(pages: PageDesk) -> None:
    page = pages.page("/gates/release")
    values = {one["value"] for one in page.all("input", name="csrf")}
    assert len(values) == len(page.all("input", name="csrf")) > 2
    assert send(pages, values.pop(), **OURS).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{HOST}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_another_sites_form_is_refused(site: PageDesk, headers: dict[str, str]) -> None:
    answer = send(site, site.viewer.csrf(), **headers)
    assert answer.status_code == 403
    assert "not of this session" in answer.text
    assert site.stores.gates.verdicts() == []


def test_a_form_of_another_session_or_of_nobodys_is_refused(site: PageDesk) -> None:
    other = Viewer(Caller("t-1", "other", Scope.ADMIN), Credential("another secret")).csrf()
    mine = site.viewer.csrf()
    raw = base64.urlsafe_b64decode(mine)
    changed = base64.urlsafe_b64encode(raw[:-1] + bytes([raw[-1] ^ 1])).decode()
    for value in ("", "ü", "x", "====", other, changed, mine[:-8], "A" * 9_999):
        assert send(site, value, **OURS).status_code == 403, value
    assert site.stores.gates.verdicts() == []


def test_a_form_without_an_origin_is_taken_by_its_value_alone(pages: PageDesk) -> None:
    assert send(pages, pages.viewer.csrf()).status_code == 303


def test_a_header_needs_the_value_too(pages: PageDesk) -> None:
    client = nobody(pages)
    bearer = {"Authorization": f"Bearer {pages.token}"}
    assert client.post(ACTION, headers=bearer).status_code == 403
    form = {"csrf": replace(pages.viewer, credential=Credential(pages.token)).csrf()}
    assert client.post(ACTION, headers=bearer, data=form).status_code == 303


def test_other_kinds_of_forms_are_no_way_round(site: PageDesk) -> None:
    value = site.viewer.csrf()
    files = {"csrf": ("name", value.encode())}
    assert site.client.post(ACTION, files=files).status_code == 403
    assert site.client.post(ACTION, json={"csrf": value}).status_code == 403
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = site.client.post(ACTION, content=b"--x\r\nbroken", headers=broken)
    assert answer.status_code in (400, 403)
    assert site.client.get(f"{ACTION}?csrf={value}").status_code == 405
    assert site.stores.gates.verdicts() == []
