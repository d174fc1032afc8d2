"""Cloud Billing's catalogue: what a chip costs today."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import datetime
from decimal import Decimal

from google.cloud.billing_v1 import CloudCatalogClient, ListSkusRequest, Sku

from orchestrator.domain.machine import ProviderUnavailableError
from orchestrator.domain.prices import Price
from runners.tpu.client import READ_TIMEOUT_S, guarded
from runners.tpu.prices import PROVIDER, chip_item, table
from runners.tpu.services import may_ask, open_client

SERVICE = "services/6F81-5844-456A"
"""Compute Engine, which sells the chips since v5."""
_GENERATION = re.compile(r"\bTPU\s?(v5e|v5p|v6e)\b", re.IGNORECASE)
_OTHER = re.compile(r"commitment|\bDWS\b|reserved|calendar mode|defined duration", re.IGNORECASE)
_SPOT = re.compile(r"spot|preemptible", re.IGNORECASE)
_NANOS = Decimal(10) ** 9


class Catalogue:
    """Reads prices."""

    def __init__(self, settings: Mapping[str, str], *, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now

    def read(self) -> tuple[Price, ...]:
        """The chips' prices in every region of the table. Raises ProviderError."""
        if not may_ask(self._settings, "gcp_billing_endpoint"):
            raise ProviderUnavailableError(
                "prices of tpu: SEATRIAL_GCP_TPU_ENDPOINT is set and SEATRIAL_GCP_BILLING_ENDPOINT "
                "is not, so the real catalogue is not asked; the shipped table holds",
                code="NOT_ASKED",
            )
        now = self._now()
        known = {(price.item, price.place) for price in table().prices}
        skus = guarded("read the catalogue of Cloud Billing", self._skus)
        found = [price for sku in skus for price in prices_of(sku, now)]
        return tuple(price for price in found if (price.item, price.place) in known)

    def _skus(self) -> list[Sku]:
        client = open_client(CloudCatalogClient, self._settings.get("gcp_billing_endpoint") or "")
        with closing(client.transport):
            request = ListSkusRequest(parent=SERVICE, page_size=5000)
            return list(client.list_skus(request, timeout=READ_TIMEOUT_S))


def prices_of(sku: Sku, as_of: datetime) -> Iterable[Price]:
    """The prices in one SKU: none unless it is a chip by the hour."""
    found = _GENERATION.search(sku.description)
    usd = _usd_per_hour(sku)
    if found is None or _OTHER.search(sku.description) or usd is None:
        return
    # Usage types are not to be trusted: preemptible chips come as "OnDemand" too.
    market = "spot" if _SPOT.search(sku.description) else "on-demand"
    for region in sku.service_regions:
        item = chip_item(found[1].lower())
        yield Price(PROVIDER, item, region, market, usd, as_of, "pricing API")


def _usd_per_hour(sku: Sku) -> Decimal | None:
    if not sku.pricing_info:
        return None
    expression = sku.pricing_info[0].pricing_expression
    if expression.usage_unit != "h" or not expression.tiered_rates:
        return None
    unit = expression.tiered_rates[0].unit_price
    if unit.currency_code not in ("", "USD"):
        return None
    return Decimal(unit.units) + Decimal(unit.nanos) / _NANOS
