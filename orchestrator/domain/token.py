"""API tokens, without their secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.caller_identity import Scope


@dataclass(frozen=True, slots=True)
class Token:
    """An API token without its secret."""

    id: str
    name: str
    """Name of its owner: tokens with equal names (`person_key`) belong to one person."""
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(Token):
    """A token that was just created."""

    secret: str
    """Shown only once."""
