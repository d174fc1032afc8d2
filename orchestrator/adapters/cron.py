"""Cron expressions, with daylight saving time as cron treats it."""

from __future__ import annotations


class CronsimCron:
    """Implements the Cron."""
