"""What a comparison is of, and what came out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.compare_benchmarks import Delta
from orchestrator.application.compare_cells import Facing, Trait
from orchestrator.dashboard.labels import cut, visible
from orchestrator.domain.cell import Run
from orchestrator.domain.difference import Difference
from orchestrator.store.differences import Changed, Counted, Pair

_ONLY_AFTER = frozenset({Difference.NEW, Difference.NEW_FAILURE, Difference.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Two runs, their cells, and what differs."""

    before: Run
    after: Run
    product: str
    other_product: str
    """Of the older run, where that is another one."""
    facing: Sequence[Facing]
    pairs: Sequence[Pair]
    """Of those that have another one."""
    counts: Sequence[Counted]
    first: Sequence[Changed]
    """Of each pair and kind so many tests that differ, the worst kind first."""
    traits: Sequence[Trait]
    silent: Sequence[tuple[str, str]]
    """Cells of which a side told nothing of where it ran: (name, sides)."""
    deltas: Sequence[Delta]
    other_stack: frozenset[str]
    """Cells whose sides had another stack."""
    names: tuple[Sequence[str], Sequence[str]]
    """Of the cells of both runs."""

    @property
    def title(self) -> str:
        """``aurora 2.6.0rc1 → 2.6.0rc2``; both cells where platforms are compared."""
        if len(self.facing) == 1 and self.facing[0].how == "chosen":
            cells = f"{self.facing[0].name}, "
        else:
            cells = ""
        old = f"{self.before.subject_name} {self.before.subject_version}".strip()
        same = self.before.subject_name == self.after.subject_name
        new = self.after.subject_version if same else self.after.subject_name
        new = new if same else f"{new} {self.after.subject_version}"
        words = old if self.before.id == self.after.id else f"{old} → {new}"
        return visible(cut(f"Compare {cells}{words}", 200))

    def cell(self, pair: int) -> Facing:
        """Whose pair it is."""
        return [one for one in self.facing if one.pair is not None][pair]

    def of_pair(self, pair: int) -> Counter[Difference]:
        """How many tests of a pair went which way."""
        found: Counter[Difference] = Counter()
        for one in self.counts:
            if one.pair == pair:
                found[one.difference] += one.tests
        return found

    def lacking(self, pair: int) -> str:
        """``A``, ``B``, or ``A and B``, where these have no tests at all."""
        found = self.of_pair(pair)
        if not found:
            return "A and B"
        if set(found) <= {Difference.GONE, Difference.HIDDEN}:
            return "B"
        fresh = not set(found) - _ONLY_AFTER
        return "A" if fresh and Difference.NEW in found else ""

    @property
    def both_sided(self) -> Sequence[int]:
        """Places of the pairs in which there is something to compare."""
        return [at for at in range(len(self.pairs)) if not self.lacking(at)]

    @property
    def has_tests(self) -> bool:
        """Whether any platform has tests on both sides."""
        return bool(self.both_sided)

    def total(self, difference: Difference) -> int:
        """Tests of all pairs that went so, where both sides have tests."""
        sound = set(self.both_sided)
        mine = (one for one in self.counts if one.difference is difference and one.pair in sound)
        return sum(one.tests for one in mine)
