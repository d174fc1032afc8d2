"""The keys that verdicts are signed with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.extend_record import extended


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public half of a signing key; its private half is a file of one controller."""

    id: str
    """sha256 of the key's canonical form, as in securesystemslib."""
    public: str
    """The raw 32 bytes of Ed25519, in hex."""
    created_at: datetime | None = None
    """None if the file does not state it."""
    not_after: datetime | None = None
    """The time after which the key signs nothing; None without one."""
    retired_at: datetime | None = None
    """When a person retired it."""

    @property
    def ends_at(self) -> datetime | None:
        """Return when the key stops signing; None if that is unknown."""
        known = [at for at in (self.not_after, self.retired_at) if at is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResponse(PublicKey):
    """A signing key with its present state."""

    is_over: bool
    """Whether it no longer signs; earlier signatures stay valid."""


def key_answer(key: PublicKey, at: datetime) -> KeyResponse:
    """Return the key with its state at a time."""
    is_over = key.ends_at is not None and at >= key.ends_at
    return extended(KeyResponse, key, is_over=is_over)
