"""Flaky tests whose failures do not count until a day."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbQuarantines:
    """The QuarantineStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
