"""Tests by cells, read so that no more rows are touched than a page shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.domain.alias import KnownTest
from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """A cell of a run, as a column of tests' results."""

    number: int
    """By which the other methods ask for its results."""
    run: str
    name: str
    version: str
    at: datetime
    """When its run was launched, or is said to have happened."""
    state: CellState
    outcome: Outcome | None
    counts: Counts
    """None while it is not done."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come from it."""
        return self.state is CellState.DONE


@dataclass(frozen=True, slots=True)
class TestsWanted:
    """Which tests a grid is asked for."""

    __test__ = False

    words: Sequence[str] = ()
    """All of them stand in the node id; `*` stands for anything."""
    without: Sequence[str] = ()
    """None of these does."""
    job: str = ""


ANY_TEST = TestsWanted()


@dataclass(frozen=True, slots=True)
class GridMark:
    """How a test went in a cell."""

    cell: int
    test: int
    outcome: TestOutcome
    """What is not reported is missing here, of a cell that is alive too."""
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGo:
    """How a test went in a cell, with what its history shows of it."""

    number: int
    """The cell's."""
    run: str
    cell: str
    version: str
    at: datetime
    test: int
    outcome: TestOutcome
    is_alive: bool
    """The cell is not done: what is missing may still come."""
    earlier: tuple[TestOutcome, ...]
    """Of its tries before the last one."""
    duration_s: float
    signature: str


class GridStore(Protocol):
    """Results of tests by the cells of runs.

    Runs of some jobs alone are no columns, as in `ReleaseStore`. Each method is one transaction,
    of one statement for each thousand of what is asked.
    """

    def names(self, product: str) -> list[str]:
        """Names of cells of its newest runs, in the order of the matrices."""
        ...

    def jobs(self, product: str) -> list[str]:
        """Jobs that have tests, by name."""
        ...

    def newest(self, product: str, name: str, *, limit: int) -> list[GridCell]:
        """Cells of this name that have tests, or are alive; those of the newest runs first."""
        ...

    def of_run(self, run: str) -> list[GridCell]:
        """In matrix order."""
        ...

    def unreported(self, cells: Collection[int]) -> list[tuple[int, int]]:
        """Cell and test of what was collected there and has no final result."""
        ...

    def some(self, tests: Collection[int], wanted: TestsWanted = ANY_TEST) -> list[KnownTest]:
        """Those of these tests that are wanted."""
        ...

    def after(
        self,
        cells: Collection[int],
        wanted: TestsWanted,
        *,
        after: KnownTest | None,
        limit: int,
    ) -> list[KnownTest]:
        """Tests of these cells by their node ids, from the one after that on."""
        ...

    def marks(self, cells: Collection[int], tests: Collection[int]) -> list[GridMark]:
        """How these tests went in these cells."""
        ...

    def strips(
        self, tests: Collection[int], *, each: int, cell: str = "", before: str = ""
    ) -> list[CellGo]:
        """By cell's name so many newest results of these tests, the newest first.

        `cell` asks for one name alone; `before` is a run that all of them are older than.
        """
        ...

    def said(self, cell: int, test: int) -> str:
        """The message of a result; empty where there is none."""
        ...

    def last(self, tests: Collection[int]) -> list[CellGo]:
        """The newest result of each."""
        ...
