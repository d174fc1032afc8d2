"""Locks by name, within this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Locks:
    """Locks by name; unused names take no memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait for the lock, and hold it."""
        with self._guard:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks[name]
                self._locks[name] = lock, waiting - 1
                if waiting == 1:
                    del self._locks[name]
