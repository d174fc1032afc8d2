"""Heartbeats, the deadline of the attempt, and requests to stop."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Dict, Optional, Tuple

from . import processes
from .attempt_errors import DiskFull, Stopped
from .events import EventWriter
from .evidence_text import JsonValue
from .layout import AttemptFolder
from .preemption_notices import Notices

_FULL_BELOW_BYTES = 1024 * 1024
_SILENT_S = 20.0
"""Minimum duration of a reported silence, in seconds."""


class Heartbeat:
    """Writes heartbeat events; checked several times a second wherever the agent waits."""

    def __init__(
        self,
        attempt: AttemptFolder,
        events: EventWriter,
        notices: Notices,
        *,
        heartbeat_s: float,
        left_s: float,
    ) -> None:
        self._notices = notices
        self._arm_report = False
        self._attempt = attempt
        self._events = events
        self._heartbeat_s = heartbeat_s
        self._deadline = time.monotonic() + left_s
        self._next_beat = time.monotonic()
        self._signalled: Optional[int] = None
        self._has_reported_silence = False

    def heed_signals(self) -> None:
        """Treat SIGTERM as a request to stop, and ignore the loss of the terminal.

        Handlers are used instead of SIG_IGN, which every job would inherit.
        """
        signal.signal(signal.SIGTERM, self._note)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, lambda *_: None)

    def beat(
        self,
        job: Optional[str] = None,
        test: Optional[str] = None,
        silence: Optional[Tuple[float, float]] = None,
    ) -> None:
        """Sync the events and write the heartbeat, each when it is due.

        Args:
            job: The running job.
            test: The running test.
            silence: Seconds without output, and the limit in seconds. A long silence is reported,
                and its end once.
        """
        self._hear()
        self._events.sync()
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + self._heartbeat_s
        processes.reap()
        free = free_bytes(self._attempt.folder)
        load = round(os.getloadavg()[0], 2)
        data: Dict[str, JsonValue] = {
            "job": job,
            "test": test,
            "disk_free_bytes": free,
            "load": load,
        }
        if silence is not None:
            silent_s, limit_s = silence
            is_silent = silent_s >= _SILENT_S
            if is_silent:
                data["silent_s"], data["idle_timeout_s"] = round(silent_s, 1), limit_s
            elif self._has_reported_silence:
                data["silent_s"] = 0.0
            self._has_reported_silence = is_silent
        self._events.emit("heartbeat", None, data)

    @property
    def hurried(self) -> bool:
        """Whether the machine is about to be preempted, so that slow work is to be left out."""
        return self._notices.notice is not None

    @property
    def left_s(self) -> float:
        """The seconds until the attempt's deadline."""
        return self._deadline - time.monotonic()

    def ending(self) -> Optional[Stopped]:
        """Return the reason to stop, or None."""
        self._hear()
        if self._notices.notice is not None:
            return Stopped("preempted", self._notices.notice)
        if self._attempt.stop.exists():
            return _stop_request(self._attempt.stop)
        if self._signalled is not None:
            name = signal.Signals(self._signalled).name
            return Stopped("cancelled", f"the agent got {name} (is the machine going down?)")
        if time.monotonic() >= self._deadline:
            return Stopped("deadline", "the plan's deadline has come")
        return None

    def check(self) -> None:
        """Write the heartbeat, and end the attempt if necessary.

        Raises:
            Stopped: a stop was requested, or the deadline has passed.
            DiskFull: nothing more can be written.
        """
        self.beat()
        ending = self.ending()
        if ending is not None:
            raise ending
        if self._events.disk_full:
            raise DiskFull("the disk is full")

    def _hear(self) -> None:
        """Log each of the provider's notices once."""
        trouble = self._notices.trouble()
        if trouble is not None:
            text = f"the machine's metadata does not answer ({trouble}): it may go without notice"
            self._events.log("warning", text)
        if self._notices.notice is not None and not self._arm_report:
            self._arm_report = True
            self._events.log("warning", self._notices.notice)
            self._events.sync(now=True)

    def _note(self, number: int, _frame: Optional[FrameType]) -> None:
        self._signalled = number


def free_bytes(folder: Path) -> int:
    """Return how much can still be written to the folder's disk."""
    return shutil.disk_usage(folder).free


def is_nearly_full(folder: Path) -> bool:
    """Return whether the disk is so full that writes in the folder are likely to fail."""
    return free_bytes(folder) < _FULL_BELOW_BYTES


def _stop_request(path: Path) -> Stopped:
    try:
        reason = path.read_text(encoding="utf-8", errors="replace").strip()[:500]
    except OSError:
        reason = ""
    kind = "deadline" if "deadline" in reason.lower() else "cancelled"
    return Stopped(kind, f"stopped by request: {reason or 'no reason given'}")
