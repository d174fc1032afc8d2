"""What is learnt over many runs. Each method is one transaction, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.domain.alias import Alias, AliasState, KnownTest
from orchestrator.domain.flaky import Go
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.signature import Failure, Signature


class AliasConflictError(ValueError):
    """The decision cannot stand beside others: a circle, or a test with two newer names."""


@dataclass(frozen=True, slots=True)
class FailuresFound:
    """Failing results of many runs."""

    failures: Sequence[Failure]
    runs: int
    """Runs that were looked at."""
    is_cut: bool = False
    """There were more than can be shown; those of the newest runs are here."""


class FailureStore(Protocol):
    """Failing results with their signatures. Node ids are the tests' newest names."""

    def of_run(self, run_id: str) -> list[Failure]:
        """Final results of every cell of a run."""
        ...

    def of_product(self, product: str | None, *, runs: int) -> FailuresFound:
        """Of the newest so many runs of a product; None means any product."""
        ...

    def spans(self, signatures: Collection[str]) -> Mapping[str, tuple[datetime, datetime]]:
        """By signature id, when the runs of the first and the last cell with it were launched."""
        ...

    def get(self, signature: str) -> Signature | None:
        """The signature of an id, an older version's too."""
        ...

    def heirs(self, signatures: Collection[str]) -> Mapping[str, frozenset[str]]:
        """By old signature id, the present ones of the failures that had it."""
        ...

    def recluster(self, *, limit: int) -> int:
        """Sign so many failures anew that another version signed, or none; how many it did.

        0 means that all are signed by the present version. Any number of times, by anyone at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class TestPage:
    """Tests of a product."""

    __test__ = False

    items: Sequence[KnownTest]
    next: int | None
    """The cursor of the next page."""


@dataclass(frozen=True, slots=True)
class TestGo:
    """One result in the history of a test."""

    __test__ = False

    go: Go
    at: datetime
    """When its run was launched, or is said to have happened."""
    cell: str
    test_id: int
    """Under which of its names."""
    nodeid: str
    duration_s: float
    reason: str
    message: str
    signature: str


class TestStore(Protocol):
    """Tests, whatever ran them."""

    def page(
        self,
        *,
        product: str | None,
        job: str | None,
        contains: str,
        limit: int,
        after: int | None,
    ) -> TestPage:
        """By their numbers: those of a batch in any order, after those seen before."""
        ...

    def get(self, test_id: int) -> KnownTest | None:
        """The test, or None."""
        ...

    def history(self, test_ids: Collection[int], *, limit: int) -> list[TestGo]:
        """Their newest results, the newest first."""
        ...

    def of_run(self, run_id: str) -> list[KnownTest]:
        """Every test that has a result in a run, each once."""
        ...


class AliasStore(Protocol):
    """Which tests stand under other names."""

    def suggest(self, aliases: Sequence[Alias]) -> None:
        """Store those whose pair of names nobody has asked about; ids are not read."""
        ...

    def list(self, *, product: str | None = None, state: AliasState | None = None) -> list[Alias]:
        """In the order they were suggested."""
        ...

    def get(self, alias_id: int) -> Alias | None:
        """The alias, or None."""
        ...

    def decide(
        self, alias_id: int, state: AliasState, *, at: datetime | None, by: str
    ) -> Alias | None:
        """What a person said; None where there is none. Raises AliasConflictError."""
        ...

    def confirmed(self, tests: Collection[int] | None = None) -> Mapping[int, int]:
        """By the test of an older name, that of the newer one."""
        ...


class KnownIssueStore(Protocol):
    """Known issues; none is ever removed."""

    def add(self, issue: KnownIssue) -> KnownIssue:
        """Store it under a new id; the given id is not read."""
        ...

    def list(self, *, product: str | None = None) -> list[KnownIssue]:
        """By id."""
        ...

    def end(self, issue_id: str, *, at: datetime, by: str) -> KnownIssue | None:
        """End it now, once; None where there is none."""
        ...
