"""Similarity of texts, by rapidfuzz, which is imported at its first use."""

# ruff: noqa: PLC0415
from __future__ import annotations


class FuzzySimilarity:
    """Similarity by edit distance."""

    def names(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 1: the share of common text in the same order."""
        from rapidfuzz import fuzz

        return fuzz.ratio(one, other) / 100

    def messages(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 100, by rapidfuzz's token set ratio."""
        from rapidfuzz import fuzz

        return fuzz.token_set_ratio(one, other)
