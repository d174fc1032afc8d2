"""Aliases: a test with a new name, suggested by a rule and decided by a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.test_identity import NameChange, NameChanges


class AliasState(StrEnum):
    """The decision on an alias."""

    SUGGESTED = "suggested"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names that are, or are not, one test."""

    id: int
    product: str
    job: str
    """Job of the newer name."""
    old_test: int
    """The number of the test under its older name."""
    old: str
    """The node id of the older name."""
    new_test: int
    new: str
    change: NameChange
    similarity: float
    """From 0 to 1."""
    state: AliasState
    suggested_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class KnownTest:
    """A test of a product, whatever ran it."""

    id: int
    product: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTestResponse(KnownTest):
    """A test with its present name."""

    now: int | None
    """The test that replaces it, as a person confirmed; None where it has no newer name."""


@dataclass(frozen=True, slots=True)
class FamilyChanges:
    """Changes of test names within one family of jobs."""

    family: str
    changes: NameChanges

    @property
    def summary(self) -> str:
        """``66 = 64 same + 1 moved + 1 new, 1 gone``."""
        return str(self.changes)


@dataclass(frozen=True, slots=True)
class Matching:
    """Matching of the tests of an older run with those of a newer one."""

    old_run: str
    new_run: str
    families: tuple[FamilyChanges, ...]
    """The job families that both runs have."""
    suggestions: tuple[Alias, ...]
    """Suggested aliases, stored; a person confirms or rejects them."""
