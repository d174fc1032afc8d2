"""Similarity of texts, by rapidfuzz."""

from __future__ import annotations

from rapidfuzz import fuzz


class FuzzySimilarity:
    """Similarity by edit distance."""

    def names(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 1: the share of common text in the same order."""
        return fuzz.ratio(one, other) / 100

    def messages(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 100, by rapidfuzz's token set ratio."""
        return fuzz.token_set_ratio(one, other)
