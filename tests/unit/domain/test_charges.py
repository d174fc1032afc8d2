"""Tests of what machines cost, and of the reasons for an unknown cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from orchestrator.domain.charges import (
    NOT_STATED,
    OWN_MACHINE,
    PRICE_UNKNOWN,
    SEVERAL,
    cost_of,
    sum_of,
)


@dataclass(frozen=True)
class Machine:
    provider: str
    price: str | None = None
    machine_id: str = "m"
    usd: str = "0"

    @property
    def price_usd_per_hour(self) -> Decimal | None:
        return None if self.price is None else Decimal(self.price)

    @property
    def cost_usd(self) -> Decimal:
        return Decimal(self.usd)


OWN, HOST = Machine("local", "0"), Machine("static", "0")
DARK = Machine("aws")
PAID, FREE = Machine("aws", "1", usd="0.5"), Machine("aws", "0")
REFUSED = Machine("aws", machine_id="")
STATED = Machine("")


@pytest.mark.parametrize(
    ("machines", "usd", "why", "partly_unknown"),
    [
        ((), "0", "", False),
        ((OWN, HOST), None, OWN_MACHINE, False),
        ((DARK,), None, PRICE_UNKNOWN, True),
        ((STATED,), None, NOT_STATED, True),
        ((OWN, DARK), None, SEVERAL, True),
        ((REFUSED,), "0", "", False),
        ((REFUSED, DARK), None, PRICE_UNKNOWN, True),
        ((FREE,), "0", "", False),
        ((OWN, PAID), "0.5", "", False),
        ((DARK, PAID), "0.5", "", True),
        ((Machine("static", "2", usd="1"),), "1", "", False),
        ((Machine("aws", usd="0.1"),), "0.1", "", False),
    ],
)
def test_a_cost_is_an_amount_or_says_why_it_is_none(
    machines: tuple[Machine, ...], usd: str | None, why: str, partly_unknown: bool
) -> None:
    cost = sum_of(cost_of(one, one.cost_usd) for one in machines)
    assert cost.usd == (None if usd is None else Decimal(usd))
    assert (cost.no_cost, cost.is_partly_unknown) == (why, partly_unknown)
