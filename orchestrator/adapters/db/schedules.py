"""Schedules and their firings."""

from __future__ import annotations

from orchestrator.adapters.db.sessions import Sessions


class DbSchedules:
    """The ScheduleStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
