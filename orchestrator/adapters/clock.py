"""The system clock, ids that sort by their time of creation, and cron expressions."""

from __future__ import annotations

import secrets
import threading
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from orchestrator.application.ports.clock import CronError
from orchestrator.domain.document_problems import nearest


class SystemClock:
    """The computer's clock."""

    def now(self) -> datetime:
        """Return the present time, timezone-aware, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""
        time.sleep(seconds)


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BITS = 80


class Ids:
    """Generates lower-case ULIDs of 26 characters: 48 bits of milliseconds, then 80 random bits.

    Each id is greater than the one before, even within a millisecond and after a clock reset.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> str:
        """Return the next id."""
        milliseconds = time.time_ns() // 1_000_000
        fresh = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        with self._lock:
            self._last = number = max(fresh, self._last + 1)
        return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))


new_id = Ids()
"""The generator of this process."""


_FIELDS = "minute hour day-of-month month day-of-week"


class CronsimCron:
    """Calculates due times of cron expressions with the library cronsim (`Cron`)."""

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
