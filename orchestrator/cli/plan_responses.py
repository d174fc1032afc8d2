"""What the controller says a launch would do, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from pydantic import TypeAdapter, ValidationError

from orchestrator.cli.client import Json
from orchestrator.cli.errors import CliError
from orchestrator.domain.machine import ProviderTraits


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """Where a cell would be tried."""

    name: str
    price_usd_per_hour: Decimal | None = None
    """Of the machine alone."""
    usd_per_hour: Decimal | None = None
    """With its disks and its address."""
    market: str = ""

    @property
    def total_usd(self) -> Decimal | None:
        """Everything, an hour."""
        return self.price_usd_per_hour if self.usd_per_hour is None else self.usd_per_hour


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell as it would be launched."""

    id: str
    provider: str
    environment: str
    jobs: tuple[str, ...]
    places: tuple[PlannedPlace, ...] = ()
    worst_usd: Decimal | None = None
    note: str = ""
    expect: str = ""
    """What its machine must be, by the matrix."""

    @property
    def is_offered(self) -> bool:
        """False where its provider says that nobody sells it: asking again cannot cost anything."""
        return not (self.note and self.worst_usd == 0)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What the matrix takes of one quota, against what is free."""

    provider: str
    name: str
    scope: str
    unit: str
    needed: int
    room: str
    sentence: str = ""
    limit: int | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What a launch would do."""

    cells: tuple[PlannedCell, ...]
    worst_usd: Decimal | None = None
    max_usd: Decimal | None = None
    headroom: tuple[Headroom, ...] = ()

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """The cells that cost money; a provider that is not known here does, too."""
        return [
            cell
            for cell in self.cells
            if cell.worst_usd or cell.provider not in traits or traits[cell.provider].rented
        ]

    @property
    def known_usd(self) -> Decimal:
        """Of one attempt of every cell, as far as that is known."""
        return sum((cell.worst_usd for cell in self.cells if cell.worst_usd), Decimal(0))


def read_plan(answer: Json) -> ShownPlan:
    """Read what the API answers. Raises CliError."""
    try:
        return TypeAdapter(ShownPlan).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CliError(f"the controller's plan is not understood: {first['msg']}") from None
