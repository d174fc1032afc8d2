"""What the API answers about a launch that has not happened: places, prices, quotas."""

from __future__ import annotations

from orchestrator.api.models import ResponseModel, Usd
from orchestrator.domain.quota import Room


class PlaceResponse(ResponseModel):
    """Somewhere a machine could be launched."""

    name: str
    region: str
    zone: str
    market: str
    """``spot`` or ``on-demand``."""
    instance_type: str
    price_usd_per_hour: Usd | None
    """Of the machine alone; null when the price is unknown."""
    disk_usd_per_hour: Usd
    address_usd_per_hour: Usd
    usd_per_hour: Usd | None
    """Everything together."""
    priced: str
    """Where the prices are from, and of when."""


class PlannedCellResponse(ResponseModel):
    """One cell as it would be launched."""

    id: str
    platform: str
    provider: str
    environment: str
    expect: str
    """What its machine must be, by the matrix, in words; empty where it says nothing."""
    jobs: list[str]
    places: list[PlaceResponse]
    """In the order they would be tried."""
    worst_usd: Usd | None
    """What one attempt can cost at most; null if a price is unknown."""
    note: str
    """What the provider said instead of an offer."""


class HeadroomResponse(ResponseModel):
    """All that the matrix takes of one quota at a time, against what is free."""

    provider: str
    quota: str
    """What to ask more of, in the provider's words: ``L-3819A6DF``."""
    name: str
    scope: str
    """A region, a zone, or the project."""
    unit: str
    needed: int
    limit: int | None
    """null when it is unknown."""
    used: int | None
    room: Room
    """Unknown is never enough."""
    sentence: str
    """The same for a person, with what to do."""


class PlanResponse(ResponseModel):
    """What a launch would do."""

    cells: list[PlannedCellResponse]
    headroom: list[HeadroomResponse]
    worst_usd: Usd | None
    max_usd: Usd | None
    """The matrix's own limit."""
    payload: str
