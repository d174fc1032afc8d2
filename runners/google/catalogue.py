"""Cloud Billing's catalogue: list prices of Compute Engine and of TPU chips."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from google.cloud import billing_v1

from orchestrator.domain.prices import Price, PriceBook
from runners.google.clients import Clients
from runners.google.responses import READ_TIMEOUT_S, listed


def known(provider: str, shipped: Iterable[Price], book: PriceBook | None) -> tuple[Price, ...]:
    """Return the newest price of each item, place and market, from the table and the price book."""
    newest: dict[tuple[str, str, str], Price] = {}
    for price in (*shipped, *(book.of(provider) if book is not None else ())):
        key = (price.item, price.place, price.market)
        if key not in newest or price.as_of >= newest[key].as_of:
            newest[key] = price
    return tuple(newest.values())


def price_note(price: Price) -> str:
    """Return the source of a price, for a person: ``pricing API 2026-11-21``."""
    return f"{price.source} {price.as_of:%Y-%m-%d}"


SOURCE = "pricing API"
"""`Price.source` of prices from the catalogue."""
_COMPUTE = "services/6F81-5844-456A"
_PAGE = 5000
_NANOS = Decimal(10) ** 9
_OTHER_TERMS = re.compile(
    r"Sole Tenancy|Reserved|Premium|Custom|Commitment|suspended|\bDWS\b|Defined Duration|"
    "Calendar Mode",
    re.IGNORECASE,
)
_SPOT = re.compile("Preemptible|Spot", re.IGNORECASE)


def compute_skus(clients: Clients) -> list[billing_v1.Sku]:
    """Return all SKUs of Compute Engine. Raises ProviderError."""
    request = billing_v1.ListSkusRequest(parent=_COMPUTE, page_size=_PAGE)
    return listed(
        "reading Google's price catalogue from the Cloud Billing API",
        lambda: list(clients.catalogue.list_skus(request, retry=None, timeout=READ_TIMEOUT_S)),
    )


def is_plain(sku: billing_v1.Sku) -> bool:
    """Return whether a SKU is sold by the hour without a commitment or a reservation."""
    return _OTHER_TERMS.search(sku.description) is None


def market_of(sku: billing_v1.Sku) -> str:
    """Return the SKU's market, from its description: usage types are wrong for spot chips."""
    return "spot" if _SPOT.search(sku.description) else "on-demand"


def usd_of(sku: billing_v1.Sku, *, unit: str = "") -> Decimal | None:
    """Return the first tier's US dollars per unit; None without one, or for another unit."""
    if not sku.pricing_info:
        return None
    expression = sku.pricing_info[0].pricing_expression
    if unit not in ("", expression.usage_unit) or not expression.tiered_rates:
        return None
    price = expression.tiered_rates[0].unit_price
    if price.currency_code not in ("", "USD"):
        return None
    return Decimal(price.units) + Decimal(price.nanos) / _NANOS
