"""The sections in which pytest tells what went wrong: one bounded text after another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.adapters.dialects.pytest_text_lines import without_subtest
from orchestrator.adapters.dialects.pytest_text_tests import Failures
from orchestrator.domain.parsed_results import ParsedDetail

TEXT_LIMIT = 65_536
"""Characters of a text; the middle of a longer one is dropped."""
_TAIL_LINES = 40
MESSAGE_LIMIT = 500
CUT_MARK = "...[cut]..."
_PHASE = re.compile(r"ERROR (?:at (setup|teardown|call) of|(collecting)) (.+)")
_CRASHED = re.compile(r"worker '(gw\d{1,5})' crashed while running '(.+)'")
_CAPTURED = re.compile(r"-{3,200} (?:Captured|generated|coverage|live log) ")
_PLACE = re.compile(r"\S.*:\d+: \w+$")
_ONLY_SUM = re.compile(r"contains \d{1,9} failed subtests?")


@dataclass(slots=True)
class Detail:
    """One section's text, as it comes."""

    title: str
    is_printed: bool = False
    """What follows was printed by the test."""
    _lines: list[str] = field(default_factory=list)
    _tail: list[str] = field(default_factory=list)
    _size: int = 0
    _message: str = ""
    _first: str = ""
    _last: str = ""
    _node: str = ""

    def add(self, line: str) -> None:
        """The next line of it."""
        if not self.is_printed:
            self.is_printed = _CAPTURED.match(line) is not None
        if not self.is_printed:
            self._look_at(line)
        if self._size + len(line) < TEXT_LIMIT:
            self._lines.append(line)
            self._size += len(line) + 1
            return
        self._size = TEXT_LIMIT
        self._tail.append(line[:MESSAGE_LIMIT])
        if len(self._tail) > 2 * _TAIL_LINES:
            del self._tail[:_TAIL_LINES]

    def told(self, failures: Failures, *, is_error: bool) -> ParsedDetail | None:
        """What it says of which test; None where another section says it better."""
        name, phase = _named(self.title)
        message = self._said()
        if _ONLY_SUM.fullmatch(message):
            failures.named(name, is_error=is_error)
            return None
        if not phase or phase != "collection":
            name = self._node or failures.named(name, is_error=is_error)
        return ParsedDetail(name, message=message[:MESSAGE_LIMIT], text=self._text(), phase=phase)

    def _look_at(self, line: str) -> None:
        if not self._message and line.startswith("E "):
            self._message = line[1:].strip()
        if line.startswith("worker '"):
            crashed = _CRASHED.fullmatch(line)
            self._node = crashed[2] if crashed else self._node
        if line and not line.isspace() and not line.startswith("[gw"):
            self._first = self._first or line[:MESSAGE_LIMIT].strip()
            self._last = line[:MESSAGE_LIMIT].strip()

    def _said(self) -> str:
        if self._message:
            return self._message
        is_end = self._first.startswith("Traceback") or _PLACE.fullmatch(self._last)
        return self._last if is_end else self._first

    def _text(self) -> str:
        tail = [CUT_MARK, *self._tail[-_TAIL_LINES:]] if self._tail else []
        return "\n".join([*self._lines, *tail]).rstrip()


def _named(title: str) -> tuple[str, str]:
    found = _PHASE.fullmatch(title)
    if found is None:
        return without_subtest(title.removeprefix("[doctest] ")), ""
    if found[2]:
        return found[3], "collection"
    phase = found[1] if found[1] != "call" else ""
    return found[3].removeprefix("[doctest] "), phase
