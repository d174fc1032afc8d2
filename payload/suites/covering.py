"""Pairwise test cases: few rows in which every pair of values of two axes occurs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows with one value of each axis, such that every pair of values occurs in a row.

    The choice is greedy: the next row is the one with the most pairs that have not occurred yet.
    """
    values = [list(axis) for axis in axes]
    sizes = [range(len(axis)) for axis in values]
    places = list(combinations(range(len(axes)), 2))
    rows = list(product(*sizes))
    missing = {(at, tuple(row[i] for i in at)) for row in rows for at in places}
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(missing & _pairs(row, places)))
        missing -= _pairs(best, places)
        chosen.append(tuple(axis[index] for axis, index in zip(values, best, strict=True)))
    return chosen


def _pairs(row: tuple[int, ...], places: list[tuple[int, int]]) -> set[tuple[Any, Any]]:
    return {(at, (row[at[0]], row[at[1]])) for at in places}
