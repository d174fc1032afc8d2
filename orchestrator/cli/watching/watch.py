"""Watches a run until it ends, a signal arrives, or the time is over."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Literal

from orchestrator.cli.session import Session
from orchestrator.cli.watching.live_display import Display, LiveDisplay, PlainDisplay
from orchestrator.cli.watching.poll_threads import Follower, WatchedRun
from orchestrator.client.errors import SeatrialError
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.run_record import RunResponse

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 3


class Interrupts:
    """Context manager that counts interrupts.

    It sets no event, because the interrupted thread may hold the event's lock. The third interrupt
    raises KeyboardInterrupt, so that code that waits elsewhere ends too.
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


OnInterrupt = Literal["cancel", "detach"]


_PAUSES_S = (0.2,)
"""Seconds between tries of a poll."""


class WatchEnd(StrEnum):
    """The reason for which watching ended."""

    FINISHED = "finished"
    WAITED = "waited"
    DETACHED = "detached"


@dataclass(frozen=True, slots=True)
class WatchState:
    """The last state of the run, and the reason why watching ended."""

    end: WatchEnd
    watched: WatchedRun


def watch(
    session: Session,
    first: Answer[RunResponse],
    *,
    interrupts: Interrupts,
    timeout_minutes: float | None = None,
    on_interrupt: OnInterrupt = "detach",
) -> WatchState:
    """Display the run until it is finished. Raises CliError when it can no longer be read."""
    watcher = _Watcher(session, first, interrupts, on_interrupt)
    display: Display = LiveDisplay(session.err) if session.is_live else PlainDisplay(session.say)
    watched = watcher.run(display, timeout_minutes)
    display.finish(watched.watched, session.wiring.clock.now())
    return watched


class _Watcher:
    def __init__(
        self,
        session: Session,
        first: Answer[RunResponse],
        interrupts: Interrupts,
        on_interrupt: OnInterrupt,
    ) -> None:
        self._session = session
        self._interrupts = interrupts
        self._on_interrupt = on_interrupt
        # One connection for all threads, so that a lost controller is restarted only once.
        self._line = session.line(say=self._tell)
        self._wake = threading.Event()
        self._follower = Follower(
            self._client(), self._client(), first, self._wake, with_log=session.is_live
        )
        self._run_id = self._follower.watched.run.id
        self._cancelled = False

    def run(self, display: Display, timeout_minutes: float | None) -> WatchState:
        clock = self._session.wiring.clock
        limit = timedelta(minutes=timeout_minutes) if timeout_minutes is not None else None
        deadline = clock.now() + limit if limit is not None else None
        if not self._follower.watched.run.is_finished:
            self._follower.start()
        try:
            with display:
                while True:
                    watched = self._follower.look()
                    now = clock.now()
                    display.show(watched, now, watched.trouble or self._note())
                    end = self._end(watched, late=deadline is not None and now >= deadline)
                    if end is not None:
                        return WatchState(end, watched)
                    self._wake.wait(display.tick_s)
                    self._wake.clear()
        finally:
            self._follower.stop()

    def _end(self, watched: WatchedRun, *, late: bool) -> WatchEnd | None:
        if watched.run.is_finished:
            return WatchEnd.FINISHED
        if self._follower.fault is not None:
            raise self._follower.fault
        if self._interrupts.count and self._on_interrupt == "cancel" and not self._cancelled:
            self._cancelled = True
            threading.Thread(target=self._cancel, daemon=True).start()
        if self._interrupts.count > self._cancelled:
            return WatchEnd.DETACHED
        return WatchEnd.WAITED if late else None

    def _cancel(self) -> None:
        try:
            key = self._session.wiring.new_id()
            self._client().cancel(self._run_id, key=key)
        except SeatrialError as error:
            self._follower.fault = error
            self._wake.set()

    def _tell(self, text: str) -> None:
        self._follower.tell(text)

    def _note(self) -> str:
        if self._cancelled:
            return "cancelling; Ctrl-C once more leaves it alone"
        if self._on_interrupt == "cancel":
            return "Ctrl-C cancels the run"
        return f"Ctrl-C: leave it running · seatrial cancel {self._run_id}"

    def _client(self) -> Seatrial:
        clock = self._session.wiring.clock
        return Seatrial(self._line, clock, pauses_s=_PAUSES_S, say=self._tell)
