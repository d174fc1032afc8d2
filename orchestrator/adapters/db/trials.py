"""More executions of failed tests on the same machine, with one thing changed."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbTrials:
    """The TrialStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
