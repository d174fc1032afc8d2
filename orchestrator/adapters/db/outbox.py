"""Whom to tell, and what has not reached them yet."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbOutboxs:
    """The OutboxStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
