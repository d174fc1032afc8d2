"""Two runs beside each other: compared where they are stored, never test by test here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from orchestrator.domain.difference import Difference
from orchestrator.domain.outcome import TestOutcome

Pair = tuple[str, str]
"""The ids of two cells: before, after."""


class Counted(NamedTuple):
    """So many tests of one pair to which the same happened."""

    pair: int
    """The pair's place."""
    difference: Difference
    outcome: TestOutcome | None
    """Of those that are the same, how they went."""
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One test of one pair."""

    pair: int
    test: int
    """The test's number."""
    job: str
    nodeid: str
    was: str = ""
    """The name that it had before, where that was another one, as a person confirmed."""
    before: TestOutcome | None
    after: TestOutcome | None
    message: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Overview:
    """What differs at all."""

    counts: Sequence[Counted] = ()
    first: Sequence[Changed] = ()
    """Of each pair and kind so many, the worst kind first, by job, name and pair; none of those
    that are alike."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a cell's results were produced."""

    probed: Mapping[str, object] = field(default_factory=dict)
    """What the agent told."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the provider told: image, instance type, zone."""


class DifferenceStore(Protocol):
    """Compares cells. Each method is one transaction.

    Jobs whose earlier evidence stands are compared by that evidence; a test that has another name
    now, as a person confirmed, is the same test. Cells that are not done are as they are now.
    """

    def overview(self, pairs: Sequence[Pair], *, product: str, each: int) -> Overview:
        """How many tests there are of each pair and kind, and so many of those that differ."""
        ...

    def page(
        self,
        pairs: Sequence[Pair],
        *,
        product: str,
        kinds: Collection[Difference],
        limit: int,
        skip: int = 0,
    ) -> Sequence[Changed]:
        """Some of these kinds by job and name, after so many others."""
        ...

    def surroundings(self, cells: Sequence[str]) -> Mapping[str, Surroundings]:
        """By the cell's id; of the last attempt that told, here or where it was reused from."""
        ...
