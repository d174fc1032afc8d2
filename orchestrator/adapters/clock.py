"""The system clock, and ids that sort by their time of creation."""

from __future__ import annotations

import secrets
import threading
import time
from datetime import UTC, datetime


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
    """Generates lower-case ULIDs: 26 characters, 48 bits of milliseconds, then 80 random bits.

    Each id is greater than the one before, within a millisecond and after a clock reset as well.
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
