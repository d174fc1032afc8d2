"""Where evidence is kept as it came, and what it says. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from orchestrator.domain.facts import (
    AgentEnd,
    CheckFact,
    Facts,
    JobFact,
    MetricFact,
    Notice,
    TestFact,
)
from orchestrator.domain.outcome import Counts, TestOutcome

if TYPE_CHECKING:
    from orchestrator.application.ports.read_models import (
        CellResults,
        TestLine,
        TestLines,
        TestsAsked,
    )


@dataclass(frozen=True, slots=True)
class Position:
    """How much of an attempt's evidence is stored."""

    seq: int = 0
    events_bytes: int = 0
    log_bytes: int = 0
    last_event_at: datetime | None = None
    """By our clock, when the last event came in."""
    end: AgentEnd | None = None
    """The agent's last word, once it is stored."""


class EvidenceStore(Protocol):
    """Evidence as it comes in: the raw bytes, and the facts they state."""

    def position(self, attempt_id: str) -> Position:
        """How much is stored; zeros of an attempt that nothing came of yet."""
        ...

    def append(
        self, attempt_id: str, *, offset: int, chunk: bytes, facts: Facts, at: datetime
    ) -> bool:
        """Store whole lines, their facts, the new position and a feed item, in one transaction.

        Nothing happens (False) unless `offset` is the stored position: the chunk came twice.
        """
        ...

    def append_log(self, attempt_id: str, *, offset: int, chunk: bytes) -> bool:
        """The same for bytes of the log."""
        ...

    def raw_events(self, attempt_id: str) -> Iterable[bytes]:
        """The bytes as they came, in order."""
        ...

    def log(self, cell_id: str, *, after: int, limit: int) -> tuple[bytes, int]:
        """Bytes of the cell's log (its attempts' logs, one after the other) and the next offset."""
        ...

    def settle(self, cell_id: str, given_up: Iterable[str]) -> None:
        """Once the cell's attempt is over, decide about tests without a final result.

        They become MISSING, or NOT_RUN in the jobs that gave up.
        """
        ...


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that came home."""

    name: str
    digest: str
    size_bytes: int


class ResultStore(Protocol):
    """What is known of a cell's tests, jobs, checks and metrics."""

    def tally(self, cell_id: str) -> dict[str, dict[TestOutcome, int]]:
        """How many tests of each job have which outcome (not final ones count as MISSING)."""
        ...

    def of_cells(self, cell_ids: Sequence[str], *, whole: bool = True) -> Mapping[str, CellResults]:
        """Everything but single tests, by cell id; without metrics and artifacts unless whole."""
        ...

    def totals(self, run_ids: Sequence[str]) -> Mapping[str, Counts]:
        """The tests of each run, those of its reused jobs too; a run without tests is left out."""
        ...

    def worst_first(
        self,
        cell_id: str,
        lent: Mapping[str, Sequence[str]],
        asked: TestsAsked,
        *,
        limit: int,
        after: str,
    ) -> TestLines:
        """Failed, in error, missing, not run, then all others in the order of collection.

        Args:
            cell_id: The cell.
            lent: By the id of another cell, the jobs that this one has from there.
            asked: Which tests.
            limit: How many.
            after: A cursor; one that is none is the beginning.
        """
        ...

    def line(
        self, cell_id: str, lent: Mapping[str, Sequence[str]], test_id: int
    ) -> tuple[TestLine, str] | None:
        """One test of the cell with its long text; None where it has no such test."""
        ...

    def tests(self, cell_id: str, *, job: str | None = None) -> list[TestFact]:
        """In the order they were collected, with their texts."""
        ...

    def final_tests(self, cell_id: str) -> dict[str, list[str]]:
        """By job, the node ids with a final result."""
        ...

    def jobs(self, cell_id: str) -> dict[str, JobFact]:
        """By id."""
        ...

    def checks(self, cell_id: str) -> list[CheckFact]:
        """In the order they came."""
        ...

    def metrics(self, cell_id: str) -> list[MetricFact]:
        """In the order they came."""
        ...

    def notices(self, cell_id: str) -> list[Notice]:
        """In the order they came."""
        ...

    def environment(self, cell_id: str) -> Mapping[str, object] | None:
        """Of the last attempt that reported one."""
        ...

    def artifacts(self, cell_id: str) -> list[Artifact]:
        """By name."""
        ...

    def put_checks(self, attempt_id: str, checks: Sequence[CheckFact]) -> None:
        """Add or replace what we found out about an attempt's jobs, by job and name."""
        ...

    def put_artifacts(self, cell_id: str, artifacts: Sequence[Artifact]) -> None:
        """Add or replace by name."""
        ...
