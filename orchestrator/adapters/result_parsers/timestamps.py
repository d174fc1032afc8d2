"""Timestamps in foreign documents, with or without a time zone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from orchestrator.domain.parsed_results import ParsedTime

_FIRST_YEAR: Final = 1990
_LAST_YEAR: Final = 2200
_LAST_S: Final = 4102444800.0
"""The beginning of the year 2100, in seconds since 1970."""
_LONGEST: Final = 64


def parsed_time(text: object) -> Iterator[ParsedTime]:
    """Yield an ISO 8601 time or date; nothing if it is invalid or implausible."""
    if not isinstance(text, str) or not len("2026-01-19") <= len(text.strip()) <= _LONGEST:
        return
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        return
    if _FIRST_YEAR <= read.year < _LAST_YEAR:
        yield ParsedTime(read)


def parsed_epoch(seconds: float | None) -> Iterator[ParsedTime]:
    """Yield the time of seconds since 1970; nothing if it is implausible."""
    if seconds is None or not math.isfinite(seconds) or not 0 < seconds < _LAST_S:
        return
    read = datetime.fromtimestamp(seconds, UTC)
    if read.year >= _FIRST_YEAR:
        yield ParsedTime(read)
