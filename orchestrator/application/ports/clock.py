"""Ports for time, identifiers and cron expressions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class CronError(ValueError):
    """The expression or the zone cannot be used; the text says what is wrong with it."""


class Cron(Protocol):
    """When a cron expression is due, in a time zone.

    Daylight saving time as cron treats it: what is due at a time that a day does not have is due
    when the clock has been put forward; what is due at a time that a day has twice is due once.
    """

    def next_after(self, expression: str, tz: str, after: datetime) -> datetime:
        """The first time, in UTC, that is later. Raises CronError.

        It is an error too that there is none within fifty years.
        """
        ...


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """Aware, in UTC."""
        ...


NewId = Callable[[], str]
"""Makes an id that is unique everywhere and sorts by time."""
