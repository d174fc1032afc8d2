"""The system clock: time of day and sleeping."""

from __future__ import annotations

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
