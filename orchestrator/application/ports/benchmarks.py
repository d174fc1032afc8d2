"""What benchmarks came to, run by run: figures for lists and trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A metric with one unit, one direction and one set of parameters."""

    number: int
    """Its own for good."""
    job: str
    name: str
    unit: str
    direction: str
    params: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """A cell that is done and has measured something."""

    run: str
    cell: str
    """The cell's name."""
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""
    environment: str
    """The fingerprint of where it ran; empty where that is not known."""


class Point(NamedTuple):
    """What a cell measured of a benchmark."""

    cell: int
    """Key of the cells that come with it."""
    value: float
    """The median of the samples."""
    low: float
    high: float
    """Quartiles; of fewer than five samples the extremes."""
    samples: int


class Series(NamedTuple):
    """How a benchmark went on a platform, in the order of the runs."""

    cells: Sequence[int]
    """Keys of the cells that come with it."""
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Overview:
    """Every benchmark over a product's newest runs."""

    benchmarks: Sequence[Benchmark] = ()
    cells: Mapping[int, Measuring] = field(default_factory=dict)
    series: Mapping[tuple[int, str], Series] = field(default_factory=dict)
    """By the benchmark's number and the cell's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One benchmark on one platform."""

    benchmark: Benchmark
    cells: Mapping[int, Measuring] = field(default_factory=dict)
    points: Sequence[Point] = ()
    """In the order of the runs."""
    older: int = 0
    """So many runs before these measured it, too."""


class Versus(NamedTuple):
    """A benchmark in both cells of a pair."""

    pair: int
    """The pair's place."""
    benchmark: int
    """Its number."""
    before: Point
    after: Point


class BenchmarkStore(Protocol):
    """What cells that are done have measured. Each method is one transaction.

    Of a job that was tried again the last attempt counts; machines that were simulated do not; of
    paired benchmarks the subject's turns are here.
    """

    def overview(self, product: str, *, runs: int, job: str = "", contains: str = "") -> Overview:
        """A product's benchmarks, as its newest so many runs that measured something went.

        Args:
            product: The payload's name.
            runs: So many.
            job: Only this job's; empty: any.
            contains: Only those whose name contains it, in letters of any size.
        """
        ...

    def points(
        self, benchmarks: Sequence[int], cells: Sequence[int]
    ) -> Mapping[tuple[int, int], Point]:
        """Some points with their spreads, by the benchmark's number and the cell."""
        ...

    def jobs(self, product: str) -> Sequence[str]:
        """Those that have benchmarks."""
        ...

    def variants(self, product: str, job: str, metric: str) -> Sequence[Benchmark]:
        """Every benchmark of this name: of each unit, direction and set of parameters."""
        ...

    def platforms(self, benchmark: int) -> Sequence[str]:
        """The cells' names that have measured it, by the newest run that did."""
        ...

    def track(self, benchmark: Benchmark, *, cell: str, runs: int) -> Track:
        """How it went on a platform over so many of its newest runs."""
        ...

    def samples(
        self, benchmark: Benchmark, cells: Sequence[int], *, most: int
    ) -> Mapping[int, Sequence[float]]:
        """What some of its points are made of, by the cell.

        Of more than so many samples those that stand at equal steps in the order of their size.
        """
        ...

    def environments(self, cells: Sequence[int]) -> Mapping[int, Mapping[str, object]]:
        """What the agents there told of their environments."""
        ...

    def beside(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Versus]:
        """What both cells of pairs have measured, by the cells' ids."""
        ...

    def known(self, benchmarks: Sequence[int]) -> Mapping[int, Benchmark]:
        """Benchmarks by their numbers."""
        ...

    def roll_up(self, *, limit: int) -> int:
        """Look at so many cells that nobody has looked at; return how many there were."""
        ...
