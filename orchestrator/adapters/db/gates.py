"""Policies, verdicts, waivers and approvals. Nothing of it is ever changed."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbGates:
    """The GateStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
