"""Ports for time, identifiers and cron expressions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class CronError(ValueError):
    """The expression or the time zone is invalid; the text says what is wrong."""


class Cron(Protocol):
    """Due times of cron expressions in a time zone.

    Daylight saving time as cron treats it: what is due at a time that a day does not have is due
    when the clock has been put forward; what is due at a time that a day has twice is due once.
    """

    def next_after(self, expression: str, tz: str, after: datetime) -> datetime:
        """Return the next due time, in UTC. Raises CronError.

        It is also an error if there is no due time within fifty years.
        """
        ...


class Clock(Protocol):
    """The clock."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""
        ...


NewId = Callable[[], str]
"""Returns a globally unique id that sorts by time."""
