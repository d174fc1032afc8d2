"""API tokens, without their secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.caller_identity import Scope


@dataclass(frozen=True, slots=True)
class Token:
    """An API token; its secret is not kept."""

    id: str
    name: str
    """Its owner's: tokens whose names are one person's (`person_key`) are that person's."""
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(Token):
    """A token that was just made."""

    secret: str
    """Shown here, and never again."""
