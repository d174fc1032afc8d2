"""Budgets: what a run, a day, a month and the whole project may cost, in US dollars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.domain.units import most_usd, price, usd

WARN_AT = (50, 80, 100)
"""Per cent of a budget at which a notification is sent."""
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


class Period(StrEnum):
    """The period that a budget limits. Days and months begin at midnight UTC."""

    RUN = "run"
    DAY = "day"
    MONTH = "month"
    PROJECT = "project"
    """Everything that the database knows of."""
    UNTRUSTED = "untrusted"
    """Runs of untrusted code, of one day."""

    @property
    def words(self) -> str:
        """Return what spends it: ``the day`` or ``untrusted runs``."""
        return "untrusted runs" if self is Period.UNTRUSTED else f"the {self}"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the machines of a period may cost."""

    period: Period
    limit_usd: Decimal

    @property
    def setting(self) -> str:
        """Return the name of the setting."""
        if self.period is Period.RUN:
            return "limits.max_usd"
        return f"SEATRIAL_BUDGET_{self.period.upper()}_USD"

    def since(self, now: datetime) -> datetime:
        """When the period began that `now` is in; machines reserved from then on count."""
        day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.period in (Period.DAY, Period.UNTRUSTED):
            return day
        return day.replace(day=1) if self.period is Period.MONTH else _EVER


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The use of a budget: spent and reserved, in US dollars."""

    budget: Budget
    settled_usd: Decimal
    """US dollars of machines whose cost is final."""
    reserved_usd: Decimal
    """The worst case of the others."""

    @property
    def used_usd(self) -> Decimal:
        """US dollars that are spent or reserved."""
        return self.settled_usd + self.reserved_usd

    @property
    def left_usd(self) -> Decimal:
        """Return the remainder in US dollars; negative if more than the budget was spent."""
        return self.budget.limit_usd - self.used_usd

    @property
    def warn_percent(self) -> int:
        """The highest of `WARN_AT` that is reached; 0 below the lowest."""
        used = 100 * self.used_usd
        return max((p for p in WARN_AT if used >= p * self.budget.limit_usd), default=0)

    def __str__(self) -> str:
        budget, words = self.budget, self.budget.period.words
        owner = f"{words}'" if words.endswith("s") else f"{words}'s"
        return (
            f"{owner} budget, {budget.setting} of {price(budget.limit_usd)}: "
            f"{usd(self.settled_usd)} spent, {most_usd(self.reserved_usd)} reserved"
        )


def budgets_of_run(budgets: Iterable[Budget], *, untrusted: bool) -> tuple[Budget, ...]:
    """Return those that the machines of a run must fit into."""
    return tuple(one for one in budgets if untrusted or one.period is not Period.UNTRUSTED)


def why_price_is_needed(budgets: Iterable[Budget], *, allow_unknown_price: bool) -> str:
    """Return why a place without a known price is not rented; empty if it may be.

    Args:
        budgets: Those across runs: a machine at an unknown price could exceed any of them.
        allow_unknown_price: As `limits.allow_unknown_price` of the matrix.
    """
    if not allow_unknown_price:
        return "limits.allow_unknown_price is false"
    return next((f"{one.setting} can only be kept with known prices" for one in budgets), "")


def budget_warnings(uses: Iterable[BudgetUse], worst_usd: Decimal = Decimal(0)) -> list[str]:
    """Return warnings about budgets that are half used, or too small for `worst_usd` more."""
    told = []
    for use in uses:
        if use.left_usd < worst_usd:
            told.append(
                f"{use}; one attempt of every cell may cost {most_usd(worst_usd)}: what does not "
                "fit when its turn comes is not rented"
            )
        elif use.warn_percent:
            told.append(f"{use}: {use.warn_percent} % or more is used")
    return told
