"""Ctrl-C and its relatives, counted instead of raised: nothing is torn in the middle."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 3


class Interrupts:
    """While it is entered, an interrupt is a number that rises.

    It sets no event: an event's lock may be held by the very thread that is interrupted. The third
    one raises KeyboardInterrupt: whoever waits elsewhere must not be waited for.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from signal()

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= _PATIENCE:
            raise KeyboardInterrupt
