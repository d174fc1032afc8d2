"""A launch plan: cells, places, quotas and the maximum cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.machine import Place, ProviderTraits
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.quota import Headroom


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of a launch plan."""

    cell: CellPlan
    places: tuple[Place, ...]
    """Places in the order in which they would be tried."""
    worst_usd: Decimal | None
    """Maximum cost of one attempt, at the most expensive of its places.

    None if no price is known, or if it may go where none is.
    """
    note: str = ""
    """The provider's message where it offers no place."""

    @property
    def is_offered(self) -> bool:
        """Whether the provider offers it at all; otherwise it costs nothing."""
        return not (self.note and self.worst_usd == 0)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Result of the check of one of your own hosts."""

    platform: str
    host: str
    """``user@address:port``."""
    failure: str = ""
    """Why no cell could run there; empty where it could."""
    pythons: tuple[str, ...] = ()
    """Interpreters that its jobs would use, with their versions."""
    devices: tuple[str, ...] = ()
    """Accelerators that it has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch plan."""

    payload: str
    """Digest of the payload's archive."""
    max_usd: Decimal | None
    """Cost limit of the matrix."""
    cells: tuple[PlannedCell, ...]
    headroom: tuple[Headroom, ...] = ()
    """Use of each quota by all machines, at the first place of each cell."""
    warnings: tuple[str, ...] = ()
    """Warnings for a person before the launch."""
    hosts: tuple[HostCheck, ...] = ()
    """Checks of your own hosts, where they were requested."""

    @property
    def worst_usd(self) -> Decimal | None:
        """Maximum cost of one attempt of every cell; None if a price is unknown."""
        total = Decimal(0)
        for cell in self.cells:
            if cell.worst_usd is None:
                return None
            total += cell.worst_usd
        return total

    @property
    def known_usd(self) -> Decimal:
        """Known part of the cost of one attempt of every cell."""
        return sum((cell.worst_usd for cell in self.cells if cell.worst_usd), Decimal(0))

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """Return cells that cost money, including those of unknown providers."""

        def is_rented(provider: str) -> bool:
            return provider not in traits or traits[provider].rented

        return [c for c in self.cells if c.worst_usd or is_rented(c.cell.platform.provider)]
