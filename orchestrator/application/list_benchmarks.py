"""Every benchmark of a product with its newest value, and by how much its level has moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.application.context import Context
from orchestrator.application.ports.trends import ChangePoint, Watched
from orchestrator.store.benchmarks import Benchmark, Measuring, Overview, Point

FEWEST = 8
"""Runs from which on a step can be seen."""


class LevelChange(StrEnum):
    """How the level of a series has moved."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERS = "differs"
    """Nobody said which direction is the better one."""
    STEADY = "steady"
    SHORT = "short"
    """Too few runs to see a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkStatus:
    """A benchmark on a platform over the newest runs."""

    benchmark: Benchmark
    platform: str
    """The cell's name."""
    cells: Sequence[int]
    values: Sequence[float]
    change: ChangePoint | None
    """The last step of its level."""

    @property
    def loss(self) -> float:
        """0.05: the level is 5 % worse than the one before; below 0 it is better."""
        if self.change is None or self.benchmark.direction not in ("higher", "lower"):
            return 0.0
        change = self.change.change
        return change if self.benchmark.direction == "lower" else -change

    @property
    def moved(self) -> LevelChange:
        """In a word."""
        if len(self.values) < FEWEST:
            return LevelChange.SHORT
        if self.change is None:
            return LevelChange.STEADY
        if not self.loss:
            return LevelChange.DIFFERS
        return LevelChange.WORSE if self.loss > 0 else LevelChange.BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFilter:
    """Which benchmarks are asked for; what is empty takes any."""

    job: str = ""
    contains: str = ""
    platform: str = ""
    moved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPage:
    """Some of the benchmarks, what got worse by most first."""

    items: Sequence[BenchmarkStatus]
    newest: Mapping[int, Point]
    """By the place among the items: what the newest run measured."""
    cells: Mapping[int, Measuring]
    counts: Mapping[LevelChange, int]
    """Of all that are asked for, however they moved."""
    total: int
    platforms: Sequence[str]
    several: Collection[str]
    """Names that benchmarks of several units or parameters have."""


def list_benchmarks(
    context: Context, product: str, asked: BenchmarkFilter, *, runs: int, limit: int, skip: int
) -> BenchmarkPage:
    """Some of a product's benchmarks over its newest so many runs that measured something."""
    store = context.stores.benchmarks
    overview = store.overview(product, runs=runs, job=asked.job, contains=asked.contains)
    going = _going(context, overview, asked.platform)
    names = Counter(benchmark.name for benchmark in overview.benchmarks)
    counts = dict.fromkeys(LevelChange, 0)
    for one in going:
        counts[one.moved] += 1
    wanted = [one for one in going if asked.moved in ("", one.moved)]
    wanted.sort(key=lambda one: (-one.loss, one.benchmark.name, one.benchmark.number, one.platform))
    items = wanted[skip : skip + limit]
    points = store.points([one.benchmark.number for one in items], [one.cells[-1] for one in items])
    return BenchmarkPage(
        items=items,
        newest={at: points[one.benchmark.number, one.cells[-1]] for at, one in enumerate(items)},
        cells=overview.cells,
        counts=counts,
        total=len(wanted),
        several={name for name, many in names.items() if many > 1},
        platforms=sorted({cell.cell for cell in overview.cells.values()}),
    )


def _going(context: Context, overview: Overview, platform: str) -> list[BenchmarkStatus]:
    known = {benchmark.number: benchmark for benchmark in overview.benchmarks}
    series = {key: one for key, one in overview.series.items() if platform in ("", key[1])}
    places = {number: cell.environment for number, cell in overview.cells.items()}
    watched = [Watched(one.values, [places[cell] for cell in one.cells]) for one in series.values()]
    changes = context.gate.detector.changes(watched)
    return [
        BenchmarkStatus(
            benchmark=known[number],
            platform=name,
            cells=one.cells,
            values=one.values,
            change=steps[-1] if steps else None,
        )
        for ((number, name), one), steps in zip(series.items(), changes, strict=True)
    ]
