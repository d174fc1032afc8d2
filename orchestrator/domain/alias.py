"""A test that stands under another name now: suggested by a rule, decided by a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.identity import NameChange


class AliasState(StrEnum):
    """What a person said of it."""

    SUGGESTED = "suggested"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names that are, or are not, one test."""

    id: int
    product: str
    job: str
    """Of the newer name."""
    old_test: int
    """The number of the test under its older name."""
    old: str
    """Its node id."""
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
class KnownTestAnswer(KnownTest):
    """A test, with what it is called now."""

    now: int | None
    """The test that it is now, as a person confirmed; None where it has no newer name."""
