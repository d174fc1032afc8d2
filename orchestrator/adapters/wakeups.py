"""Ends the wait between two polls early when the polled machine sends a `wake` frame."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass

CALM_S = 2.0
"""Seconds between two polls of an armed key; a cancel request causes no wakeup before that."""


@dataclass(slots=True)
class _Wait:
    """State of one key."""

    is_woken: bool = False
    loop: asyncio.AbstractEventLoop | None = None
    event: asyncio.Event | None = None


class Wakeups:
    """Makes polls of an armed key rare, and the next one immediate when the key is woken.

    Any thread may use it.
    """

    def __init__(self, *, calm_s: float = CALM_S) -> None:
        """`calm_s` is the time between two polls of an armed key."""
        self._calm_s = calm_s
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}

    def arm(self, key: str) -> None:
        """Expect a call of `wake` for the key, before or during its next wait."""
        with self._lock:
            self._waits[key] = _Wait()

    def wake(self, key: str) -> None:
        """End the wait for the key, or the next one; does nothing if it is not armed."""
        with self._lock:
            wait = self._waits.get(key)
            if wait is None:
                return
            wait.is_woken = True
            if wait.loop is not None and wait.event is not None:
                with suppress(RuntimeError):  # the loop is closed, so no poll waits
                    wait.loop.call_soon_threadsafe(wait.event.set)

    async def wait(self, key: str, every_s: float) -> None:
        """Wait for `every_s` seconds; if the key is armed, longer, or until it is woken."""
        event = asyncio.Event()
        with self._lock:
            wait = self._waits.get(key)
            if wait is not None:
                wait.loop, wait.event = asyncio.get_running_loop(), event
                if wait.is_woken:
                    event.set()
        if wait is None:
            await asyncio.sleep(every_s)
            return
        try:
            async with asyncio.timeout(max(every_s, self._calm_s)):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._disarm(key, wait)

    def disarm(self, key: str) -> None:
        """Restore the polling interval of the callers for the key."""
        with self._lock:
            self._waits.pop(key, None)

    def _disarm(self, key: str, wait: _Wait) -> None:
        """Disarm the key unless it was armed again since."""
        with self._lock:
            if self._waits.get(key) is wait:
                del self._waits[key]
