"""An OpenID Connect issuer of the tests' own, on the loopback: strict about what clients send.

with issuing() as issuer:
    issuer.groups = ["release-managers"]
    issuer.claims = {"aud": "another"}          # over those of the next ID tokens
    issuer.rotate()                             # another signing key, under another id
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.browser.server import free_port

CLIENT, SECRET = "seatrial-tests", "a secret of the tests"
DISCOVERY = "/.well-known/openid-configuration"


@dataclass
class Issuer:
    """What it says next, and what it was asked."""

    url: str
    subject: str = "248289761001"
    name: str = "Ana Lee"
    groups: list[str] = field(default_factory=lambda: ["release-managers"])
    claims: dict[str, Any] = field(default_factory=dict)
    """Over those of ID tokens; None leaves a claim out."""
    metadata: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    skew_s: float = 0.0
    """How far its clock is ahead."""
    keys: list[RSAKey] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Paths, in their order."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def rotate(self) -> None:
        """Sign with a new key; the ones before are forgotten."""
        self.keys = [RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})]

    def id_token(self, asked: dict[str, str]) -> str:
        now = int(time.time() + self.skew_s)
        claims = {
            "iss": self.url,
            "sub": self.subject,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            "name": self.name,
            "groups": self.groups,
        } | self.claims
        told = {name: value for name, value in claims.items() if value is not None}
        key = self.keys[0]
        header = {"alg": self.algorithm, "kid": key.kid}
        if self.algorithm == "none":
            parts = (json.dumps(part).encode() for part in (header, told))
            return b".".join(base64.urlsafe_b64encode(p).rstrip(b"=") for p in parts).decode() + "."
        if self.algorithm == "HS256":
            return jwt.encode(header, told, OctKey.import_key(SECRET), algorithms=["HS256"])
        return jwt.encode(header, told, key)

    async def discovery(self, _: Request) -> Response:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/end",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }
        return self._answer(DISCOVERY, told | self.metadata)

    async def public_keys(self, _: Request) -> Response:
        return self._answer("/keys", KeySet(self.keys).as_dict(private=False))

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        if "consent" in asked:  # the person has agreed
            code = secrets.token_urlsafe(8)
            self.codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"], "iss": self.url})
            return RedirectResponse(f"{asked['redirect_uri']}?{back}", 303)
        fields = "".join(
            f'<input type="hidden" name="{name}" value="{value}">' for name, value in asked.items()
        )
        return HTMLResponse(
            f"<title>Issuer</title><h1>Who are you?</h1><form>{fields}"
            f'<button name="consent" value="1">I am {self.name}</button></form>'
        )

    async def token(self, request: Request) -> Response:
        body = parse_qs((await request.body()).decode())
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        by_header = base64.b64decode(pair).decode() if scheme == "Basic" else ""
        by_body = ":".join(body.get(name, [""])[0] for name in ("client_id", "client_secret"))
        methods = self.metadata.get("token_endpoint_auth_methods_supported")
        given = by_body if methods == ["client_secret_post"] else by_header
        if given != f"{CLIENT}:{SECRET}":
            return JSONResponse({"error": "invalid_client"}, 401)
        asked = self.codes.pop(body["code"][0], None)
        digest = hashlib.sha256(body["code_verifier"][0].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or challenge != asked["code_challenge"]
            or body["redirect_uri"] != [asked["redirect_uri"]]
            or body["grant_type"] != ["authorization_code"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        told = {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token(asked)}
        return self._answer("/token", told)

    async def end(self, request: Request) -> Response:
        asked = request.query_params
        claims = jwt.decode(asked["id_token_hint"], KeySet(self.keys)).claims
        assert claims["sub"] == self.subject
        return RedirectResponse(asked["post_logout_redirect_uri"], 303)

    def _answer(self, path: str, document: object) -> Response:
        self.asked.append(path)
        return JSONResponse(document)


@contextlib.contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that answers on a port of the loopback."""
    port = free_port()
    issuer = Issuer(f"http://127.0.0.1:{port}")
    issuer.rotate()
    routes = {
        DISCOVERY: issuer.discovery,
        "/keys": issuer.public_keys,
        "/authorize": issuer.authorize,
        "/token": issuer.token,
        "/end": issuer.end,
    }
    app = Starlette(
        routes=[Route(path, answer, methods=["GET", "POST"]) for path, answer in routes.items()]
    )
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 120
    while not server.started:
        assert time.monotonic() < until, "the issuer did not come up"
        time.sleep(0.02)
    try:
        yield issuer
    finally:
        server.should_exit = True
        thread.join(60)
