"""What machines cost. Values are unrounded; every sum is derived from the rows beside it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from reports.model.values import Absent


@dataclass(frozen=True, slots=True)
class Bill:
    """What is paid, and its parts."""

    machine_usd: Decimal
    disk_usd: Decimal
    address_usd: Decimal
    total_usd: Decimal
    """Derived: the sum of the parts."""


@dataclass(frozen=True, slots=True)
class MoneyRow:
    """One machine and its price, or the provider's refusal."""

    attempt: int
    provider: str
    place: str
    state: str
    machine_id: str
    instance_type: str
    market: str
    priced: str
    """Where the price is from."""
    simulated: bool
    seconds: float | Absent
    billed_s: int | Absent
    """Whole seconds of the machine's price; at least those that it was held."""
    price_usd_per_hour: Decimal | Absent
    bill: Bill | Absent
    """Derived: its machine's part is ``billed_s * price / 3600``, to a hundredth of a cent."""
    refusal: str


@dataclass(frozen=True, slots=True)
class CostShare:
    """The part of a cost that one state, or one job, took."""

    name: str
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost, told in every way that a person may ask for it."""

    bill: Bill
    """Derived: the sum of the machines'."""
    phases: tuple[CostShare, ...]
    """By the state that the cell was in. Derived: they come to the total."""
    jobs: tuple[CostShare, ...]
    overhead_usd: Decimal
    """Spent on none of the jobs. Derived: with the jobs it comes to the total."""
    validated: int
    """Derived: tests that passed or failed."""
    usd_per_validated: Decimal | Absent
    """Derived: ``total / validated``, to the millionth."""


@dataclass(frozen=True, slots=True)
class Money:
    """What the cell's machines cost."""

    rows: tuple[MoneyRow, ...]
    seconds: float | Absent
    """Derived: the sum of the rows."""
    costs: Costs | Absent

    @property
    def cost_usd(self) -> Decimal | Absent:
        """The total."""
        return self.costs if isinstance(self.costs, Absent) else self.costs.bill.total_usd

    @property
    def charged(self) -> tuple[MoneyRow, ...]:
        """The machines that have a bill."""
        return tuple(row for row in self.rows if not isinstance(row.bill, Absent))

    @property
    def markets(self) -> str:
        """``spot``; several are all named."""
        return ", ".join(dict.fromkeys(row.market for row in self.charged if row.market))
