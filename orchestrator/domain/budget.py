"""Budgets: maximum costs of a run, a day, a month and the whole project, in US dollars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.domain.units import most_usd, price, usd

WARN_AT = (50, 80, 100)
"""Percentages of a budget at which a notification is sent."""
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


class Period(StrEnum):
    """The period that a budget limits. Days and months begin at midnight UTC."""

    RUN = "run"
    DAY = "day"
    MONTH = "month"
    PROJECT = "project"
    """All machines in the database."""
    UNTRUSTED = "untrusted"
    """The runs of untrusted code of one day."""

    @property
    def words(self) -> str:
        """The name of the spender in messages: ``the day`` or ``untrusted runs``."""
        return "untrusted runs" if self is Period.UNTRUSTED else f"the {self}"


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum cost of the machines of a period."""

    period: Period
    limit_usd: Decimal

    @property
    def setting(self) -> str:
        """The name of the setting that holds the budget."""
        if self.period is Period.RUN:
            return "limits.max_usd"
        return f"SEATRIAL_BUDGET_{self.period.upper()}_USD"

    def since(self, now: datetime) -> datetime:
        """Return the beginning of the period that contains `now`.

        Machines that were reserved since then use the budget.
        """
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
    """US dollars of the other machines: the maximum that they may cost."""

    @property
    def used_usd(self) -> Decimal:
        """US dollars that are spent or reserved."""
        return self.settled_usd + self.reserved_usd

    @property
    def left_usd(self) -> Decimal:
        """US dollars that are left; negative if the budget is exceeded."""
        return self.budget.limit_usd - self.used_usd

    @property
    def warn_percent(self) -> int:
        """The highest percentage of `WARN_AT` that is reached; 0 if none is."""
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
    """Return the budgets that limit the machines of a run."""
    return tuple(one for one in budgets if untrusted or one.period is not Period.UNTRUSTED)


def why_price_is_needed(budgets: Iterable[Budget], *, allow_unknown_price: bool) -> str:
    """Return why a place without a known price is not rented; empty if it may be rented.

    Args:
        budgets: The budgets of several runs; a machine at an unknown price could exceed each.
        allow_unknown_price: The matrix's `limits.allow_unknown_price`.
    """
    if not allow_unknown_price:
        return "limits.allow_unknown_price is false"
    return next((f"{one.setting} can only be kept with known prices" for one in budgets), "")


def budget_warnings(uses: Iterable[BudgetUse], worst_usd: Decimal = Decimal(0)) -> list[str]:
    """Return warnings about budgets that are half used or have less than `worst_usd` left."""
    told = []
    for use in uses:
        if use.left_usd < worst_usd:
            told.append(
                f"{use}; one attempt of every cell may cost {most_usd(worst_usd)}: "
                "cells that exceed the rest of the budget get no machine"
            )
        elif use.warn_percent:
            told.append(f"{use}: {use.warn_percent} % or more is used")
    return told
