"""The link that `serve` prints: it signs one browser in, once, soon after the start."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest
from threading import Lock

LINK_LIFE = timedelta(minutes=15)


@dataclass(slots=True)
class SignInLink:
    """A secret that is accepted in place of a token for one sign-in; kept in memory only."""

    until: datetime
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Of the link."""
    _token: str = field(default="", repr=False)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def to(cls, token: str, *, at: datetime) -> SignInLink:
        """Return a new link to a token, by its secret."""
        return cls(at + LINK_LIFE, _token=token)

    def redeem(self, secret: str, *, at: datetime) -> str:
        """Return the token's secret, once; empty for another secret, or too late."""
        if at >= self.until or not compare_digest(secret.encode(), self.secret.encode()):
            return ""
        with self._lock:
            token, self._token = self._token, ""
        return token
