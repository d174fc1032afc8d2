"""Machines of the ledger as people ask for them: with the run and the cell that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.domain.cell import CellState, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A lease, and whose it is."""

    lease: Lease
    run: str
    version: str
    """The subject's."""
    cell: str
    """The cell's name."""
    state: CellState
    """The cell's."""
    attempt: int
    max_minutes: float
    """An attempt may take so long once its machine is granted."""
    hold_minutes: float
    """And a machine may be kept for so long afterwards."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that a cloud showed and nobody owned, when the janitor looked last."""

    provider: str
    machine_id: str
    """Its beginning and a hash, where it is very long."""
    first_seen: datetime


class RentedStore(Protocol):
    """Each method is one transaction."""

    def now(self) -> Sequence[Rented]:
        """Of every lease that is not GONE, oldest first."""
        ...

    def gone(self, *, limit: int) -> Sequence[Rented]:
        """Of the leases that went last and had a machine, newest first."""
        ...

    def sightings(self) -> Sequence[Sighting]:
        """Oldest first."""
        ...
