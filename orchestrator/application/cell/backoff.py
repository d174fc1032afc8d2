"""Waiting longer after each trouble in a row, at no two places in step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

BASE_S = 2.0
CAP_S = 60.0


@dataclass(slots=True)
class Backoff:
    """Exponential back-off with full jitter, by key; forgotten when the controller ends.

    The jitter is drawn from the key and the count, so that it can be repeated in a test.
    """

    _waits: dict[str, tuple[int, datetime]] = field(default_factory=dict)

    def is_due(self, key: str, now: datetime) -> bool:
        """Whether the next call may be made."""
        return key not in self._waits or now >= self._waits[key][1]

    def trouble(self, key: str, now: datetime) -> float:
        """Note one more trouble; answer how long to wait, in seconds."""
        count = self._waits[key][0] + 1 if key in self._waits else 1
        ceiling = min(CAP_S, BASE_S * 2.0 ** (count - 1))
        seconds = max(0.5, ceiling * _fraction(f"{key}|{count}"))
        self._waits[key] = (count, now + timedelta(seconds=seconds))
        return seconds

    def forget(self, key: str) -> None:
        """The call was answered."""
        self._waits.pop(key, None)


def _fraction(text: str) -> float:
    drawn: float = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / (1 << 64)
    return drawn
