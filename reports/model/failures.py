"""Failures by signature, and the known issues that they meet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from reports.model.values import Absent


@dataclass(frozen=True, slots=True)
class FailureGroupRow:
    """Failing results of one signature."""

    id: str
    kind: str
    """Whose failure it probably is."""
    said: str
    """The exception, where it came from, and its masked words."""
    count: int
    tests: tuple[str, ...]
    """Some of them."""
    hidden: int
    """Derived: other failing results of this signature."""
    cells: tuple[str, ...]
    first_seen: datetime | Absent
    known_issues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailureTable:
    """Every failing result that has a name."""

    rows: tuple[FailureGroupRow, ...]
    hidden: int
    """Results of signatures that are not listed."""
    failing: int
    """Derived: the sum of the rows and what is hidden."""
    signatures: int
    """Different ones."""


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    """A failing test in quarantine."""

    id: str
    nodeid: str
    cell: str
    job: str
    reason: str
    owner: str
    expires: datetime
    state: str
    """When the run was launched: ``stands`` or ``expired``."""


@dataclass(frozen=True, slots=True)
class BlameRow:
    """A failing test that ran again, and who broke it."""

    cell: str
    job: str
    nodeid: str
    """Empty for a command."""
    answer: str
    tried: str
    """How often it ran again, and how that went."""
    evidence: tuple[str, ...]
    sentence: str
    """The evidence that decides."""
    again: tuple[TriedRow, ...]


@dataclass(frozen=True, slots=True)
class TriedRow:
    """The outcomes of a test that ran again with the same thing changed."""

    kind: str
    changed: str
    """For a person; empty where nothing was."""
    whole: bool
    """Its whole job ran."""
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssueRow:
    """A known issue and how it stands to these results."""

    id: str
    title: str
    state: str
    count: int
    owner: str
    url: str
    expires: date
