"""How alike texts are, by rapidfuzz."""

from __future__ import annotations

from rapidfuzz import fuzz


class FuzzySimilarity:
    """The Likeness of edit distances."""

    def names(self, one: str, other: str) -> float:
        """From 0 to 1: what of both is in the same order."""
        return fuzz.ratio(one, other) / 100

    def messages(self, one: str, other: str) -> float:
        """From 0 to 100: the words that both have against those that one of them has."""
        return fuzz.token_set_ratio(one, other)
