"""Wording of the costs of machines, shared by pages, commands, reports and REST."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

OWN = ("local", "static")
"""Providers whose machines belong to the user."""
OWN_MACHINE = "own machine: nothing is charged"
PRICE_UNKNOWN = "price unknown"
NOT_STATED = "its cost is not stated"
STATED = "stated"
"""State of a machine that a person states and that has no lease."""
SEVERAL = "no machine has a price"
"""Reason for several machines that have no cost for different reasons."""


class Charged(Protocol):
    """A machine that may have a price."""

    @property
    def provider(self) -> str:
        """The provider; empty for a machine that a person states."""
        ...

    @property
    def machine_id(self) -> str:
        """The provider's id of the machine; empty before it is granted."""
        ...

    @property
    def price_usd_per_hour(self) -> Decimal | None:
        """The price in US dollars per hour; None if it is unknown."""
        ...

    @property
    def cost_usd(self) -> Decimal | None:
        """The final cost in US dollars; None until it is settled."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """The known cost of some machines, and why others have no cost."""

    known_usd: Decimal = Decimal(0)
    is_priced: bool = False
    """Whether any of the machines has a price."""
    reasons: frozenset[str] = frozenset()
    """Reasons why machines have no known cost."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.known_usd + other.known_usd,
            self.is_priced or other.is_priced,
            self.reasons | other.reasons,
        )

    @property
    def usd(self) -> Decimal | None:
        """The known cost in US dollars; None if there are machines and none has a price."""
        return self.known_usd if self.is_priced or not self.reasons else None

    @property
    def no_cost(self) -> str:
        """The reason for the missing cost, for a person; empty if there is a cost."""
        if self.usd is not None:
            return ""
        return next(iter(self.reasons)) if len(self.reasons) == 1 else SEVERAL

    @property
    def is_partly_unknown(self) -> bool:
        """Whether a machine may have cost more than is known; own machines cost nothing."""
        return bool(self.reasons - {OWN_MACHINE})


def is_priced(one: Charged) -> bool:
    """Whether a machine's price is known; own machines have none unless they were charged.

    A machine without a price may still have a cost, for its disk and address.
    """
    if one.provider in OWN:
        return bool(one.price_usd_per_hour or one.cost_usd)
    return one.price_usd_per_hour is not None or bool(one.cost_usd)


def why_no_cost(one: Charged) -> str:
    """Return why a machine has no known cost; empty if it has one or was never granted."""
    if is_priced(one):
        return ""
    if one.provider in OWN:
        return OWN_MACHINE
    if not one.provider:
        return NOT_STATED
    return PRICE_UNKNOWN if one.machine_id else ""


def cost_of(one: Charged, usd: Decimal) -> Cost:
    """Return the cost of one machine whose bill is `usd`."""
    reason = why_no_cost(one)
    return Cost(usd, is_priced(one), frozenset([reason] if reason else []))


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())
