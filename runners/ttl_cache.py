"""Caches a cloud's answers for a limited time, because places are requested often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from orchestrator.domain.machine import ProviderUnavailableError

KEPT = timedelta(minutes=10)
V = TypeVar("V")


class TtlCache(Generic[V]):
    """Caches answers by key for a limited time, but no errors. Any thread may use it."""

    def __init__(
        self, now: Callable[[], datetime], *, serve_stale: bool, kept: timedelta = KEPT
    ) -> None:
        """Create an empty cache.

        Args:
            now: The clock.
            serve_stale: Return an older answer while the provider is unavailable.
            kept: Time for which an answer is reused.
        """
        self._now = now
        self._serve_stale = serve_stale
        self._kept_for = kept
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[datetime, V]] = {}

    def get(self, key: Hashable, ask: Callable[[], V]) -> V:
        """Return the cached answer, or a new one. Raises what `ask` raises."""
        with self._lock:
            kept = self._kept.get(key)
        now = self._now()
        if kept is not None and timedelta(0) <= now - kept[0] < self._kept_for:
            return kept[1]
        try:
            answer = ask()
        except ProviderUnavailableError:
            if kept is None or not self._serve_stale:
                raise
            return kept[1]
        with self._lock:
            self._kept[key] = (now, answer)
        return answer

    def forget(self, key: Hashable) -> None:
        """Drop the cached answer, so that the next `get` requests it."""
        with self._lock:
            self._kept.pop(key, None)
