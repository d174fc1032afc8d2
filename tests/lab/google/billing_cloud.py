"""The price list of the lab's Google: the real CloudCatalogClient reads it over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from tests.lab.google.front import ApiError, Json, Request, RestFront, page, utc_now

COMPUTE_SERVICE = "services/6F81-5844-456A"
_BASE_TOTAL = Decimal("0.7068")
# g2-standard-4 in USD/h by region, from a public catalogue; the parts are scaled alike.
_G2_TOTALS: Mapping[str, str] = {
    "us-central1": "0.7068", "us-east1": "0.7068", "us-west1": "0.7068", "us-east4": "0.7045",
    "us-west4": "0.7961", "europe-west1": "0.7783", "europe-west4": "0.7423",
    "asia-southeast1": "0.8720",
}  # fmt: skip
# name -> (unit, USD on demand, USD as spot), us-central1
_G2_PARTS: Mapping[str, tuple[str, str, str]] = {
    "G2 Instance Core": ("h", "0.02499", "0.009996"),
    "G2 Instance Ram": ("GiBy.h", "0.002927", "0.001171"),
    "Nvidia L4 GPU": ("h", "0.56004", "0.2231"),
}
# USD per chip and hour, on demand and spot
_V5E: Mapping[str, tuple[str, str]] = {
    "us-central1": ("1.20", "0.245"), "us-west1": ("1.20", "0.245"), "us-east1": ("1.20", "0.245"),
    "us-west4": ("1.20", "0.48"), "us-south1": ("1.416", "0.566"),
    "europe-west4": ("1.56", "0.445"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One SKU."""

    description: str
    region: str
    usd: Decimal
    usage: str = "OnDemand"
    unit: str = "h"
    family: str = "Compute"
    group: str = "G2"

    def as_json(self) -> Json:
        units, rest = divmod(self.usd, 1)
        money = {"currencyCode": "USD", "units": str(units), "nanos": int(rest * 10**9)}
        tiers = [{"startUsageAmount": 0, "unitPrice": money}]
        number = f"{sum(f'{self.description}{self.region}'.encode()):04X}-{len(self.region):04X}"
        return {
            "name": f"{COMPUTE_SERVICE}/skus/{number}", "skuId": number,
            "description": self.description, "serviceRegions": [self.region],
            "serviceProviderName": "Google",
            "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": self.family,
                         "resourceGroup": self.group, "usageType": self.usage},
            "pricingInfo": [{
                "effectiveTime": "2026-11-20T00:00:00Z", "currencyConversionRate": 1,
                "pricingExpression": {"usageUnit": self.unit, "displayQuantity": 1,
                                      "tieredRates": tiers},
            }],
        }  # fmt: skip


def _rows() -> Iterator[Row]:
    for region, total in _G2_TOTALS.items():
        scale = Decimal(total) / _BASE_TOTAL
        for name, (unit, on_demand, spot) in _G2_PARTS.items():
            usual, cheap = ((Decimal(each) * scale).quantize(Decimal("1e-6"))
                            for each in (on_demand, spot))  # fmt: skip
            yield Row(f"{name} running in {region}", region, usual, unit=unit)
            spoken = _spot_name(name)
            yield Row(f"{spoken} running in {region}", region, cheap, "Preemptible", unit)
            yield from _decoys(name, region, usual, unit)
    for region, (on_demand, spot) in _V5E.items():
        yield Row(f"TpuV5e running in {region}", region, Decimal(on_demand), group="TPU")
        # Google files some preemptible TPUs under OnDemand: only the words tell.
        yield Row(f"TpuV5e Preemptible running in {region}", region, Decimal(spot), group="TPU")
        yield Row(f"TpuV5e DWS Defined Duration running in {region}", region,
                  Decimal(on_demand) / 2, group="TPU")  # fmt: skip
        yield Row(f"Commitment v1: TpuV5e in {region} for 1 Year", region,
                  Decimal(on_demand) / 2, "Commit1Yr", group="TPU")  # fmt: skip


def _spot_name(name: str) -> str:
    attached = f"{name} attached to Spot Preemptible VMs"
    return attached if name.endswith("GPU") else f"Spot Preemptible {name}"


def _decoys(name: str, region: str, usd: Decimal, unit: str) -> Iterator[Row]:
    """Rows of the same words and another price, which no instance of ours ever pays."""
    what = name.rpartition(" ")[2]
    one_year = f"Commitment v1: {name} in {region} for 1 Year"
    yield Row(one_year, region, usd * Decimal("0.63"), "Commit1Yr", unit)
    yield Row(f"{name} DWS Defined Duration running in {region}", region, usd / 2, unit=unit)
    yield Row(f"{name} DWS Calendar Mode running in {region}", region, usd / 2, unit=unit)
    yield Row(f"G2 Sole Tenancy Instance {what} running in {region}", region, usd * 2, unit=unit)
    yield Row(f"Reserved {name} running in {region}", region, usd, unit=unit)


class BillingCloud(RestFront):
    """The catalogue at `endpoint_url`; a test may change `rows`."""

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        super().__init__({"services.skus.list": "GET /v1/services/<service>/skus"}, clock)
        self.rows = list(_rows())

    def answer(self, request: Request) -> Json:
        if f"services/{request.path['service']}" != COMPUTE_SERVICE:
            raise ApiError("notFound", "Requested entity was not found.", 404)
        kept, following = page([row.as_json() for row in self.rows], request.query)
        return {"skus": kept, "nextPageToken": following}
