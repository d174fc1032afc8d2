"""Sign-in at an OpenID Connect issuer: authorization code with PKCE, by Authlib and joserfc.

Sources: OpenID Connect Core 1.0, Discovery 1.0, RP-Initiated Logout 1.0; RFC 7636 (PKCE), RFC 9207
(the issuer in the response).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.base import OAuth2Error
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet, KeySetSerialization
from joserfc.jws import JWSRegistry

from orchestrator.application.ports.clock import Clock
from orchestrator.application.ports.identity_provider import (
    REQUEST_LIFE_S,
    AuthorizationRequest,
    IssuedIdentity,
    IssuerUnreachableError,
    SignInRefusedError,
    is_safe,
)

logger = logging.getLogger(__name__)

CLOCK_SKEW_S = 60
"""Maximum difference in seconds between the clocks of issuer and controller."""
_KEPT_S = 600
"""Seconds for which the issuer's metadata and keys are cached."""
_FAILED_S = 10
"""Seconds without a new request after a request to the issuer failed."""
_KEYS_EVERY_S = 30
"""Minimum seconds between two fetches of the keys because of an unknown key."""
_TIMEOUT_S = 10.0
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
"""Accepted signature algorithms: only those with a public key."""
_NAMES_ITSELF = "authorization_response_iss_parameter_supported"
"""Metadata key of issuers that put their `iss` in every response (RFC 9207)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """Settings of the issuer."""

    issuer: str
    """The issuer's identifier in its tokens, such as ``https://login.example.com/realm``."""
    client_id: str
    client_secret: str
    """Empty for a public client."""
    redirect_uri: str
    """URL to which the issuer redirects the browser after a sign-in."""
    after_logout: str
    """URL to which the issuer redirects the browser after a logout."""
    scopes: str
    """OAuth scopes, separated by spaces."""
    groups_claim: str
    """Claim of the ID token that lists the groups.

    ``a.b`` means the claim `a.b` if it exists, else `b` inside `a`.
    """


