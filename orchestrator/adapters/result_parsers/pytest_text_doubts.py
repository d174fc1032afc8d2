"""Lines of a pytest session that contradict a sum without failures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.adapters.result_parsers import pytest_text_lines as grammar

_LIMIT = 300
_LINES = re.compile(
    r"\[gw\d{1,5}\] node down: "  # a worker of pytest-xdist crashed
    r"|\+{3,400} Timeout \+{3,400}$"  # pytest-timeout
    r"|!{3,400} (?:_pytest\.outcomes\.Exit: |Interrupted: |KeyboardInterrupt|stopping after \d)"
    r"|\S{1,200} failed \(\d{1,4} runs remaining out of \d{1,4}\)\.$"  # flaky
)


@dataclass(slots=True)
class SessionDoubts:
    """What a session has against a sum without failures."""

    failed_name: str = ""
    """The first test that the short summary says to have failed."""
    _line: str = ""
    _row: str = ""

    def see(self, line: str) -> None:
        """Read a line that no test printed, outside of tracebacks."""
        line = line.rstrip()
        if not self._line and _LINES.match(line):
            self._line = line[:_LIMIT]
        if not self._row and line.endswith("%]"):
            row = grammar.lettered(line)
            self._row = row[1][:_LIMIT] if row is not None and {*"FE"} & {*row[1]} else ""

    def contradiction(self) -> str:
        """Return the contradiction of a sum without failures; empty if there is none."""
        if self.failed_name:
            return f"its short summary names {self.failed_name}, and its sum no failure"
        if self._row:
            return f"its letters {self._row} tell of a failure, and its sum of none"
        return f"its sum has no failure, and it says: {self._line}" if self._line else ""
