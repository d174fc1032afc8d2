"""Marks in a log: where each job begins, and lines that failures begin with."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestrator.domain.manifest import IDENTIFIER, JOB_KINDS

_JOB = re.compile(
    rf"===== seatrial: ({IDENTIFIER.pattern}) \((?:{'|'.join(JOB_KINDS)})\) =====".encode()
)
_FAILURE = re.compile(
    rb"=+ (?:FAILURES|ERRORS) =+|Traceback \(most recent call last\):|\[FAIL\] .*"
)
_STARTS = (b"=====", b"Traceback (", b"[FAIL] ")
_LONGEST_BYTES = 400
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Section:
    """The lines of a job, from its heading on."""

    job: str
    first: int
    """Line number, from 1."""
    last: int


class LogMarks:
    """Collects the marks of a log, read piece by piece. At most `_MOST` of each kind are kept."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, str]] = []
        """Line numbers of headings, with their jobs."""
        self.failures: list[int] = []
        """Numbers of lines that a failure begins with."""
        self._ended = 0
        self._open = b""

    def scan(self, piece: bytes) -> None:
        """Read on; a piece may end within a line."""
        text = self._open + piece
        complete = text.rfind(b"\n") + 1
        for start in _STARTS:
            self._find(text, start, complete)
        self.jobs.sort()
        self.failures.sort()
        self._ended += text.count(b"\n", 0, complete)
        # Of a longer line no mark is made; its begin is enough to see that.
        self._open = text[complete : complete + _LONGEST_BYTES + 1]

    def sections(self, total: int) -> list[Section]:
        """Return every job's range of lines, in a log of `lines` lines."""
        known = [one for one in self.jobs if one[0] <= total]
        ends = [*(line - 1 for line, _ in known[1:]), total]
        return [Section(job, line, ends[at]) for at, (line, job) in enumerate(known)]

    def first_failure(self, total: int, failed: Collection[str]) -> int | None:
        """Return the line that the first failure begins with, or else its job's last one.

        Args:
            total: Number of lines.
            failed: Jobs that did not pass.
        """
        for section in self.sections(total):
            if section.job in failed:
                return _first_within(self.failures, section) or section.last
        return None

    def _find(self, text: bytes, start: bytes, end: int) -> None:
        counted, lines = 0, self._ended
        at = 0 if text.startswith(start) else text.find(b"\n" + start) + 1
        while (at or text.startswith(start)) and at < end:
            lines += text.count(b"\n", counted, at)
            counted = at
            stop = text.find(b"\n", at)
            self._note(text[at:stop].rstrip(b"\r"), lines + 1)
            following = text.find(b"\n" + start, stop)
            if following < 0:
                return
            at = following + 1

    def _note(self, line: bytes, number: int) -> None:
        if len(line) > _LONGEST_BYTES:
            return
        if (job := _JOB.fullmatch(line)) and len(self.jobs) < _MOST:
            self.jobs.append((number, job[1].decode("ascii")))
        elif _FAILURE.fullmatch(line) and len(self.failures) < _MOST:
            self.failures.append(number)


def _first_within(lines: Sequence[int], section: Section) -> int | None:
    return next((one for one in lines if section.first <= one <= section.last), None)