class OpenIdConnect:
    """A client of one issuer, over HTTP."""

    def __init__(self, settings: IssuerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._failed: tuple[float, IssuerUnreachableError] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._consumed: dict[str, float] = {}
        """When a request was answered, by its state."""

    @property
    def issuer(self) -> str:
        """The issuer's identifier."""
        return self._settings.issuer

    @property
    def host(self) -> str:
        """The issuer's host name."""
        return urlsplit(self._settings.issuer).hostname or ""

    def authorize(self) -> AuthorizationRequest:
        """Return a new request. Raises IssuerUnreachableError."""
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        metadata = self._discovered()
        with self._client(metadata) as client:
            endpoint = metadata["authorization_endpoint"]
            url, state = client.create_authorization_url(
                endpoint, state=secrets.token_urlsafe(32), code_verifier=verifier, nonce=nonce
            )
        return AuthorizationRequest(url, state, nonce, verifier)

    def identify(
        self, response_url: str, *, state: str, nonce: str, code_verifier: str
    ) -> IssuedIdentity:
        """Exchange the response for an identity.

        Raises SignInRefusedError or IssuerUnreachableError.
        """
        said = parse_qs(urlsplit(response_url).query)
        if said.get("iss", [self._settings.issuer]) != [self._settings.issuer]:
            raise SignInRefusedError("the response is of another issuer")
        if said.get("state") != [state]:
            raise SignInRefusedError("the response is not to a request of this browser")
        metadata = self._discovered()
        if metadata.get(_NAMES_ITSELF) is True and "iss" not in said:
            raise SignInRefusedError("the response does not name its issuer, which it always does")
        if "error" in said:
            raise SignInRefusedError(_error_text(said))
        self._consume(state)
        with self._client(metadata) as client:
            try:
                token = client.fetch_token(
                    metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=said.get("code", [""])[0],
                    code_verifier=code_verifier,
                )
            except (OAuthError, OAuth2Error) as error:
                raise SignInRefusedError(f"the issuer refused the code: {error}") from error
            except (httpx2.HTTPError, ValueError) as error:
                raise self._unreachable("the token endpoint", error) from error
            claims = self._claims(client, metadata, token, nonce)
        return IssuedIdentity(
            issuer=self._settings.issuer,
            subject=claims["sub"],
            display_name=_display_name(claims),
            groups=_groups(claims, self._settings.groups_claim),
            id_token=token["id_token"],
        )

    def _consume(self, state: str) -> None:
        """Mark a request as answered. Raises SignInRefusedError if it already was."""
        now = self._clock.now().timestamp()
        with self._lock:
            kept = {one: at for one, at in self._consumed.items() if now - at < REQUEST_LIFE_S}
            if state in kept:
                raise SignInRefusedError("the response was used already: begin the sign-in again")
            self._consumed = {**kept, state: now}

    def logout_url(self, id_token: str) -> str | None:
        """Return the URL that ends the session at the issuer.

        None if the issuer has no such URL, its URL is not safe, or it cannot be reached.
        """
        try:
            endpoint = self._discovered().get("end_session_endpoint")
        except IssuerUnreachableError as error:
            logger.warning("a person is still signed in at the issuer: %s", error)
            return None
        if endpoint is None:
            return None
        if not is_safe(str(endpoint)):
            said = (
                "a person is still signed in at the issuer: its end_session_endpoint is not https"
            )
            logger.warning(said)
            return None
        query = {
            "id_token_hint": id_token,
            "client_id": self._settings.client_id,
            "post_logout_redirect_uri": self._settings.after_logout,
        }
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"

    def _client(self, metadata: Mapping[str, Any]) -> OAuth2Client:
        offered = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "none"
        if self._settings.client_secret:
            is_basic = "client_secret_basic" in offered
            method = "client_secret_basic" if is_basic else "client_secret_post"
        return OAuth2Client(
            self._settings.client_id,
            self._settings.client_secret or None,
            token_endpoint_auth_method=method,
            scope=self._settings.scopes,
            redirect_uri=self._settings.redirect_uri,
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
        )

    def _claims(
        self,
        client: OAuth2Client,
        metadata: Mapping[str, Any],
        token: Mapping[str, Any],
        nonce: str,
    ) -> Mapping[str, Any]:
        """Return the ID token's claims after validating the token. Raises SignInRefusedError."""
        raw = token.get("id_token")
        if not isinstance(raw, str):
            raise SignInRefusedError("the issuer sent no ID token: is `openid` among the scopes?")
        offered = metadata.get("id_token_signing_alg_values_supported", ["RS256"])
        registry = JWSRegistry(
            algorithms=[one for one in _ALGORITHMS if one in offered], strict_check_header=False
        )
        try:
            try:
                decoded = jwt.decode(raw, self._key_set(client, metadata), registry=registry)
            except InvalidKeyIdError:
                keys = self._key_set(client, metadata, kept_s=_KEYS_EVERY_S)
                decoded = jwt.decode(raw, keys, registry=registry)
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": self._settings.issuer},
                    "aud": {"essential": True, "value": self._settings.client_id},
                    "sub": {"essential": True},
                },
                {
                    "nonce": nonce,
                    "client_id": self._settings.client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(now=int(self._clock.now().timestamp()), leeway=CLOCK_SKEW_S)
        except (JoseError, ValueError) as error:
            raise SignInRefusedError(f"the issuer's ID token is not valid: {error}") from error
        return dict(claims)

    def _discovered(self) -> dict[str, Any]:
        """Return the issuer's metadata from the cache or the issuer.

        Raises IssuerUnreachableError.
        """
        now = self._clock.now().timestamp()
        with self._lock:
            if self._metadata is not None and now - self._metadata[0] < _KEPT_S:
                return self._metadata[1]
            if self._failed is not None and now - self._failed[0] < _FAILED_S:
                raise self._failed[1]
            try:
                self._metadata = (now, self._discover())
            except IssuerUnreachableError as error:
                self._failed = (self._clock.now().timestamp(), error)
                raise
            return self._metadata[1]

    def _discover(self) -> dict[str, Any]:
        """Fetch the issuer's metadata. Raises IssuerUnreachableError."""
        url = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        with self._client({}) as client:
            found = self._json(client, url)
        if found.get("issuer") != self._settings.issuer:
            raise IssuerUnreachableError(
                f"{url} is of the issuer {found.get('issuer')!r}, and SEATRIAL_OIDC_ISSUER is"
                f" {self._settings.issuer!r}: they must be equal, letter by letter"
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_safe(str(found.get(name, ""))):
                raise IssuerUnreachableError(f"{url} has no {name} at https://")
        return found

    def _key_set(
        self, client: OAuth2Client, metadata: Mapping[str, Any], *, kept_s: float = _KEPT_S
    ) -> KeySet:
        """Return the issuer's keys, fetched at most `kept_s` ago. Raises IssuerUnreachableError."""
        now = self._clock.now().timestamp()
        with self._lock:
            if self._keys is None or now - self._keys[0] >= kept_s:
                found = self._json(client, metadata["jwks_uri"])
                try:
                    self._keys = (now, KeySet.import_key_set(cast(KeySetSerialization, found)))
                except (JoseError, ValueError, KeyError, TypeError) as error:
                    raise self._unreachable(metadata["jwks_uri"], error) from error
            return self._keys[1]

    def _json(self, client: OAuth2Client, url: str) -> dict[str, Any]:
        try:
            answer = client.request("GET", url, withhold_token=True)
            answer.raise_for_status()
            found = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise self._unreachable(url, error) from error
        if not isinstance(found, dict):
            raise IssuerUnreachableError(f"{url} is no JSON object")
        return found

    def _unreachable(self, what: str, error: Exception) -> IssuerUnreachableError:
        said = str(error).split("\n", 1)[0] or type(error).__name__
        return IssuerUnreachableError(f"{what} of {self._settings.issuer} cannot be used: {said}")


def _error_text(response: Mapping[str, list[str]]) -> str:
    words = [*response["error"], *response.get("error_description", [])]
    return f"the issuer refused the sign-in: {': '.join(words)[:300]}"


def _display_name(claims: Mapping[str, Any]) -> str:
    names = (claims.get(name) for name in ("name", "preferred_username", "email"))
    return next((name for name in names if isinstance(name, str) and name.strip()), "")


def _groups(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    found: Any = claims.get(claim)
    if claim not in claims:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    found = [found] if isinstance(found, str) else found
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
