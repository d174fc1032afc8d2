"""Time and identity."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """Aware, in UTC."""
        ...


NewId = Callable[[], str]
"""Makes an id that is unique everywhere and sorts by time."""
