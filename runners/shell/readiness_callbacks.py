"""One thread that waits for bytes on many connections and calls back once for each."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable


class ReadinessCallbacks:
    """Calls back when a descriptor becomes readable; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call `call` once, from another thread, when the descriptor is readable."""
        with self._lock:
            self._drop(descriptor)
            self._calls[descriptor] = call
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._wait, name="readiness-callbacks", daemon=True
                )
                self._thread.start()

    def remove(self, descriptor: int) -> Callable[[], None] | None:
        """Stop watching the descriptor, which may be closed then; return its pending call."""
        with self._lock:
            return self._drop(descriptor)

    def _drop(self, descriptor: int) -> Callable[[], None] | None:
        call = self._calls.pop(descriptor, None)
        if call is not None:
            self._selector.unregister(descriptor)
        return call

    def _wait(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with self._lock:
                    call = self._drop(key.fd)
                if call is not None:
                    call()
