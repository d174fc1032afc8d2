"""How alike texts are."""

from __future__ import annotations

from typing import Protocol


class Likeness(Protocol):
    """Compares names and messages."""

    def names(self, one: str, other: str) -> float:
        """From 0 to 1, of two names of functions."""
        ...

    def messages(self, one: str, other: str) -> float:
        """From 0 to 100, of two masked messages, whatever the order of their words."""
        ...
