"""Two threads that read a run's events and logs, and reconnect."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from orchestrator.cli.connect import (
    NO_ANSWER_LIMIT_S,
    RECONNECT_S,
    RUN_POLL_LONGEST_S,
    RUN_POLL_SHORTEST_S,
    WATCHED_LOG_POLL_S,
)
from orchestrator.cli.failure_logs import BadTest, FailingTests
from orchestrator.cli.safe_text import log_line, one_line
from orchestrator.cli.view.live_run import LOG_LINES, LogTail
from orchestrator.client.errors import RefusalError, SeatrialError, is_out_of_reach
from orchestrator.client.run_requests import StreamedEvent
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.run_record import RunResponse

_LOOKS_AT_ONCE = 8
"""Maximum parts of a log that are read in one poll."""
_LINE_LIMIT = 4096


class Tails:
    """Reads the log of one running cell at a time."""

    def __init__(self, client: Seatrial, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._cell = ""
        self._offset = 0
        self._lines: deque[str] = deque(maxlen=LOG_LINES * 2)
        self._torn = ""

    def look(self, run: RunResponse) -> LogTail:
        """Read new lines of the log; return its last lines. Raises UnreachableError."""
        cell = _chosen(run, self._cell)
        if cell != self._cell:
            self._cell, self._offset, self._torn = cell, 0, ""
            self._lines.clear()
        if cell:
            self._fetch()
        torn = log_line(self._torn)
        lines = (*self._lines, torn) if torn.strip() else tuple(self._lines)
        return LogTail(self._cell, lines[-LOG_LINES:])

    def _fetch(self) -> None:
        for _ in range(_LOOKS_AT_ONCE):
            try:
                data, after = self._client.log(self._run_id, self._cell, after=self._offset)
            except RefusalError:
                return  # no log yet
            self._take(data.decode(errors="replace"))
            if after <= self._offset:
                return
            self._offset = after

    def _take(self, text: str) -> None:
        *whole, torn = (self._torn + text).split("\n")
        self._torn = torn[-_LINE_LIMIT:]
        for line in whole[-LOG_LINES * 2 :]:
            safe = log_line(line[:_LINE_LIMIT])
            if safe.strip():
                self._lines.append(safe)


def _chosen(run: RunResponse, present: str) -> str:
    """Return the id of the cell whose log is shown.

    It is the present cell while it runs, else the first running cell.
    """
    running = [cell.id for cell in run.cells if cell.state in ("running", "preparing")]
    if present in running or not running:
        return present
    return running[0]


@dataclass(frozen=True, slots=True)
class RunNotice:
    """A notice of the controller about a run."""

    about: str
    """Id of the cell, or the event's kind for a notice about the run."""
    text: str

    def __str__(self) -> str:
        return f"{one_line(self.about)}: {one_line(self.text)}"


def notice_of(event: StreamedEvent) -> RunNotice | None:
    """Return an event's notice; None without one, or if the run's record shows the same text."""
    try:
        data = json.loads(event.data)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("shown"):
        return None
    text = data.get("notice")
    about = data.get("cell") or event.kind
    return RunNotice(str(about), text) if isinstance(text, str) and text else None


_JOIN_S = 0.3
_LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """The present state of a watched run."""

    answer: Answer[RunResponse]
    tail: LogTail = LogTail()
    bad: tuple[BadTest, ...] = ()
    """Every failing test found so far."""
    notices: tuple[RunNotice, ...] = ()
    """Notices in order."""
    trouble: str = ""
    """Reason why the state is out of date; empty if it is not."""

    @property
    def run(self) -> RunResponse:
        """The run's record."""
        return self.answer.record


