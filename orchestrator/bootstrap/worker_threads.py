"""Threads for work that may take minutes, so that nothing else waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)


class Workers:
    """Does named work; what is under way is not begun again."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._guard = threading.Lock()
        self._under_way: set[str] = set()

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Do it as soon as a thread is free."""
        with self._guard:
            if name in self._under_way:
                return
            self._under_way.add(name)
        self._pool.submit(self._do, name, work)

    def _do(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except StoreError as error:
            logger.warning("%s waits for the store: %s", name, error)
        except Exception:
            logger.exception("%s failed; it is tried again", name)
        finally:
            with self._guard:
                self._under_way.discard(name)
