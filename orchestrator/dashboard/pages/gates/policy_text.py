"""The text of a policy with its lines counted, and what one version changed in another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.domain.document_problems import Problem

LINES_SHOWN = 400
LONGEST_LINE = 300
LONGEST_DIFF = 2_000
"""Lines of a text that two versions are compared up to: the search is quadratic."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a policy."""

    number: int
    text: str
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of a policy, and the number of lines not shown."""

    lines: Sequence[Line]
    more: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A line of a difference: ``+``, ``-``, a space, or ``@`` where some are left out."""

    sign: str
    text: str


def lines_of(text: str, problems: Sequence[Problem] = ()) -> Listing:
    """Return the numbered lines of a text; those with a problem are marked."""
    wrong = {problem.line for problem in problems}
    whole = text.splitlines()
    shown = [
        Line(number, line[:LONGEST_LINE], number in wrong)
        for number, line in enumerate(whole[:LINES_SHOWN], start=1)
    ]
    return Listing(shown, len(whole) - len(shown))


def diff_of(old: str, new: str) -> list[Changed] | None:
    """Return the changed lines; None for texts that are too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > LONGEST_DIFF:
        return None
    found = difflib.unified_diff(before, after, lineterm="", n=3)
    return list(_changed(found))[:LINES_SHOWN]


def _changed(lines: Iterator[str]) -> Iterator[Changed]:
    for number, line in enumerate(lines):
        if number >= 2:  # the names of the files
            yield Changed(line[:1], line[1:] if line[:1] != "@" else line)
