"""Keeps what AWS answered for a while, because places are asked for at every look."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from orchestrator.domain.machine import ProviderUnavailableError

KEPT = timedelta(minutes=10)
V = TypeVar("V")


class Remembered(Generic[V]):
    """Answers by key. Any thread may use it."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[datetime, V]] = {}

    def get(self, key: Hashable, ask: Callable[[], V]) -> V:
        """The answer, asked for again after `KEPT`; an older one serves while AWS is away."""
        with self._lock:
            kept = self._kept.get(key)
        now = self._now()
        if kept is not None and now - kept[0] < KEPT:
            return kept[1]
        try:
            answer = ask()
        except ProviderUnavailableError:
            if kept is None:
                raise
            return kept[1]
        with self._lock:
            self._kept[key] = (now, answer)
        return answer

    def forget(self, key: Hashable) -> None:
        """Ask again next time."""
        with self._lock:
            self._kept.pop(key, None)
