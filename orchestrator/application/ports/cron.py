"""When a cron expression is due, in a time zone."""

from __future__ import annotations

from typing import Protocol


class Cron(Protocol):
    """When a cron expression is due, in a time zone."""
