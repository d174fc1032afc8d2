"""Money: what a machine costs, from the ledger alone."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal

from orchestrator.domain.cell import Lease

CENT_OF_CENT = Decimal("0.0001")


def machine_seconds(lease: Lease, at: datetime) -> float:
    """Seconds from the launch call until the machine was gone, or until `at`."""
    if lease.launched_at is None:
        return 0.0
    return max(0.0, ((lease.gone_at or at) - lease.launched_at).total_seconds())


def machine_cost(lease: Lease, at: datetime) -> Decimal:
    """US dollars, to a hundredth of a cent: real seconds x the price recorded at launch."""
    if lease.cost_usd is not None:
        return lease.cost_usd
    seconds = Decimal(str(machine_seconds(lease, at)))
    price = lease.price_usd_per_hour or Decimal(0)
    return (seconds * price / 3600).quantize(CENT_OF_CENT, ROUND_HALF_EVEN)