class Follower:
    """Polls a run whenever its events report a change.

    `wake` is set at every change of `watched` or `fault`.
    """

    def __init__(
        self,
        feed: Seatrial,
        looks: Seatrial,
        first: Answer[RunResponse],
        wake: threading.Event,
        *,
        with_log: bool,
    ) -> None:
        """Each client is used by one thread only; `with_log` reads a running cell's log, too."""
        run = first.record
        self.watched = WatchedRun(first)
        self.fault: SeatrialError | None = None
        """A permanent error."""
        self._run_id = run.id
        self._feed = feed
        self._looks = looks
        self._tails = Tails(looks, run.id) if with_log else None
        self._failing = FailingTests(looks)
        self._notices: tuple[RunNotice, ...] = ()
        self._looked_at = time.monotonic()
        self._wake = wake
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._hurry = threading.Event()
        """Set when nothing is to be waited for: the run has ended, or watching stops."""
        self._threads = [
            threading.Thread(target=body, daemon=True) for body in (self._follow, self._look_on)
        ]

    def start(self) -> None:
        """Start the threads; they end with the process, with `stop`, or with the run."""
        for thread in self._threads:
            thread.start()

    def tell(self, trouble: str) -> None:
        """Store the reason why the state is out of date."""
        self.watched = replace(self.watched, trouble=trouble)
        self._wake.set()

    def stop(self) -> None:
        """Signal the threads to end; a thread that waits for the controller is not waited for."""
        self._stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_JOIN_S)

    def look(self) -> WatchedRun:
        """Return the present state; for a finished run, wait a moment for its last events."""
        watched = self.watched
        if not watched.run.is_finished:
            return watched
        feed = self._threads[0]
        if feed.is_alive():
            feed.join(_LAST_WORDS_S)
        return replace(watched, notices=self._notices)

    def _hear(self, event: StreamedEvent) -> None:
        notice = notice_of(event)
        if notice is not None:
            self._notices = (*self._notices, notice)

    def _stop(self) -> None:
        self._stopped.set()
        self._changed.set()
        self._hurry.set()

    def _follow(self) -> None:
        """Read the events, reconnecting from the last one."""
        last, is_over = "", False
        while not (is_over or self._stopped.is_set()):
            try:
                with self._feed.events(self._run_id, last=last) as events:
                    for event in events:
                        last, is_over = event.id or last, event.kind == "end"
                        self._hear(event)
                        self._changed.set()
                        if is_over or self._stopped.is_set():
                            break
            except SeatrialError:
                self._changed.set()  # the other thread finds and reports the problem
            if not is_over:
                self._stopped.wait(RECONNECT_S)
        self._hurry.set()
        self._feed.close()

    def _look_on(self) -> None:
        lost_at: float | None = None
        has_polled = True  # its caller has
        while not self._stopped.is_set() and not self.watched.run.is_finished:
            if has_polled:
                self._hurry.wait(RUN_POLL_SHORTEST_S)
            has_polled = True
            try:
                has_polled = self._look()
                lost_at = None
            except SeatrialError as error:
                if not is_out_of_reach(error):
                    self._end(error)
                    continue
                lost_at = lost_at or time.monotonic()
                self._lose(error, time.monotonic() - lost_at)
        self._looks.close()

    def _look(self) -> bool:
        """Read the log, and poll the run if it changed or is due; return whether it was polled."""
        changed = self._changed.wait(WATCHED_LOG_POLL_S)
        self._changed.clear()
        watched = self.watched
        is_due = changed or time.monotonic() - self._looked_at > RUN_POLL_LONGEST_S
        if is_due:
            answer = self._looks.run(watched.run.id)
            fresh = self._failing.fresh(answer.record)
            watched = replace(watched, answer=answer, bad=(*watched.bad, *fresh))
            self._looked_at = time.monotonic()
        tail = self._tails.look(watched.run) if self._tails is not None else watched.tail
        if changed or tail != self.watched.tail or watched is not self.watched:
            self.watched = replace(watched, tail=tail, notices=self._notices, trouble="")
            self._wake.set()
        return is_due

    def _lose(self, error: SeatrialError, lost_s: float) -> None:
        if lost_s > NO_ANSWER_LIMIT_S:
            self._end(error)
            return
        self.tell(f"{error.lines[0]}; trying again")

    def _end(self, error: SeatrialError) -> None:
        self.fault = error
        self._wake.set()
        self._stop()
