"""Schedules and their firings."""

from __future__ import annotations

from typing import Protocol


class ScheduleStore(Protocol):
    """Schedules and their firings.

    Each method is one transaction.
    """
