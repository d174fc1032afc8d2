"""The time of day, and the only place that waits for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The computer's own clock."""

    def now(self) -> datetime:
        """Aware, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
