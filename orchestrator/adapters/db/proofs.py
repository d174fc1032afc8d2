"""Which jobs are proven by what, so that the unchanged is not run again."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbProofs:
    """The ProofStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
