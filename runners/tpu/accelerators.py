"""Accelerator types: chips, hosts and runtime versions of each, and which zones sell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from google.cloud.billing_v1 import Sku

from orchestrator.domain.machine import ConfigError, ProviderUnavailableError
from orchestrator.domain.prices import Price
from runners.google.catalogue import SOURCE, compute_skus, is_plain, market_of, usd_of
from runners.google.clients import Clients
from runners.tpu.prices import PROVIDER, chip_item, table

_GENERATION = re.compile(r"\bTPU\s?(v5e|v5p|v6e)\b", re.IGNORECASE)


class Catalogue:
    """Reads prices."""

    def __init__(self, clients: Clients, *, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now

    def read(self) -> tuple[Price, ...]:
        """The chips' prices in every region of the table. Raises ProviderError."""
        if not self._clients.has_catalogue:
            raise ProviderUnavailableError(
                "prices of tpu: SEATRIAL_GCP_TPU_ENDPOINT is set and SEATRIAL_GCP_BILLING_ENDPOINT "
                "is not, so the real catalogue is not asked; the shipped table holds",
                code="NOT_ASKED",
            )
        now = self._now()
        known = {(price.item, price.place) for price in table().prices}
        found = [price for sku in compute_skus(self._clients) for price in prices_of(sku, now)]
        return tuple(price for price in found if (price.item, price.place) in known)


def prices_of(sku: Sku, as_of: datetime) -> Iterable[Price]:
    """The prices in one SKU: none unless it is a chip by the hour."""
    found = _GENERATION.search(sku.description)
    usd = usd_of(sku, unit="h")
    if found is None or not is_plain(sku) or usd is None:
        return
    for region in sku.service_regions:
        item = chip_item(found[1].lower())
        yield Price(PROVIDER, item, region, market_of(sku), usd, as_of, SOURCE)


LARGEST_HOST = 8
"""A type with a higher number is spread over several hosts."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator type."""

    name: str
    generation: str
    """``v5e``; empty where it is unknown."""
    chips: int
    runtime_version: str
    """What its machines run unless the platform says otherwise."""


@dataclass(frozen=True, slots=True)
class _Family:
    generation: str
    runtime_version: str
    cores_per_chip: int


# From v2 to v4, and in v5p, the number in the name counts cores, of which a chip has two.
_FAMILIES = {
    "v2": _Family("v2", "tpu-ubuntu2204-base", 2),
    "v3": _Family("v3", "tpu-ubuntu2204-base", 2),
    "v4": _Family("v4", "tpu-ubuntu2204-base", 2),
    "v5litepod": _Family("v5e", "v2-alpha-tpuv5-lite", 1),
    "v5p": _Family("v5p", "v2-alpha-tpuv5", 2),
    "v6e": _Family("v6e", "v2-alpha-tpuv6e", 1),
}


def accelerator(name: str | None, runtime_version: str | None = None) -> Accelerator:
    """Read an accelerator type.

    Raises:
        ConfigError: It is none, it has several hosts, or nobody knows what to run on it.
    """
    found = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]{0,4})", name or "")
    if found is None:
        raise ConfigError(f"accelerator_type: {name!r} is none; v5litepod-1 is one")
    number = int(found[2])
    if number > LARGEST_HOST:
        raise ConfigError(
            f"accelerator_type: {name} has several hosts, and a cell has one machine; "
            f"ask for {found[1]}-{LARGEST_HOST} or fewer"
        )
    family = _FAMILIES.get(found[1])
    runtime = runtime_version or (family.runtime_version if family else None)
    if not runtime:
        raise ConfigError(
            f"runtime_version: give one, no default is known for {name} (known are "
            f"{', '.join(_FAMILIES)})"
        )
    if family is None:
        return Accelerator(found[0], "", number, runtime)
    chips = max(1, number // family.cores_per_chip)
    return Accelerator(found[0], family.generation, chips, runtime)
