"""API tokens: scoped, expiring, shown once and kept only as a digest."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from orchestrator.application.context import Context
from orchestrator.application.ports.stores import Scope, Token
from orchestrator.domain.person import name_fault, person_key, shown_name
from orchestrator.domain.problems import InvalidDocumentError, Problem

PREFIX = "seatrial_"
"""Lets secret scanners find a token that leaked."""
_ORDER = list(Scope)
_USED_EVERY = timedelta(minutes=1)


def create_token(
    context: Context, name: str, scope: Scope, *, days: int | None
) -> tuple[Token, str]:
    """Make a token; its secret is returned here and nowhere else.

    Its name is its owner's: a name that is one person's already is spelled as it was.

    Raises InvalidDocumentError of a name that nobody can have.
    """
    if fault := name_fault(name):
        raise InvalidDocumentError("the token", [Problem(("name",), fault)])
    known = (one.name for one in context.stores.tokens.list())
    owner = next((one for one in known if person_key(one) == person_key(name)), shown_name(name))
    secret = PREFIX + secrets.token_urlsafe(32)
    return keep_token(context, owner, scope, secret, days=days), secret


def keep_token(
    context: Context, name: str, scope: Scope, secret: str, *, days: int | None
) -> Token:
    """Store a token whose secret was chosen elsewhere; the same secret is stored once."""
    found = context.stores.tokens.find(_digest(secret))
    if found is not None:
        return found
    at = context.clock.now()
    expires = at + timedelta(days=days) if days is not None else None
    token = Token(context.new_id(), name, scope, at, expires)
    context.stores.tokens.add(token, _digest(secret))
    return token


def check_token(context: Context, secret: str, needed: Scope) -> Token | None:
    """The token of a secret, if it stands and its scope is enough."""
    token = context.stores.tokens.find(_digest(secret))
    at = context.clock.now()
    if token is None or token.revoked_at is not None:
        return None
    if token.expires_at is not None and token.expires_at <= at:
        return None
    if _ORDER.index(token.scope) < _ORDER.index(needed):
        return None
    if token.last_used_at is None or at - token.last_used_at > _USED_EVERY:
        context.stores.tokens.used(token.id, at=at)
    return token


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_of(host: str) -> str:
    """The name of the cookie that holds a browser's token, for a Host header.

    Browsers share cookies between the ports of a host: each controller there has its own name.
    """
    port = host.rpartition("]")[2].rpartition(":")[2]
    return f"seatrial_{port}" if port.isdecimal() else "seatrial"
