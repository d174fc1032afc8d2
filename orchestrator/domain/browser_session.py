"""Sessions of signed-in browsers, and how long they last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.domain.caller_identity import Scope


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a browser stays signed in."""

    life: timedelta = timedelta(hours=8)
    """From the sign-in, whatever is done."""
    idle: timedelta = timedelta(hours=1)
    """From the last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A session of a signed-in browser, without its secret."""

    id: str
    name: str
    """Who signed in: the token's name, or the issuer and the subject (`person_of_issuer`)."""
    display_name: str
    """What the issuer calls the person; only for showing. Empty for a token."""
    scope: Scope
    token: str | None
    """The token that it was begun with, and ends with; None after a sign-in at the issuer."""
    roles_digest: str
    """Digest of the issuer and its groups' roles at the sign-in there: it ends where they change.

    Empty for a token.
    """
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    address: str
    """The address from which it was begun; empty where that is not known."""
    agent: str
    """The User-Agent header with which it was begun."""

    def has_ended(self, at: datetime, limits: SessionLimits) -> bool:
        """Whether the session has expired, or was idle for too long, at that time."""
        return at >= self.expires_at or at >= self.last_used_at + limits.idle
