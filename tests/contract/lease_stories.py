"""Machines that came and went, for tests of what they came to."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.domain.cell import CellState, LeaseState
from orchestrator.store.stores import Stores
from tests.databases import NOW, create, lease

STEPS = (
    (CellState.BOOTING, 100),
    (CellState.PREPARING, 300),
    (CellState.RUNNING, 400),
    (CellState.COLLECTING, 900),
    (CellState.RELEASING, 950),
)
"""Seconds after its attempt began."""
_PRICE = Decimal("0.7000")


def rent(
    stores: Stores,
    cell_id: str,
    lease_id: str,
    *,
    at: datetime = NOW,
    number: int = 1,
    provider: str = "aws",
    place: str = "us-east-1/us-east-1a",
    price: Decimal | None = _PRICE,
) -> str:
    """Reserve and launch a machine for a cell's attempt, which begins then."""
    attempt_id = f"{cell_id}-{number}"
    assert stores.cells.admit(cell_id, attempt_id, max_parallel=99, at=at)
    one = replace(
        lease(lease_id, attempt_id, place=place, usd="2.5"),
        provider=provider,
        reserved_at=at,
        price_usd_per_hour=price,
    )
    run_id = cell_id.rpartition(".")[0]
    stores.leases.reserve(one, run_id=run_id, exclusive=False)
    stores.leases.launching(lease_id, at=at + timedelta(seconds=50))
    return attempt_id


def live(stores: Stores, cell_id: str, lease_id: str, *, at: datetime = NOW) -> None:
    """Go through all steps of an attempt."""
    stores.leases.active(lease_id, f"m-{lease_id}", at=at + timedelta(seconds=55))
    for state, seconds in STEPS:
        stores.cells.enter(cell_id, state, at=at + timedelta(seconds=seconds))
    stores.leases.releasing(lease_id)


def settle(stores: Stores, lease_id: str, usd: str, *, at: datetime, refusal: str = "") -> None:
    """The machine is gone."""
    stores.leases.gone(lease_id, at=at, cost_usd=Decimal(usd), refusal=refusal)


def one_machine(
    stores: Stores,
    run_id: str = "run-1",
    *,
    usd: str = "1.05",
    at: datetime = NOW,
    provider: str = "aws",
    is_new: bool = True,
    price: Decimal | None = _PRICE,
) -> str:
    """A run of one cell, whose machine was paid for 1,000 seconds; its lease's id."""
    cell = create(stores, run_id, platforms=1)[0] if is_new else f"{run_id}.p0"
    lease_id = f"lease-{run_id}"
    rent(stores, cell, lease_id, at=at, provider=provider, price=price)
    live(stores, cell, lease_id, at=at)
    settle(stores, lease_id, usd, at=at + timedelta(seconds=1050))
    assert stores.leases.get(lease_id).state is LeaseState.GONE
    return lease_id
