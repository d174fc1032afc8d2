"""What a launch would do, before it happens: cells, places, quotas and the most it can cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.machine import Place, ProviderTraits
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.quota import Headroom


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell as it would be launched."""

    cell: CellPlan
    places: tuple[Place, ...]
    """Where it would be tried, in order."""
    worst_usd: Decimal | None
    """What one attempt can cost at most, at the dearest place that would be tried.

    None if no price is known, or if it may go where none is.
    """
    note: str = ""
    """What the provider said instead of an offer."""

    @property
    def is_offered(self) -> bool:
        """False where its provider says that nobody sells it: asking again cannot cost anything."""
        return not (self.note and self.worst_usd == 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a launch would do."""

    payload: str
    """Digest of its archive."""
    max_usd: Decimal | None
    """The matrix's own limit."""
    cells: tuple[PlannedCell, ...]
    headroom: tuple[Headroom, ...] = ()
    """What all machines together take of each quota, at the place that each would try first."""

    @property
    def worst_usd(self) -> Decimal | None:
        """Of one attempt of every cell; None if a price is unknown."""
        total = Decimal(0)
        for cell in self.cells:
            if cell.worst_usd is None:
                return None
            total += cell.worst_usd
        return total

    @property
    def known_usd(self) -> Decimal:
        """Of one attempt of every cell, as far as that is known."""
        return sum((cell.worst_usd for cell in self.cells if cell.worst_usd), Decimal(0))

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """The cells that cost money; those of a provider that is not in `traits`, too."""

        def is_rented(provider: str) -> bool:
            return provider not in traits or traits[provider].rented

        return [c for c in self.cells if c.worst_usd or is_rented(c.cell.platform.provider)]
