"""Signing in and out at an OpenID Connect issuer, as a person does it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from orchestrator.dashboard import urls
from tests.browser.page_watch import watched
from tests.browser.server import Served, free_port, served
from tests.oidc_issuer import CLIENT, SECRET, Issuer, issuing


def settings(issuer: Issuer, port: int, secret: Path) -> dict[str, str]:
    secret.write_text(SECRET + "\n", encoding="utf-8")
    return {
        "SEATRIAL_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SEATRIAL_OIDC_ISSUER": issuer.url,
        "SEATRIAL_OIDC_CLIENT_ID": CLIENT,
        "SEATRIAL_OIDC_CLIENT_SECRET_FILE": str(secret),
        "SEATRIAL_OIDC_ROLES": "release-managers=gate",
    }


def test_a_person_signs_in_at_the_issuer_and_out_again(chromium: Browser, tmp_path: Path) -> None:
    port = free_port()
    with issuing() as issuer:
        home = tmp_path / "home"
        home.mkdir()
        variables = settings(issuer, port, tmp_path / "secret")
        with served(home, "--no-cells", port=port, settings=variables) as server:
            looks_right(chromium, server)
            comes_and_goes(chromium.new_context().new_page(), server, issuer)


def looks_right(chromium: Browser, server: Served) -> None:
    for width in (1280, 400):
        with watched(chromium, server, None, width=width) as eyes:
            eyes.open(urls.RUNS)
            eyes.ask_axe()
            eyes.page.emulate_media(color_scheme="dark")
            eyes.ask_axe()


def comes_and_goes(page: Page, server: Served, issuer: Issuer) -> None:
    page.goto(server.url(urls.RUNS))
    page.get_by_role("link", name="Sign in with 127.0.0.1").click()
    assert page.url.startswith(f"{issuer.url}/authorize")
    page.get_by_role("button", name="I am Ana Lee").click()
    page.wait_for_url(server.url(urls.RUNS))
    button = page.get_by_role("button", name="Sign out")
    expect(button).to_have_attribute("title", "Signed in as Ana Lee")
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    button.click()
    page.wait_for_url(re.compile(re.escape(server.url(urls.SIGN_IN)) + "$"))
    assert page.context.cookies() == []
    page.goto(server.url(urls.RUNS))
    assert urls.SIGN_IN in page.url


def test_somebody_without_a_role_is_told_why(chromium: Browser, tmp_path: Path) -> None:
    port = free_port()
    with issuing() as issuer:
        issuer.groups = ["strangers"]
        home = tmp_path / "home"
        home.mkdir()
        variables = settings(issuer, port, tmp_path / "secret")
        with served(home, "--no-cells", port=port, settings=variables) as server:
            page = chromium.new_context().new_page()
            page.goto(server.url(urls.RUNS))
            page.get_by_role("link", name="Sign in with 127.0.0.1").click()
            page.get_by_role("button", name="I am Ana Lee").click()
            alert = page.get_by_role("alert")
            expect(alert).to_contain_text(f"{issuer.url}#{issuer.subject} is in no group")
