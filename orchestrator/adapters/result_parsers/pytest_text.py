"""The dialect ``pytest-text``: pytest's output on a terminal.

A log may have several sessions. With ``-v`` every test has a line; without it tests are counted,
and only those of the short summary have names. Sums count tests, not reports: a test that passed
and failed in its teardown is one error, where pytest counts one of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.adapters.result_parsers import pytest_text_lines as grammar
from orchestrator.adapters.result_parsers.log_notices import LogNotices
from orchestrator.adapters.result_parsers.pytest_text_lines import PytestFooter
from orchestrator.adapters.result_parsers.pytest_text_session import FATAL, WIDTH, PytestSession
from orchestrator.adapters.result_parsers.reported_failure import SelfReportReader
from orchestrator.adapters.result_parsers.text_lines import (
    Notes,
    StepFinder,
    failed_end,
    head_lines,
    is_coverage_limit,
    last_text,
    tail_lines,
    text_lines,
)
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.parsed_results import ParsedEnd, ParsedItem, ParsedProblem, Provenance

STARTS = "test session starts"
_SURE, _SUMMED, _NAMED, _COUNTED, _SHORT = 0.95, 0.9, 0.8, 0.7, 0.5
_QUOTED = 0.3
"""Confidence for a document that quotes a log."""
_DEATH = re.compile(
    r"(?:\S{1,80}: line \d{1,9}: +\d{1,9} )?"
    r"(?:Segmentation fault|Aborted|Killed|Bus error|Illegal instruction|Terminated)"
    r"(?: *\(core dumped\))?(?: {2,}.*)?"
)
_DEATHS = ("Segm", "Abor", "Kill", "Bus ", "Ille", "Term")
_OPENINGS = frozenset({"FAILURES", "ERRORS", "short test summary info"})


class PytestText:
    """Reads pytest's terminal output."""

    name = "pytest-text"
    version = 5
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return the confidence, from the first and the last lines."""
        if artifact.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"<", b"{"):
            return 0.0
        head, tail = head_lines(artifact), tail_lines(artifact)
        sure = _sureness(head, tail)
        return sure * _QUOTED if artifact.name.lower().endswith((".md", ".rst")) else sure

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the results of the log. Raises UnreadableError if it has no session."""
        notes, remarks, reader = Notes(), LogNotices(suite=True), _SessionReader()
        for line in text_lines(artifact, notes=notes, states=True):
            yield from reader.see(line)
            if reader.outside:
                reader.find_failed_step(line)
                yield from remarks.see(line)
        yield from reader.finish(last_text(artifact))
        yield from notes.statements()


