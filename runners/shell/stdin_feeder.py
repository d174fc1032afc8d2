"""Streams a command's standard input from a thread of its own.

Input and output have to move at the same time: a command that answers while it is still being fed
fills one direction's window, and both sides would wait for each other for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from paramiko.ssh_exception import SSHException

JOIN_S = 1.0
STREAM_ERRORS = (OSError, EOFError, SSHException)


class Feeder:
    """Writes an iterable of bytes into a command, until its end or until nobody reads any more."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        write: Callable[[memoryview], int],
        finish: Callable[[], None],
        abandon: Callable[[], None],
    ) -> None:
        """Prepare to feed.

        Args:
            chunks: What to write; iterated in the feeding thread.
            write: Writes a part of what it is given and returns its length; 0 when the command
                reads no more. It may raise what a broken stream raises.
            finish: Tells the command that this was all.
            abandon: Ends the command when `chunks` itself failed, as it must never take a
                part for the whole.
        """
        self.sent_bytes = 0
        self.error: BaseException | None = None
        self._chunks = chunks
        self._write = write
        self._finish = finish
        self._abandon = abandon
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to feed; without input, end it here and now."""
        if self._chunks == ():
            self._end(self._finish)
            return
        self._thread = threading.Thread(target=self._feed, name="shell-stdin", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Feed no further. Answers whether feeding is over, not stuck in the caller's iterable."""
        self._stopped = True
        if self._thread is None:
            return True
        self._thread.join(timeout=JOIN_S)
        return not self._thread.is_alive()

    def raise_error(self) -> None:
        """Raise what went wrong in the caller's own iterable, if anything did."""
        if self.error is not None:
            raise self.error

    def _feed(self) -> None:
        try:
            for chunk in self._chunks:
                if not self._put(memoryview(chunk)):
                    return
        except BaseException as error:  # noqa: BLE001 - the caller of run() gets it, whatever it is
            self.error = error
            self._end(self._abandon)
        else:
            self._end(self._finish)

    def _put(self, rest: memoryview) -> bool:
        while rest:
            try:
                written = 0 if self._stopped else self._write(rest)
            except STREAM_ERRORS:
                return False
            if written == 0:
                return False
            self.sent_bytes += written
            rest = rest[written:]
        return not self._stopped

    @staticmethod
    def _end(action: Callable[[], None]) -> None:
        try:
            action()
        except STREAM_ERRORS:
            return  # the command is gone already; its status says how
