"""A browser before the sign-in at an issuer, and what is behind it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from starlette.testclient import TestClient

from orchestrator.adapters.openid_connect import IssuerSettings, OpenIdConnect
from orchestrator.api.audit_calls import AuditCalls
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.context import Context, SignInPorts
from orchestrator.bootstrap.http_server import AsgiDispatch
from orchestrator.domain.caller_identity import Scope
from tests.integration.api_context import Desk
from tests.integration.dashboard.desk import HOST, dashboard
from tests.integration.dashboard.shown import read_page
from tests.oidc_issuer import CLIENT, SECRET, Issuer

ROLES = (("release-managers", Scope.GATE), ("dev", Scope.RUN), ("sre", Scope.ADMIN))
PUBLIC = f"https://{HOST}"
CALLBACK = "/login/oidc/callback"


class WallClock:
    """The issuer's clock, moved."""

    moved = timedelta()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC) + self.moved

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing waits {seconds} s")


@dataclass
class Door:
    """A browser without a session, and both sides of the sign-in."""

    api: Desk
    issuer: Issuer
    provider: OpenIdConnect
    clock: WallClock
    client: TestClient
    context: Context
    """Of the pages."""

    def begin(self, after: str = "/gates") -> str:
        """Where the issuer is asked."""
        answer = self.client.get("/login/oidc", params={"next": after})
        assert answer.status_code == 303, answer.text
        address: str = answer.headers["location"]
        assert address.startswith(f"{self.issuer.url}/authorize?")
        return address

    def agree(self, address: str) -> str:
        """The path and query that the issuer sends the browser back to."""
        answer = httpx.get(f"{address}&consent=1", trust_env=False, timeout=60)
        parts = urlsplit(answer.headers["location"])
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"https://{HOST}{CALLBACK}"
        return f"{parts.path}?{parts.query}"

    def sign_in(self, after: str = "/gates") -> Any:
        return self.client.get(self.agree(self.begin(after)))

    def refused(self, why: str, *, status: int = 401) -> None:
        """Assert that the sign-in was refused and that the page gives the reason."""
        answer = self.sign_in()
        assert answer.status_code == status, answer.text
        assert why in read_page(answer.text).one(id="refused").text
        assert cookie_of(HOST) not in self.client.cookies
        assert self.api.database.stores.browser_sessions.list() == []


def a_door(api: Desk, running: Issuer) -> Door:
    """A door to these pages, with an issuer as it was at its start."""
    fresh = Issuer(running.url, keys=running.keys)
    vars(running).update(vars(fresh))
    settings = IssuerSettings(
        issuer=running.url,
        client_id=CLIENT,
        client_secret=SECRET,
        redirect_uri=f"https://{HOST}{CALLBACK}",
        after_logout=f"https://{HOST}/login",
        scopes="openid profile",
        groups_claim="groups",
    )
    clock = WallClock()
    provider = OpenIdConnect(settings, clock)
    ports = SignInPorts(issuer=provider, roles=ROLES, public_url=f"https://{HOST}")
    context = replace(api.context, sign_in=ports)
    pages = AuditCalls(dashboard(context), context=context, sign_in=CALLBACK)
    faces = AsgiDispatch(api.guarded, pages)
    client = api.speak(faces, base=f"https://{HOST}", follow_redirects=False)
    return Door(api, running, provider, clock, client, context)
