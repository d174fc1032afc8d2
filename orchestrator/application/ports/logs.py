"""Logs as bytes: what each attempt's machine wrote. Each method is one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """How much there is of an attempt's log."""

    attempt_id: str
    number: int
    """The attempt's, from 1."""
    size_bytes: int
    is_over: bool
    """The attempt is closed: nothing more comes."""


class LogStore(Protocol):
    """The logs of attempts; they only ever grow."""

    def of_cell(self, cell_id: str) -> list[AttemptLog]:
        """One for each attempt, in their order, however short."""
        ...

    def read(self, attempt_id: str, *, after: int, limit: int) -> bytes:
        """The bytes that follow an offset, as far as there are any. Raises UnknownIdError."""
        ...
