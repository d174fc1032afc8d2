"""What machines cost, or why that is no amount: one wording for pages, commands, reports, REST."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

OWN = ("local", "static")
"""Providers of own machines."""
OWN_MACHINE = "own machine: nothing is charged"
PRICE_UNKNOWN = "price unknown"
NOT_STATED = "its cost is not stated"
STATED = "stated"
"""State of a machine that a person states; no ledger has it."""
SEVERAL = "no machine has a price"
"""Of machines without a cost for different reasons."""


class Charged(Protocol):
    """A machine that may have a price."""

    @property
    def provider(self) -> str:
        """Its provider; empty for a machine that a person states."""
        ...

    @property
    def machine_id(self) -> str:
        """The provider's id of it; empty before it is granted."""
        ...

    @property
    def price_usd_per_hour(self) -> Decimal | None:
        """Its price; None if that is unknown."""
        ...

    @property
    def cost_usd(self) -> Decimal | None:
        """What it cost; None while that is not settled."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """The known cost of some machines, and why the others have none."""

    known_usd: Decimal = Decimal(0)
    is_priced: bool = False
    """Whether any of the machines has a price."""
    reasons: frozenset[str] = frozenset()
    """Why machines have no known cost."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.known_usd + other.known_usd,
            self.is_priced or other.is_priced,
            self.reasons | other.reasons,
        )

    @property
    def usd(self) -> Decimal | None:
        """The known amount; None if no machine has a price, and any machine was held."""
        return self.known_usd if self.is_priced or not self.reasons else None

    @property
    def no_cost(self) -> str:
        """Why there is no amount, for a person; empty if there is one."""
        if self.usd is not None:
            return ""
        return next(iter(self.reasons)) if len(self.reasons) == 1 else SEVERAL

    @property
    def is_partly_unknown(self) -> bool:
        """Whether any machine may have cost more than is known; own machines cost nothing."""
        return bool(self.reasons - {OWN_MACHINE})


def is_priced(one: Charged) -> bool:
    """Whether a machine's price is known; own machines have none unless they were charged.

    A machine without a price may have cost its disk and address: the bill is of these then.
    """
    if one.provider in OWN:
        return bool(one.price_usd_per_hour or one.cost_usd)
    return one.price_usd_per_hour is not None or bool(one.cost_usd)


def why_no_cost(one: Charged) -> str:
    """Return why a machine has no known cost; empty if it has, or if it was never granted."""
    if is_priced(one):
        return ""
    if one.provider in OWN:
        return OWN_MACHINE
    if not one.provider:
        return NOT_STATED
    return PRICE_UNKNOWN if one.machine_id else ""


def cost_of(one: Charged, usd: Decimal) -> Cost:
    """Return the cost of one machine that is billed this amount."""
    reason = why_no_cost(one)
    return Cost(usd, is_priced(one), frozenset([reason] if reason else []))


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Add up costs."""
    return sum(costs, Cost())
