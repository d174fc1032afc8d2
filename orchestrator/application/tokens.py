"""API tokens: scoped, expiring, shown once and kept only as a digest."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.application.browser_sessions import (
    USED_EVERY,
    NewSession,
    begin_session,
    caller_of_session,
    digest_of,
    find_session,
)
from orchestrator.application.context import Context
from orchestrator.application.credentials import begin_check, end_check
from orchestrator.domain.caller_identity import (
    Caller,
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
_NOT_ALONE = (
    "jobs of `provider: local` run as the user {}, as `serve --local-jobs-as` says, and whoever has"
    " a token that launches can read what that user can, the signing key included: give it scope"
    " read, or restart the controller with an account for its jobs that owns nothing else"
)
_SHOWN = 4
"""Random characters of a secret that are shown; 39 are left."""


def create_token(
    context: Context, name: str, scope: Scope, *, days: int | None
) -> tuple[Token, str]:
    """Create a token. Only this call returns the secret.

    The token's name identifies its owner: an existing person's name keeps its spelling.

    Raises InvalidDocumentError if the name is not valid, or may have no token that launches.
    """
    if fault := name_fault(name):
        raise InvalidDocumentError("the token", [Problem(("name",), fault)])
    known = (one.name for one in context.stores.tokens.list())
    owner = next((one for one in known if person_key(one) == person_key(name)), shown_name(name))
    sole = context.sole_launcher
    if sole and launches_beside(sole, owner, scope):
        raise InvalidDocumentError("the token", [Problem(("scope",), _NOT_ALONE.format(sole))])
    secret = new_secret(context.sign_in.mark)
    return keep_token(context, owner, scope, secret, days=days), secret


def new_secret(mark: str) -> str:
    """Return a token's secret, which begins with the mark of its project."""
    return f"{PREFIX}{mark}{secrets.token_urlsafe(32)}"


def launches_beside(sole: str, name: str, scope: Scope) -> bool:
    """Whether a token of this name and scope lets another person than `sole` launch runs."""
    return scope is not Scope.READ and person_key(name) != person_key(sole)


def keep_token(
    context: Context, name: str, scope: Scope, secret: str, *, days: int | None
) -> Token:
    """Store a token with a given secret; idempotent."""
    found = context.stores.tokens.find(digest_of(secret))
    if found is not None:
        return found
    at, mark = context.clock.now(), context.sign_in.mark
    expires = at + timedelta(days=days) if days is not None else None
    # A foreign secret may be short, so at most four of its characters are shown.
    ours = max(len(one) for one in ("", PREFIX, f"{PREFIX}{mark}") if secret.startswith(one))
    prefix = secret[: ours + _SHOWN]
    token = Token(context.new_id(), name, scope, at, expires, prefix=prefix)
    context.stores.tokens.add(token, digest_of(secret))
    return token


@dataclass(frozen=True, slots=True)
class Credential:
    """The secret of a request: of a token or a session."""

    secret: str
    is_session: bool = False
    """Whether the secret is of a browser session, from a cookie."""


def check_credential(context: Context, credential: Credential) -> Caller | None:
    """Return the token of a credential; None for an unknown, revoked or expired credential.

    A token's secret is not accepted in a cookie, and a session's only there.

    Raises TooManyRequestsError where too many were refused before.
    """
    begin_check(credential.secret)
    if credential.is_session:
        caller = caller_of_session(context, credential.secret)
    else:
        token = _valid_token(context, credential.secret)
        caller = None if token is None else Caller(token.id, token.name, token.scope)
    end_check(credential.secret, is_accepted=caller is not None)
    if caller is not None:
        identify(caller.person)
    return caller


def is_valid(context: Context, credential: Credential) -> bool:
    """Whether a credential is neither unknown, revoked nor expired. It does not count as a use."""
    if credential.is_session:
        return find_session(context, credential.secret) is not None
    return _find_valid(context, credential.secret) is not None


def sign_in_with_token(context: Context, secret: str) -> NewSession | None:
    """Begin a browser session with a token or a sign-in link; None if it is not valid.

    Raises TooManyRequestsError where too many were refused before.
    """
    begin_check(secret)
    link = context.sign_in.link
    linked = link.redeem(secret, at=context.clock.now()) if link is not None else ""
    token = _valid_token(context, linked or secret)
    end_check(secret, is_accepted=token is not None)
    if token is None:
        return None
    caller = Caller(token.id, token.name, token.scope)
    identify(caller.person)
    return begin_session(context, caller, until=token.expires_at)


def _find_valid(context: Context, secret: str) -> Token | None:
    token = context.stores.tokens.find(digest_of(secret))
    return token if token is not None and token.is_valid(context.clock.now()) else None


def _valid_token(context: Context, secret: str) -> Token | None:
    """Return the token of a secret; None if it is not valid.

    The time of its use is stored, unless the stored time is at most `USED_EVERY` ago.
    """
    token, at = _find_valid(context, secret), context.clock.now()
    if token is None:
        return None
    if token.last_used_at is None or at - token.last_used_at > USED_EVERY:
        context.stores.tokens.used(token.id, at=at)
    return token
