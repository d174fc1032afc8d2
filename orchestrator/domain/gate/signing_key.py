"""The keys that verdicts are signed with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.extend_record import extended


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key that verdicts are signed with; its private half is a file of one controller."""

    id: str
    """The sha256 of the key's canonical form, as securesystemslib makes it."""
    public: str
    """The raw 32 bytes of Ed25519, in hex."""
    created_at: datetime | None = None
    """None where a file says nothing of it."""
    not_after: datetime | None = None
    """It signs nothing after that."""
    retired_at: datetime | None = None
    """When a person ended it."""

    @property
    def ends_at(self) -> datetime | None:
        """When it stopped, or will stop, to sign; None where nothing is known of it."""
        known = [at for at in (self.not_after, self.retired_at) if at is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResponse(PublicKey):
    """A key at a time."""

    is_over: bool
    """It signs nothing any more, and still proves what it signed before."""


def key_answer(key: PublicKey, at: datetime) -> KeyResponse:
    """The key with its state at a time."""
    is_over = key.ends_at is not None and at >= key.ends_at
    return extended(KeyResponse, key, is_over=is_over)
