"""Credentials of requests: observation of their checks, and the sign-in link of `serve`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest
from threading import Lock
from typing import Protocol

_RANDOM = re.compile(r"(?:seatrial_)?(?:([a-z][a-z0-9-]*)\.)?[A-Za-z0-9_-]{43}")
"""Secrets of tokens, sessions and sign-in links: 256 random bits, for a further project after its
mark.
"""


class TooManyRequestsError(Exception):
    """A client has used up its limit of this minute; nothing was done."""


class BusyError(Exception):
    """Too many requests wait for their answers; nothing was done."""


class CredentialWatch(Protocol):
    """Counts the checks of a request's credentials; called from worker threads, too."""

    def begins(self, secret: str) -> None:
        """Count a secret before it is checked. Raises TooManyRequestsError."""

    def ends(self, secret: str, *, is_accepted: bool) -> None:
        """Record whether a secret that was checked or created is accepted."""


_WATCH: ContextVar[CredentialWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching_credentials(watch: CredentialWatch) -> Iterator[None]:
    """Notify `watch` of credentials that are checked in the block, also in worker threads."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def begin_check(secret: str) -> None:
    """Notify the watch before a secret is checked. Raises TooManyRequestsError."""
    if secret and (watch := _WATCH.get()) is not None:
        watch.begins(secret)


def end_check(secret: str, *, is_accepted: bool) -> None:
    """Notify the watch whether a secret was accepted."""
    if secret and (watch := _WATCH.get()) is not None:
        watch.ends(secret, is_accepted=is_accepted)


def can_be_guessed(secret: str) -> bool:
    """Whether a person may have chosen the secret: it does not look like 256 random bits."""
    return _RANDOM.fullmatch(secret) is None


def project_of(secret: str) -> str:
    """Return the further project that the secret names; empty for the first project."""
    found = _RANDOM.fullmatch(secret)
    return (found[1] or "") if found else ""


LINK_LIFE = timedelta(minutes=15)


@dataclass(slots=True)
class SignInLink:
    """A secret that is accepted in place of a token for one sign-in; kept in memory only."""

    until: datetime
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Secret of the link."""
    _token: str = field(default="", repr=False)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def to(cls, token: str, *, at: datetime) -> SignInLink:
        """Return a new link for a token's secret."""
        return cls(at + LINK_LIFE, _token=token)

    def redeem(self, secret: str, *, at: datetime) -> str:
        """Return the token's secret, once; empty for a wrong, used or expired link."""
        if at >= self.until or not compare_digest(secret.encode(), self.secret.encode()):
            return ""
        with self._lock:
            token, self._token = self._token, ""
        return token
