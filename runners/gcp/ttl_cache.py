"""What the cloud was asked a short while ago."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar, cast

T = TypeVar("T")
_KEEP = timedelta(minutes=10)


class Memory:
    """Keeps answers for ten minutes; errors are never kept."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._kept: dict[str, tuple[datetime, object]] = {}

    def get(self, key: str, ask: Callable[[], T]) -> T:
        """The kept answer, or a fresh one."""
        at = self._now()
        known = self._kept.get(key)
        if known is not None and timedelta(0) <= at - known[0] < _KEEP:
            return cast("T", known[1])
        answer = ask()
        self._kept[key] = (at, answer)
        return answer
