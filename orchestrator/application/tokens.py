"""API tokens: scoped, expiring, shown once and kept only as a digest."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.application.context import Context
from orchestrator.domain.caller_identity import (
    Person,
    Scope,
    Token,
    name_fault,
    person_key,
    shown_name,
)
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.store.audit_recorder import identify

PREFIX = "seatrial_"
"""Prefix by which secret scanners recognise a token."""
SESSION_LIFE = timedelta(hours=12)
"""Lifetime of a browser session, limited by its token's."""
_USED_EVERY = timedelta(minutes=1)


def create_token(
    context: Context, name: str, scope: Scope, *, days: int | None
) -> tuple[Token, str]:
    """Create a token; its secret is returned only here.

    The token's name identifies its owner: an existing person's name keeps its spelling.

    Raises InvalidDocumentError if the name is not valid.
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
    """Store a token with a given secret; idempotent."""
    found = context.stores.tokens.find(_digest(secret))
    if found is not None:
        return found
    at = context.clock.now()
    expires = at + timedelta(days=days) if days is not None else None
    token = Token(context.new_id(), name, scope, at, expires)
    context.stores.tokens.add(token, _digest(secret))
    return token


@dataclass(frozen=True, slots=True)
class Credential:
    """The secret of a request: of a token or a session."""

    secret: str
    is_session: bool = False
    """Whether it came in a cookie, as a browser session."""


def check_credential(context: Context, credential: Credential) -> Token | None:
    """Return the token of a credential; None if it is unknown, revoked or expired.

    A token's secret is not accepted in a cookie, and a session's only there.
    """
    digest, at = _digest(credential.secret), context.clock.now()
    if credential.is_session:
        token = context.stores.browser_sessions.token_of(digest, at=at)
    else:
        token = context.stores.tokens.find(digest)
    if token is None or token.revoked_at is not None:
        return None
    if token.expires_at is not None and token.expires_at <= at:
        return None
    if token.last_used_at is None or at - token.last_used_at > _USED_EVERY:
        context.stores.tokens.used(token.id, at=at)
    identify(Person(token.name, token.id))
    return token


def begin_session(context: Context, token_secret: str) -> tuple[Credential, timedelta] | None:
    """Create a browser session from a token; return it with its lifetime.

    It ends with its token at the latest. None if the token is not valid.
    """
    token = check_credential(context, Credential(token_secret))
    if token is None:
        return None
    at = context.clock.now()
    until = at + SESSION_LIFE
    if token.expires_at is not None:
        until = min(until, token.expires_at)
    session = Credential(secrets.token_urlsafe(32), is_session=True)
    context.stores.browser_sessions.add(_digest(session.secret), token.id, at=at, expires_at=until)
    return session, until - at


def end_session(context: Context, session: Credential) -> None:
    """End a browser session; idempotent."""
    context.stores.browser_sessions.end(_digest(session.secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_of(host: str) -> str:
    """Return the name of the session cookie for a Host header.

    Browsers share cookies between the ports of a host: each controller there has its own name.
    """
    port = host.rpartition("]")[2].rpartition(":")[2]
    return f"seatrial_{port}" if port.isdecimal() else "seatrial"
