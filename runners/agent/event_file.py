"""Passes what a job says in ``$SEATRIAL_EVENTS`` on to the event stream."""

from __future__ import annotations

from typing import Callable, List, Optional

from .event_lines import BadLineError, understand
from .events import Data, EventWriter
from .tail import Line, Tail

UNUSABLE = "unusable-events"
"""The failed check of a job that said what cannot be read: it may have been a failure."""

_LINES = 50_000
_WARNINGS = 20


class Checks:
    """Follows one job's own lines."""

    def __init__(
        self,
        tail: Tail,
        events: EventWriter,
        job: str,
        *,
        hear: Optional[Callable[[str, Data], None]] = None,
    ) -> None:
        """Prepare to follow.

        Args:
            tail: Of the file with the lines.
            events: Where complaints about bad lines go, and everything else without `hear`.
            job: Whose lines they are.
            hear: Takes every understood line, with its kind, instead of the event stream.
        """
        self._tail = tail
        self._events = events
        self._job = job
        self._hear = hear or self._emit
        self._taken = 0
        self._bad = 0
        self._unusable = ""

    def poll(self) -> bool:
        """Take what was said since the last look; say whether there was any."""
        return self._take(self._tail.poll())

    def drain(self) -> None:
        """Take the rest; the job is over."""
        self._take(self._tail.drain())
        self._tail.close()
        if self._bad > _WARNINGS:
            text = f"{self._bad} lines in $SEATRIAL_EVENTS were bad; {_WARNINGS} are named above"
            self._events.log("warning", text, self._job)
        if self._taken > _LINES:
            text = f"$SEATRIAL_EVENTS held {self._taken} lines; those after {_LINES} were left out"
            self._events.log("warning", text, self._job)
            self._unusable = self._unusable or text
        if self._unusable:
            self._hear("check", {"check": UNUSABLE, "outcome": "failed", "reason": self._unusable})

    def _take(self, lines: List[Line]) -> bool:
        for number, line, wrong in lines:
            self._taken += 1
            if self._taken > _LINES:
                continue
            try:
                if line is None:
                    raise BadLineError(wrong)
                kind, data = understand(line)
            except BadLineError as error:
                self._complain(number, error)
            else:
                self._hear(kind, data)
        return bool(lines)

    def _emit(self, kind: str, data: Data) -> None:
        if kind != "turn":  # of a benchmark that nobody has asked to take turns
            self._events.emit(kind, self._job, data)

    def _complain(self, number: int, error: BadLineError) -> None:
        self._bad += 1
        text = f"line {number} of $SEATRIAL_EVENTS is left out: {error}"
        self._unusable = self._unusable or text
        if self._bad <= _WARNINGS:
            self._events.log("warning", text, self._job)
