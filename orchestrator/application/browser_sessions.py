"""Browser sessions: begin, find, end, list. Only the SHA-256 of a session's secret is stored."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from orchestrator.application.context import Context
from orchestrator.application.credentials import end_check
from orchestrator.application.ports.identity_provider import IssuedIdentity, SignInRefusedError
from orchestrator.domain.caller_identity import (
    LONGEST_NAME,
    BrowserSession,
    Caller,
    Person,
    Scope,
    person_of_issuer,
    shown_name,
)
from orchestrator.store.audit_recorder import identify, note, origin
from orchestrator.store.sql import ListPage, PageAsked

USED_EVERY = timedelta(minutes=1)
"""Minimum interval of storing the last use of a token or a session."""
_LONGEST_DISPLAY_NAME = 100
_EVERYBODY = "*"
_RANK = list(Scope)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that was just begun."""

    secret: str
    """The secret, for the browser's cookie; only its digest is stored."""
    life: timedelta


def begin_session(context: Context, caller: Caller, *, until: datetime | None) -> NewSession:
    """Begin a session of a token's owner.

    The session ends when the token ends, at `until`, or after the longest life of a session,
    whichever is first.
    """
    return _begin(context, caller, token=caller.id, until=until, id_token=None)


def begin_session_at_issuer(context: Context, identity: IssuedIdentity) -> NewSession:
    """Begin a session of somebody whom the issuer has authenticated.

    Raises SignInRefusedError if none of their groups has a role, or their name cannot be used.
    """
    name = person_of_issuer(identity.issuer, identity.subject)
    if not (name.isascii() and name.isprintable() and len(name) <= LONGEST_NAME):
        raise SignInRefusedError(
            f"the issuer and its subject must be at most {LONGEST_NAME} printable ASCII characters"
            f" together: {name[:LONGEST_NAME]!r}"
        )
    identify(Person(name, ""))
    scope = _highest(scope for group, scope in context.sign_in.roles if _is_in(identity, group))
    if scope is None:
        raise SignInRefusedError(
            f"{name} is in no group that has a role here: ask its operator to add"
            " one of your groups to SEATRIAL_OIDC_ROLES, or the issuer's administrator to put you"
            " into one"
        )
    shown = shown_name(identity.display_name)[:_LONGEST_DISPLAY_NAME]
    caller = Caller("", name, scope, shown)
    return _begin(context, caller, token=None, until=None, id_token=identity.id_token)


def _is_in(identity: IssuedIdentity, group: str) -> bool:
    return group == _EVERYBODY or group in identity.groups


def _highest(scopes: Iterable[Scope]) -> Scope | None:
    return max(scopes, key=_RANK.index, default=None)


def _begin(
    context: Context,
    caller: Caller,
    *,
    token: str | None,
    until: datetime | None,
    id_token: str | None,
) -> NewSession:
    at = context.clock.now()
    ends = at + context.sign_in.sessions.life
    ends = min(ends, until) if until is not None else ends
    secret = f"{context.sign_in.mark}{secrets.token_urlsafe(32)}"
    address, agent = origin()
    session = BrowserSession(
        id=context.new_id(),
        name=caller.name,
        display_name=caller.display_name,
        scope=caller.scope,
        token=token,
        roles_digest="" if token is not None else _roles_digest(context),
        created_at=at,
        last_used_at=at,
        expires_at=ends,
        address=address,
        agent=agent,
    )
    context.stores.browser_sessions.add(session, digest_of(secret), id_token=id_token)
    note(_resource(session), after=_shown(session))
    end_check(secret, is_accepted=True)
    return NewSession(secret, ends - at)


def find_session(context: Context, secret: str) -> BrowserSession | None:
    """Return a session; None if it is unknown or has ended.

    The time of its use is not stored.
    """
    session = context.stores.browser_sessions.find(digest_of(secret))
    if session is None or _has_ended(context, session, context.clock.now()):
        return None
    return session


def caller_of_session(context: Context, secret: str) -> Caller | None:
    """Return the caller of a session; None if it is unknown or has ended.

    The time of its use is stored, unless the stored time is at most `USED_EVERY` ago.
    """
    session, at = find_session(context, secret), context.clock.now()
    if session is None:
        return None
    if at - session.last_used_at > USED_EVERY:
        context.stores.browser_sessions.used(session.id, at=at)
        if session.token is not None:
            context.stores.tokens.used(session.token, at=at)
    return Caller(
        session.token or session.id,
        session.name,
        session.scope,
        session.display_name,
        is_person=session.token is None,
    )


def end_session(context: Context, secret: str) -> str | None:
    """End a session; idempotent.

    Return the ID token of a session that was begun at an issuer; None for other sessions.
    """
    sessions = context.stores.browser_sessions
    session = sessions.find(digest_of(secret))
    if session is None:
        return None
    id_token = sessions.id_token(session.id)
    revoke_session(context, session.id)
    return id_token


def revoke_session(context: Context, session_id: str) -> bool:
    """End a session by its id; return False if it is unknown or has ended."""
    ended = context.stores.browser_sessions.end(session_id)
    if ended is None:
        return False
    note(_resource(ended), before=_shown(ended))
    return True


def _resource(session: BrowserSession) -> str:
    return f"sessions/{session.id}"


def _shown(session: BrowserSession) -> Mapping[str, object]:
    """Return the fields of a session that the audit log records."""
    unshown = ("id", "roles_digest", "last_used_at")
    return {name: value for name, value in asdict(session).items() if name not in unshown}


def list_sessions(
    context: Context, page: PageAsked[str] | None = None
) -> ListPage[BrowserSession, str]:
    """Return sessions that have not ended, oldest first; fewer than the page's limit."""
    at = context.clock.now()
    found = context.stores.browser_sessions.list(page)
    return ListPage((one for one in found if not _has_ended(context, one, at)), found.next)


def _has_ended(context: Context, session: BrowserSession, at: datetime) -> bool:
    """Whether the session has ended, or the issuer or its roles have changed since it was begun."""
    is_of_issuer = session.token is None
    if is_of_issuer and session.roles_digest != _roles_digest(context):
        return True
    return session.has_ended(at, context.sign_in.sessions)


def _roles_digest(context: Context) -> str:
    """Return the digest of the issuer and of the roles that its groups have."""
    issuer = context.sign_in.issuer
    known = [issuer.issuer if issuer else "", sorted(context.sign_in.roles)]
    return digest_of(json.dumps(known))


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret, in hex; it is stored in place of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_of(host: str) -> str:
    """Return the name of the session cookie for a Host header.

    Browsers share cookies between the ports of a host, so the name contains the port.
    """
    port = host.rpartition("]")[2].rpartition(":")[2]
    return f"seatrial_{port}" if port.isdecimal() else "seatrial"
