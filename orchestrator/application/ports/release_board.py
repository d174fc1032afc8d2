"""What was validated of a product: versions by platforms, and pass rates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

from orchestrator.domain.cell import CellState
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Counts, Outcome


@dataclass(frozen=True, slots=True)
class Version:
    """What a release is called."""

    subject: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCell:
    """The newest evidence of a version from one cell of one matrix."""

    run: str
    matrix: str
    name: str
    """The cell's: its platform's id, with the environment where there is more than one."""
    outcome: Outcome | None
    reason: str
    counts: Counts
    at: datetime
    """When its run was launched, or is said to have happened."""
    simulated: bool
    """No machine was really asked: no gate believes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version, and what is known of it."""

    of: Version
    newest_run: str
    cells: Sequence[ReleaseCell]
    """Of each matrix, the newest one of each name."""


@dataclass(frozen=True, slots=True)
class ReleasePage:
    """Versions, the one with the newest run first."""

    items: Sequence[Release]
    next: str | None
    """The cursor of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCell:
    """A cell that a product's runs have, or had."""

    name: str
    matrix: str
    first_run: str
    newest_run: str
    position: int
    """In its newest run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """The newest verdict of a gate about a version."""

    id: str
    gate: str
    of: Version
    decision: Decision
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run that is not finished, and how many of its cells are where."""

    run: str
    matrix: str
    of: Version
    launched_at: datetime
    cells: Mapping[CellState, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRate:
    """What the tests of one suite came to in one cell on one day, all its runs together."""

    cell: str
    job: str
    day: date
    runs: int
    counts: Counts


class ReleaseStore(Protocol):
    """Runs seen by what they validate.

    Runs of some jobs alone (reruns of what failed, second machines, bisections) are left out. Each
    method is one transaction of a fixed number of statements.
    """

    def products(self) -> list[str]:
        """Of all runs; the one of the newest run first."""
        ...

    def page(
        self, product: str, *, matrix: str = "", limit: int, before: str | None = None
    ) -> ReleasePage:
        """Versions of a product; `before` is the cursor of a page, `matrix` names one of many."""
        ...

    def cells(self, product: str) -> list[KnownCell]:
        """Every cell of every matrix that its runs ever had."""
        ...

    def verdicts(self, product: str, versions: Sequence[Version]) -> list[ReleaseVerdict]:
        """The newest one of each gate about each of these, by gate."""
        ...

    def live(self, product: str, *, limit: int) -> list[LiveRun]:
        """Runs that are not finished, newest first; reruns too."""
        ...

    def rates(self, product: str, *, matrix: str = "", since: datetime) -> list[DayRate]:
        """By cell, suite and day (UTC), of runs that were launched since."""
        ...