class _SessionReader:
    """Splits the lines into sessions."""

    def __init__(self) -> None:
        self.outside = False
        self._session: PytestSession | None = None
        self._last: PytestFooter | None = None
        self._sessions = 0
        self._depth = 0
        """Depth of nested sessions in a test's output."""
        self._inner: PytestFooter | None = None
        self._codes: list[int] = []
        self._duration_s = 0.0
        self._is_torn = False
        self._fatal = ""
        self._is_hung = False
        self._steps = StepFinder()
        self._below = SelfReportReader()
        """Reads the lines below a session's sum, where another program may say that it failed."""
        self._step = ""
        """The first line, below a session, that says that a step had failed."""
        self._limit = ""
        """The first such line that failed tests do not explain: of a coverage limit."""
        self._stopped = ""
        """Why pytest stopped, of a session of which nothing but its sum follows, as with ``-q``."""
        self._refusal = ""
        """Text of pytest's error stream, which comes first if its output was buffered."""

    def see(self, line: str) -> Iterator[ParsedItem]:
        self.outside = True
        title = grammar.banner(line, "=")
        if title == STARTS:
            yield from self._starts(len(line.rstrip()))
            return
        summed = self._footer(line, title)
        if summed is not None:
            yield from self._sums(summed, line)
        elif self._session is not None:
            yield from self._inside(self._session, line)
        elif _opens(line, title):
            self._open(len(line.rstrip()) if title else WIDTH)
            yield from self.see(line)
        elif line.startswith("ERROR: "):
            self._refusal = line[7:507]
            yield from self._refuse(self._last)
        else:
            stopped = grammar.banner(line, "!")
            if stopped is not None or grammar.lettered(line) is not None:
                self._stopped = stopped or ""  # pytest prints it below the letters
            if self._sessions and not line.startswith("make"):  # its failures are steps
                self._below.take(line)
            self._look_for_death(line)

    def find_failed_step(self, line: str) -> None:
        """Note a failed step below a session, or a coverage limit in one.

        A failed step above the first session does not concern the tests, and a test may print one
        within a session.
        """
        step = self._steps.find(line)
        limit = step if self._sessions and is_coverage_limit(step) else ""
        self._limit = self._limit or limit
        self._step = self._step or (step if self._sessions and self._session is None else limit)

    def finish(self, end: str) -> Iterator[ParsedItem]:
        """Yield the end of the log, whose last lines are `end`.

        Raises UnreadableError if it has no session.
        """
        if self._session is not None:
            yield from self._close(self._inner_sum(self._session))
        if not self._sessions:
            raise UnreadableError("there is no session of pytest in it")
        if self._is_torn and not self._fatal:
            yield ParsedProblem("warning", "the log stops before pytest sums up")
            return
        cause = ("hung" if self._is_hung else "crashed") if self._fatal else ""
        code = next((code for code in self._codes if code), 0) if self._codes else None
        if not code and not self._step:
            self._step = self._below.failure(end) or failed_end(end)
        unexplained = self._limit if code else self._step
        if unexplained:
            yield ParsedProblem("error", f"a step failed: {unexplained}")
            code = code or 1
        yield ParsedEnd(
            exit_code=None if self._fatal else code,
            duration_s=round(self._duration_s, 6) if self._codes else None,
            cause=cause,
            detail=self._fatal or self._step,
        )

    def _refuse(self, footer: PytestFooter | None) -> Iterator[ParsedItem]:
        """Yield the reason why pytest refused to run, which it prints before or after its sum."""
        is_idle = footer is not None and not footer.counts and self._codes[-1:] == [5]
        if is_idle and self._refusal:
            self._codes[-1] = 4
            yield ParsedProblem("error", f"pytest refused: {self._refusal}")

    def _footer(self, line: str, title: str | None) -> PytestFooter | None:
        if title is not None:
            return grammar.footer(title)
        is_bare = line[:1].isdigit() or line.startswith("no tests ")
        if not is_bare or (self._session is not None and self._session.is_printed):
            return None
        return grammar.footer(line.rstrip())

    def _starts(self, width: int) -> Iterator[ParsedItem]:
        session = self._session
        if session is not None and session.is_printed:
            self._depth += 1
            return
        if session is not None:
            yield from self._close(None)
        self._open(width)

    def _sums(self, summed: PytestFooter, line: str) -> Iterator[ParsedItem]:
        if self._depth and self._session is not None:
            self._depth -= 1
            self._inner = summed
            self._session.text(line)
            self.outside = False
            return
        if self._session is None:
            if summed == self._last:
                return  # the same line repeated by a script that greps the log
            self._open(WIDTH).stopped = self._stopped
        self._stopped = ""
        yield from self._close(summed)

    def _inside(self, session: PytestSession, line: str) -> Iterator[ParsedItem]:
        if self._depth:
            session.text(line)
            self.outside = False
            return
        yield from session.see(line)
        self.outside = session.outside
        if session.outside:
            self._look_for_death(line)

    def _open(self, width: int) -> PytestSession:
        self._session = PytestSession(width=max(width, 20))
        self._sessions += 1
        self._depth, self._inner, self._fatal, self._is_torn = 0, None, "", False
        return self._session

    def _close(self, footer: PytestFooter | None) -> Iterator[ParsedItem]:
        session, self._session = self._session, None
        if session is None:
            return
        if footer is None and self._fatal and not session.fatal:
            session.fatal = self._fatal
        yield from session.finish(footer)
        self._last = footer
        self._is_torn = footer is None
        self._fatal = session.fatal if footer is None else ""
        self._is_hung = session.is_hung
        if footer is not None:
            self._codes.append(_exit_code(session, footer))
            doubt = session.doubts.contradiction()
            if doubt and not self._codes[-1]:
                self._codes[-1] = 1
                yield ParsedProblem("error", doubt)
            self._duration_s += footer.duration_s or 0.0
            yield from self._refuse(footer)
        self._refusal = ""

    def _inner_sum(self, session: PytestSession) -> PytestFooter | None:
        """Return the last sum inside a printed session if it fits the log's own tests."""
        inner = self._inner
        if not self._depth or inner is None:
            return None
        total = session.tests.total + session.tests.extra.total()
        return inner if total and sum(inner.counts.values()) == total else None

    def _look_for_death(self, line: str) -> None:
        if FATAL in line:
            self._fatal = line[line.find(FATAL) :][:500]
        elif (line.startswith(_DEATHS) or ": line " in line[:100]) and _DEATH.fullmatch(line):
            self._fatal = line[:500]


def _sureness(head: list[str], tail: list[str]) -> float:
    for line in head:
        if grammar.banner(line, "=") == STARTS:
            return _SURE
    if any(_is_sum(line) for line in tail):
        return _SUMMED
    if any(_is_result(line) for line in head):
        return _NAMED
    is_short = any(_is_lettered(line) for line in head)
    is_bare = any(line[:1].isdigit() and grammar.footer(line.rstrip()) for line in tail)
    return _COUNTED if is_short and is_bare else _SHORT if is_short or is_bare else 0.0


def _is_sum(line: str) -> bool:
    title = grammar.banner(line, "=")
    return title is not None and grammar.footer(title) is not None


def _is_result(line: str) -> bool:
    node = grammar.worker_line(line) or grammar.node_line(line)
    return node is not None and node.is_marked and bool(node.word)


def _is_lettered(line: str) -> bool:
    return grammar.lettered(line) is not None and grammar.marked(line)[2]


def _opens(line: str, title: str | None) -> bool:
    """Return whether the line belongs to a session whose beginning is missing."""
    if title is not None:
        return title in _OPENINGS
    if "::" in line:
        node = grammar.worker_line(line) or grammar.node_line(line)
        return node is not None and bool(node.word) and (node.is_marked or ".py::" in line)
    return _is_lettered(line)


def _exit_code(session: PytestSession, footer: PytestFooter) -> int:
    """Return the exit code that pytest must have had, from its sum."""
    if session.internal:
        return 3
    if session.refused:
        return 4
    if session.stopped and not session.stopped.startswith("stopping after"):
        return 2
    if footer.counts.get("failed") or footer.counts.get("error"):
        return 1
    return 0 if footer.collected or (footer.counts and not session.is_empty) else 5
