"""Prices as Google's own catalogue lists them: per core, per GiB of memory, per GPU, per region."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from google.cloud import billing_v1

from orchestrator.domain.prices import Price
from runners.gcp.machines import KNOWN, MachineShape
from runners.gcp.prices import DISK, HOURS_PER_MONTH, MARKETS, PROVIDER, table
from runners.google.catalogue import SOURCE, compute_skus, is_plain, market_of, usd_of
from runners.google.clients import Clients

_PART = re.compile(r"(?:spot preemptible )?(.+?) (?:instance )?(gpu|ram|core)\b", re.IGNORECASE)
_DISK = re.compile(r"Balanced PD Capacity\b(?! in .*Regional)", re.IGNORECASE)

Parts = Mapping[tuple[str, str, str], Decimal]
"""(part, region, market) -> USD per hour; a part is ``g2 core``, ``g2 ram``, ``nvidia l4 gpu``."""


def read_catalogue(clients: Clients, now: datetime) -> tuple[Price, ...]:
    """Today's prices of everything that the shipped table names. Raises ProviderError."""
    return prices_from(compute_skus(clients), now)


def prices_from(skus: Iterable[billing_v1.Sku], now: datetime) -> tuple[Price, ...]:
    """The same from the catalogue's entries."""
    parts = _parts(skus)
    return (*_machines(parts, now), *_disks(parts, now))


def _machines(parts: Parts, now: datetime) -> Iterable[Price]:
    for name, shape in KNOWN.items():
        for region in table().zones:
            for market in MARKETS:
                usd = _total(parts, shape, region, market)
                if usd is not None:
                    yield Price(PROVIDER, name, region, market, usd, now, SOURCE)


def _total(parts: Parts, shape: MachineShape, region: str, market: str) -> Decimal | None:
    wanted = {
        f"{shape.family} core": shape.cpus,
        f"{shape.family} ram": shape.memory_gib,
        f"{shape.accelerator_sku} gpu": shape.count,
    }
    found = [(parts.get((part, region, market)), amount) for part, amount in wanted.items()]
    known = [(usd, amount) for usd, amount in found if usd is not None]
    if len(known) < len(wanted):
        return None  # half a price is none
    return sum((usd * amount for usd, amount in known), Decimal(0))


def _disks(parts: Parts, now: datetime) -> Iterable[Price]:
    for region in table().zones:
        usd = parts.get((DISK, region, "on-demand"))
        if usd is not None:
            per_hour = usd / HOURS_PER_MONTH
            yield Price(PROVIDER, DISK, region, "on-demand", per_hour, now, SOURCE)


def _parts(skus: Iterable[billing_v1.Sku]) -> Parts:
    found: dict[tuple[str, str, str], Decimal] = {}
    for sku in skus:
        part, usd = _part(sku), usd_of(sku)
        if not part or usd is None:
            continue
        for region in sku.service_regions:
            found[part, region, market_of(sku)] = usd
    return found


def _part(sku: billing_v1.Sku) -> str:
    if sku.category.usage_type not in ("OnDemand", "Preemptible") or not is_plain(sku):
        return ""
    if sku.category.resource_family == "Storage" and _DISK.match(sku.description):
        return DISK
    matched = _PART.match(sku.description)
    if matched is None or sku.category.resource_family != "Compute":
        return ""
    return f"{matched[1]} {matched[2]}".lower()
