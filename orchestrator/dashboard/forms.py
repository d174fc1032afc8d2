"""Forms: their values, and the errors of each field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from orchestrator.domain.document_problems import InvalidDocumentError

LONGEST = 300
"""Characters of a word or a name that a person writes into a form."""
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]*")
_URL = re.compile(r"(https?://[!-~]+)?")


@dataclass(slots=True)
class Form:
    """The values of a form by field name."""

    values: Mapping[str, str] = field(default_factory=dict)
    mistakes: dict[str, str] = field(default_factory=dict)
    """The correction to make, by field."""
    problem: str = ""
    """The problem of the form as a whole."""

    @property
    def is_refused(self) -> bool:
        """Whether the form has errors."""
        return bool(self.mistakes or self.problem)

    def value(self, name: str) -> str:
        """Return the value of a field."""
        return self.values.get(name, "")

    def word(self, name: str, *, longest: int = LONGEST) -> str:
        """Return a field's value as one line of at most `LONGEST` characters."""
        text = self.value(name).strip()
        if len(text) > longest:
            self.mistakes[name] = f"is {len(text):,} characters long: at most {longest:,}"
        elif not _PLAIN.fullmatch(text):
            self.mistakes[name] = "must be one line without control characters"
        return text

    def filled(self, name: str, *, longest: int = LONGEST) -> str:
        """Return a field's value as one line; an empty one is an error of the field."""
        text = self.word(name, longest=longest)
        if not text:
            self.mistakes[name] = "must be filled in"
        return text

    def names(self, name: str) -> tuple[str, ...]:
        """Return the comma-separated names of a field."""
        text = self.word(name, longest=2_000)
        return tuple(part for part in (one.strip() for one in text.split(",")) if part)

    def url(self, name: str) -> str:
        """Return a field's HTTP(S) URL; empty without one."""
        text = self.word(name, longest=1_000)
        if not _URL.fullmatch(text):
            self.mistakes[name] = "must begin with https:// or http://, without spaces"
        return text

    def day(self, name: str) -> date:
        """Return a field's date; an invalid one is an error of the field."""
        try:
            return date.fromisoformat(self.value(name).strip())
        except ValueError:
            self.mistakes[name] = "must be a day such as 2026-11-30"
            return date.max

    def number(self, name: str, *, least: int, most: int) -> int:
        """Return a whole number; for an invalid one note the mistake and return `least`."""
        text = self.value(name).strip()
        known = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
        if known is None or not least <= known <= most:
            self.mistakes[name] = f"must be a whole number from {least:,} to {most:,}"
            return least
        return known

    def refuse(self, error: InvalidDocumentError) -> None:
        """Add the problems that an operation found to their fields."""
        rest = []
        for problem in error.problems:
            name = next((str(part) for part in reversed(problem.path) if part in self.values), "")
            if name:
                self.mistakes[name] = problem.message
            else:
                rest.append(str(problem))
        self.problem = "\n".join(rest)
