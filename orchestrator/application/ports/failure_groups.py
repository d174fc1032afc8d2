"""Kinds of failures over many runs, gathered where they are stored: no row of a pass is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from orchestrator.domain.alias import KnownTest
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.signature import Signature

NAMED_TESTS = 50_000
"""Pairs of signature and test that one window tells."""


@dataclass(frozen=True, slots=True)
class WindowCell:
    """A cell of one of the runs that are looked at."""

    pk: int
    name: str
    run_id: str
    product: str
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""

    @property
    def platform(self) -> str:
        """The platform's id: what stands before the environment's name, where one stands there."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Group:
    """Failing results of one signature in one job of one cell."""

    signature: str
    job: str
    cell: int
    count: int


@dataclass(frozen=True, slots=True)
class Looked:
    """The newest runs of a product."""

    runs: int = 0
    cells: Mapping[int, WindowCell] = field(default_factory=dict)
    """Of these runs, by number."""


@dataclass(frozen=True, slots=True)
class Window:
    """The failing results of some cells, by signature."""

    groups: Sequence[Group] = ()
    tests: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By signature: by test, how many of its results have it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One failing result of a signature."""

    test_id: int
    cell: int
    message: str
    """As it was said, unmasked."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a signature was seen, the newest cells first."""

    items: Sequence[Place] = ()
    cells: Mapping[int, WindowCell] = field(default_factory=dict)
    is_cut: bool = False
    """There are older ones."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A test that was tried more than once in a cell."""

    test_id: int
    cell: int
    earlier: tuple[TestOutcome, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """Where a test passed, or where it failed."""

    test_id: int
    outcome: TestOutcome
    cells: tuple[int, ...]
    """In no order."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Where a test failed in one way."""

    test_id: int
    signature: str
    """Empty where it has none."""
    cells: tuple[int, ...]
    """In no order."""


class KindStore(Protocol):
    """Failing results by their signatures, and tests that cannot make up their minds."""

    def cells(self, product: str | None, *, runs: int) -> Looked:
        """Of the newest so many runs of a product; None means any product."""
        ...

    def window(self, cells: Collection[int]) -> Window:
        """Failing results of these cells, gathered."""
        ...

    def suites(self, cells: Collection[int]) -> Mapping[int, frozenset[str]]:
        """By cell, the jobs of which at least one test passed or failed; only of done cells."""
        ...

    def of_exception(self, exception: str, *, limit: int) -> Sequence[Signature]:
        """Signatures of an exception's class, by id."""
        ...

    def named(self, signatures: Collection[str]) -> Mapping[str, Signature]:
        """By id; what is not known is left out."""
        ...

    def places(self, signature: str, *, limit: int) -> Places:
        """The newest so many results of a signature."""
        ...

    def traceback(self, place: Place) -> str:
        """The text that is stored with a result; empty where none is."""
        ...

    def tests(self, ids: Collection[int]) -> Mapping[int, KnownTest]:
        """By number."""
        ...

    def find_tests(self, product: str, nodeids: Collection[str]) -> Sequence[KnownTest]:
        """A product's tests of these names, in every job that has them."""
        ...

    def packages(self, cells: Collection[int]) -> Mapping[int, Mapping[str, str]]:
        """By cell, the packages that its newest attempt reported."""
        ...

    def failing(self, cells: Collection[int]) -> Sequence[Failing]:
        """Every failing result of these cells."""
        ...

    def tried(self, cells: Collection[int]) -> Sequence[Tried]:
        """Tests of these cells that were tried more than once, by the attempts that count."""
        ...

    def judged(self, tests: Collection[int], cells: Collection[int]) -> Sequence[Judged]:
        """Of these tests in these cells, which passed and which failed where."""
        ...
