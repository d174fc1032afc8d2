"""Port of text similarity."""

from __future__ import annotations

from typing import Protocol


class TextSimilarity(Protocol):
    """Similarity of names and messages."""

    def names(self, one: str, other: str) -> float:
        """Return the similarity of two function names, from 0 to 1."""
        ...

    def messages(self, one: str, other: str) -> float:
        """Return the similarity of two masked messages, from 0 to 100, in any word order."""
        ...
