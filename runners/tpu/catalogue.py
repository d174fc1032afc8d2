"""The prices of TPU chips in Google's catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime

from google.cloud.billing_v1 import Sku

from orchestrator.domain.machine import ProviderUnavailableError
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
