"""Problems in a document that a person wrote, with their position."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import PurePath

Path = tuple[str | int, ...]
SCALARS: dict[object, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Decimal: 'an amount such as "4.00"',
    date: "a day such as 2026-03-01",
    object: "text, a number, true or false",
}
"""Descriptions of value types for messages."""
_NUMBER = re.compile(r"[0-9]{1,9}")
MOST_NAMED = 30
"""Maximum number of valid names in a message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a document."""

    path: Path
    """Keys and indexes from the root of the document."""
    message: str
    line: int | None = None
    """Line, counted from 1; None if the document has no lines."""
    column: int | None = None

    def __str__(self) -> str:
        where = ".".join(str(part) for part in self.path) or "document"
        at = f"line {self.line}, column {self.column}: " if self.line is not None else ""
        return f"{at}{where}: {self.message}"


class InvalidDocumentError(ValueError):
    """A document has problems; nothing was changed."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        super().__init__(name, self.problems)

    def __str__(self) -> str:
        return "\n".join(f"{self.name}: {problem}" for problem in self.problems)


SUCH_AS = "such_as"
"""Key in a field's metadata: an example of a valid value, for messages."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest valid name.

    If none is close, return a list of the valid names.
    """
    names = sorted(valid)
    best = _closest(name, names)
    return f"; did you mean {best!r}?" if best else _listed("valid", names)


def nearest_file(name: str, files: Iterable[str]) -> str:
    """Return the advice of `nearest` for file names.

    Suffixes are ignored, because many files share them.
    """
    names = sorted(files)
    by_stem = {PurePath(one).stem: one for one in reversed(names)}
    best = _closest(PurePath(name).stem, sorted(by_stem))
    return f"; did you mean {by_stem[best]!r}?" if best else _listed("its folder has", names)


def _closest(name: str, names: Sequence[str]) -> str:
    """Return the closest name; empty if no name is close."""
    close = [one for one in names if one.lower() == name.lower()]
    close += _same_but_for_numbers(name, names)
    close += difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    # Transposed letters are the most common mistake.
    return next((one for one in close if sorted(one) == sorted(name)), close[0] if close else "")


def _same_but_for_numbers(name: str, names: Sequence[str]) -> list[str]:
    """Return the names that differ from it in their numbers alone, nearest numbers first."""
    numbers = list(map(int, _NUMBER.findall(name)))
    alike = [one for one in names if _NUMBER.sub("0", one) == _NUMBER.sub("0", name)]

    def distance(one: str) -> list[int]:
        found = map(int, _NUMBER.findall(one))
        return [abs(mine - other) for mine, other in zip(numbers, found, strict=True)]

    return sorted(alike, key=distance)


def _listed(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} others" if len(names) > MOST_NAMED else ""
    return f"; {what}: {', '.join(names[:MOST_NAMED])}{more}" if names else ""
