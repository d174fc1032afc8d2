"""What in a program's output says that something went wrong, and where it just stops."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.application.ports.dialects import Artifact

MESSAGE_LIMIT = 400
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}"
    r"(?:Error|Exception|Interrupt|Exit|Failure)(?:$|: )"
)
_FAILURE = re.compile(
    r"^\s{0,12}(?:❌|✗|✘|\[(?:FAIL|FAILED|ERROR)\]"
    r"|(?:error|fatal|fatal error)\s?[:!]\s{0,4}(?![-+]?[\d.])\S"
    r"|(?:FAILED|FATAL|ERROR)\b(?!\s?[:=]\s{0,4}[-+]?[\d.])"
    r"|Segmentation fault|Aborted\b|Killed\b|Fatal Python error)"
)
_FAILURE_WORD = re.compile(r"^\s{0,12}error\s?[:!]\s{0,4}(?![-+]?[\d.])\S", re.IGNORECASE)
_DOCUMENTS = (".md", ".html", ".htm", ".xml", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".rst")


@dataclass(slots=True)
class ErrorLines:
    """Watches lines for tracebacks and words of failure."""

    last: str = ""
    """The latest trouble, in one line; a caller that has told of it empties it."""
    _in_traceback: bool = False

    def see(self, line: str) -> None:
        """Note what went wrong."""
        if line.lstrip().startswith(_TRACEBACK):
            self._in_traceback = True
            self.last = self.last or "a traceback that does not end"
        elif self._in_traceback:
            self._see_in_traceback(line)
        elif _FAILURE.match(line) or _FAILURE_WORD.match(line) or _EXCEPTION.match(line):
            self.last = line.strip()[:MESSAGE_LIMIT]

    def _see_in_traceback(self, line: str) -> None:
        """The first line that is not indented names the exception."""
        if line[:1] not in ("", " ", "\t"):
            self._in_traceback = False
            self.last = line.strip()[:MESSAGE_LIMIT]

    def cut_off(self, what: str, *, torn: bool) -> str:
        """One sentence about an end that is not there."""
        words = [what]
        if torn:
            words.append("the text stops in the middle of a line")
        if self.last:
            words.append(f"the last trouble is: {self.last}")
        return "; ".join(words)


def is_torn(artifact: Artifact) -> bool:
    """Whether the text stops within a line."""
    last = (artifact.tail or artifact.head)[-2:]
    return bool(last) and b"\n" not in last and b"\r" not in last


def is_document(artifact: Artifact) -> bool:
    """Whether the name says that it is a document, and no output of a program."""
    return artifact.name.lower().endswith(_DOCUMENTS)
