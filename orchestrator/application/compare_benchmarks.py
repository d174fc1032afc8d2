"""What two runs measured, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.store.benchmarks import Benchmark, Point
from orchestrator.store.differences import Pair
from orchestrator.store.stores import Stores


class MetricChange(StrEnum):
    """What a difference of two measurements comes to."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERS = "differs"
    """Nobody said which direction is the better one."""
    SINGLE = "single"
    """One of them is a single sample, which says nothing of its spread."""
    ALIKE = "alike"
    """The spreads touch."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A benchmark in both cells of a pair."""

    pair: int
    """The pair's place."""
    benchmark: Benchmark
    before: Point
    after: Point

    @property
    def change(self) -> float | None:
        """0.05: the newer median is 5 % higher; None where there is no ratio."""
        return self.after.value / self.before.value - 1 if self.before.value else None

    @property
    def loss(self) -> float:
        """0.05: 5 % worse; below 0 it is better; 0 where that cannot be said."""
        if self.change is None or self.benchmark.direction not in ("higher", "lower"):
            return 0.0
        return self.change if self.benchmark.direction == "lower" else -self.change

    @property
    def is_apart(self) -> bool:
        """The spreads do not touch; single samples are apart where they are not equal."""
        one, other = self.before, self.after
        return one.high < other.low or other.high < one.low

    @property
    def verdict(self) -> MetricChange:
        """In a word."""
        if not self.is_apart:
            return MetricChange.ALIKE
        if min(self.before.samples, self.after.samples) < 2:
            return MetricChange.SINGLE
        if not self.loss:
            return MetricChange.DIFFERS
        return MetricChange.WORSE if self.loss > 0 else MetricChange.BETTER


def deltas_of(stores: Stores, pairs: Sequence[Pair]) -> Sequence[Delta]:
    """Every benchmark that both cells of a pair have measured, what got worse by most first."""
    if not pairs:
        return ()
    found = stores.benchmarks.beside(pairs)
    known = stores.benchmarks.known([one.benchmark for one in found])
    deltas = [Delta(one.pair, known[one.benchmark], one.before, one.after) for one in found]
    return sorted(deltas, key=_rank)


def _rank(delta: Delta) -> tuple[bool, float, str, int]:
    return not delta.is_apart, -round(delta.loss, 6), delta.benchmark.name, delta.pair
