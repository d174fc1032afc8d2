"""What the controller shows of a cell's machines, as values: read leniently."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator

Words = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Money = Annotated[Decimal, BeforeValidator(lambda value: 0 if value is None else value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is paid, and its parts."""

    machine_usd: Money = Decimal(0)
    disk_usd: Money = Decimal(0)
    address_usd: Money = Decimal(0)
    total_usd: Money = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A machine and its money."""

    attempt: int = 0
    provider: Words = ""
    place: Words = ""
    id: Words = ""
    state: Words = ""
    price_usd_per_hour: Decimal | None = None
    seconds: float = 0.0
    billed_s: int = 0
    instance_type: Words = ""
    market: Words = ""
    zone: Words = ""
    image_id: Words = ""
    image_name: Words = ""
    priced: Words = ""
    refusal: Words = ""
    simulated: bool = False
    cost_usd: Money = Decimal(0)
    bill: Bill = field(default_factory=Bill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One line of why a machine is where it is."""

    at: datetime
    attempt: int = 0
    place: Words = ""
    verdict: Words = ""
    reason: Words = ""
    detail: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, as its machine names it."""

    vendor: Words = ""
    name: Words = ""
    uuid: Words = ""
    compute_capability: Words = ""
    driver: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """Who produced the results."""

    facts: dict[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    torch: Words = ""
    simulated: bool = False
    mismatch: Words = ""
