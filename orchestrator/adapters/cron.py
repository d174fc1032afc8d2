"""Cron expressions, with cron's rules for daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from orchestrator.application.ports.clock import CronError
from orchestrator.domain.document_problems import nearest

_FIELDS = "minute hour day-of-month month day-of-week"


class CronsimCron:
    """Implements the Cron."""

    def next_after(self, expression: str, tz: str, after: datetime) -> datetime:
        """Return the next due time, in UTC. Raises CronError."""
        local = after.astimezone(_zone(tz))
        try:
            times = CronSim(_five(expression), local)
        except CronSimError as error:
            raise CronError(f"{expression!r} is no cron expression ({_FIELDS}): {error}") from None
        for due in times:
            # In an hour that occurs twice, the library returns the first of both.
            if due.astimezone(UTC) > after:
                return due.astimezone(UTC)
        raise CronError(f"{expression!r} is never due: no such day exists within 50 years")


def _five(expression: str) -> str:
    """Return an expression of five fields. Raises CronError for any other number.

    The library would read a sixth field as seconds.
    """
    if len(expression.split()) != 5:
        count = len(expression.split())
        raise CronError(f"{expression!r} has {count} fields, and cron has five: {_FIELDS}")
    return expression


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = nearest(name, available_timezones()) if name else ""
        # There are too many valid names to list.
        near = near if "mean" in near else ""
        message = f"{name!r} is no time zone; they look like Europe/Berlin or UTC{near}"
        raise CronError(message) from None
