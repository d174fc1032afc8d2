"""Port of an OpenID Connect issuer, at which people sign in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from orchestrator.domain.loopback import is_loopback

REQUEST_LIFE_S = 600
"""Seconds that somebody has to sign in at the issuer."""


def is_safe(url: str) -> bool:
    """Whether secrets may travel to a URL: it is https, or on this computer's loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )


class IssuerUnreachableError(Exception):
    """The issuer cannot be asked, or its answers cannot be used; the text is one sentence."""


class SignInRefusedError(Exception):
    """The issuer refused a sign-in, or its response is invalid; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A request to the issuer to authenticate a person; the browser keeps all but the URL."""

    url: str
    """URL of the issuer to which the browser is sent."""
    state: str
    """Random text that the response must repeat; it proves that the response is to this request."""
    nonce: str
    """Random text that the ID token must repeat; it proves that the token is for this request."""
    code_verifier: str
    """PKCE secret; it proves to the issuer that the requester redeems the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedIdentity:
    """Somebody whom the issuer has authenticated."""

    issuer: str
    subject: str
    """The issuer's own, unchanging name of the account."""
    display_name: str
    groups: tuple[str, ...]
    id_token: str
    """The ID token as issued, for the logout at the issuer."""


class IdentityProvider(Protocol):
    """An OpenID Connect issuer."""

    @property
    def issuer(self) -> str:
        """The issuer's identifier, with which the names of its people begin."""
        ...

    @property
    def host(self) -> str:
        """The issuer's host name, for people."""
        ...

    def authorize(self) -> AuthorizationRequest:
        """Return a new request. Raises IssuerUnreachableError."""
        ...

    def identify(
        self, response_url: str, *, state: str, nonce: str, code_verifier: str
    ) -> IssuedIdentity:
        """Redeem the issuer's response for an identity, once for each `state`.

        Args:
            response_url: The address that the browser was sent back to, with its query.
            state: State of the request.
            nonce: Nonce of the request.
            code_verifier: PKCE verifier of the request.

        Raises SignInRefusedError, IssuerUnreachableError.
        """
        ...

    def logout_url(self, id_token: str) -> str | None:
        """Return where the browser ends its session at the issuer; None if it has no such page."""
        ...
