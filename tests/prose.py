"""Faults of texts that people read: plurals, raw times, raw codes, digits, empty sections."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Outcome, Reason

_NOUNS = (
    "approval|attempt|benchmark|build|cell|check|commit|controller|day|demo|error|exception|failure"
    "|file|firing|flip|gate|group|hour|image|issue|job|line|machine|measurement|metric|minute"
    "|module|month|package|pair|pass|person|place|platform|quarantine|result|row|rule|run|sample"
    "|second|signature|skip|subject|suite|test|time|turn|variant|verdict|version|waiver|warning"
)
_MORE = r"(?:more |failed |skipped |known |judged |collected |other |older |newer )?"
_CODES = sorted(
    code for kind in (Outcome, Reason, CellState) for code in map(str, kind) if "_" in code
)
_FAULTS = {
    "one of several": re.compile(rf"(?<![\w.,:/#–-])(?<!of )1 {_MORE}(?:{_NOUNS})(?:e?s)\b(?! of)"),
    "several of one": re.compile(
        rf"(?<![\d.,:/#A-Za-z–-])(?:0|[2-9]|[1-9][\d,]+) {_MORE}(?:{_NOUNS})\b(?![-_/.:])"
    ),
    "a raw time": re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d|\d\d:\d\d:\d\d\.\d{3}|\d[+]00:00"),
    "a raw code": re.compile(rf"(?<![\w./`\"-])(?:{'|'.join(_CODES)})(?![\w./`\"-])"),
    "too many digits": re.compile(r"\b\d+\.\d{3,} ?(?:s|seconds|min|h)\b"),
}


def faults(text: str) -> list[str]:
    """What is wrong in a text: ``one of several: 1 tests``."""
    return [
        f"{what}: {text[max(found.start() - 40, 0) : found.end() + 20]!r}"
        for what, pattern in _FAULTS.items()
        for found in pattern.finditer(text)
    ]


def empty_sections(markdown: str) -> Iterator[str]:
    """Headings with nothing below them, and tables without rows."""
    lines = [line for line in markdown.splitlines() if line.strip() and line.strip() != "---"]
    for line, following in zip(lines, [*lines[1:], "# end"], strict=True):
        level, below = (len(one) - len(one.lstrip("#")) for one in (line, following))
        if level and 0 < below <= level:
            yield line
        if re.fullmatch(r"\|[-| :]+\|", line) and not following.startswith("|"):
            yield f"{line} without rows, before {following!r}"
