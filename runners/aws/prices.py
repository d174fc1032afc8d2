"""Prices of instances: the shipped table, refreshed prices, and their refresh."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation

from orchestrator.domain.machine import ConfigError, CredentialsError, Extent, ProviderError
from orchestrator.domain.prices import Price, PriceBook
from runners.aws.platform_config import shipped
from runners.aws.sdk import Answer, AwsAccount

PRICING_REGION = "us-east-1"
"""Region of the Pricing API, which has the prices of all regions and only two endpoints."""
SYSTEM = "Linux/UNIX"
_PRODUCT: Mapping[str, str] = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True, slots=True)
class PriceList:
    """The newest price of each item: a refreshed one if it is newer than the shipped one."""

    newest: Mapping[tuple[str, str, str], Price]

    def of(self, instance_type: str, zone: str, region: str, market: str) -> Price | None:
        """Return the zone's price, or its region's; None if neither is known."""
        for place in (zone, region):
            price = self.newest.get((instance_type, place, market))
            if price is not None:
                return price
        return None


def price_list(book: PriceBook | None) -> PriceList:
    """Return the table, updated by the newer prices of the book."""
    newest: dict[tuple[str, str, str], Price] = {}
    refreshed = book.of("aws") if book is not None else ()
    for price in (*shipped().prices, *refreshed):
        key = (price.item, price.place, price.market)
        known = newest.get(key)
        if price.usd_per_hour > 0 and (known is None or known.as_of <= price.as_of):
            newest[key] = price
    table = shipped().as_of
    return PriceList({key: price for key, price in newest.items() if price.as_of >= table})


def read_on_demand(account: AwsAccount, now: datetime) -> Iterator[Price]:
    """Yield on-demand prices of the shipped table's types and regions, from the Pricing API.

    Raises:
        ProviderError: The API does not answer, or has two prices for one item.
    """
    for item in _items():
        found: dict[str, Decimal] = {}
        fields = {"instanceType": item, **_PRODUCT}
        products = account.pages(
            "pricing",
            PRICING_REGION,
            "get_products",
            "PriceList",
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in fields.items()],
        )
        for product in products:
            region, usd = _product(str(product), item)
            if found.get(region, usd) != usd:
                raise ConfigError(
                    f"the Pricing API names two on-demand prices for {item} in {region}: "
                    f"{found[region]} and {usd}; neither is taken"
                )
            found[region] = usd
        for region in shipped().regions:
            if region in found:
                yield Price("aws", item, region, "on-demand", found[region], now, "pricing API")


def read_spot(account: AwsAccount, now: datetime) -> Iterator[Price]:
    """Yield the current spot price of each type and zone in the regions of the shipped table."""
    for region in shipped().regions:
        try:
            yield from _spot_of(account, region, now)
        except CredentialsError as error:
            # A region that the account has not enabled sells nothing to it.
            if error.extent is not Extent.REGION:
                raise


def _items() -> tuple[str, ...]:
    return tuple(dict.fromkeys(price.item for price in shipped().prices))


def _product(text: str, item: str) -> tuple[str, Decimal]:
    try:
        read = json.loads(text)
        (offer,) = read["terms"]["OnDemand"].values()
        (dimension,) = offer["priceDimensions"].values()
        if dimension["unit"] != "Hrs":
            raise ValueError(dimension["unit"])
        return str(read["product"]["attributes"]["regionCode"]), Decimal(
            dimension["pricePerUnit"]["USD"]
        )
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise ProviderError(
            f"the Pricing API's product for {item} cannot be read ({error!r}); no price was taken"
        ) from error


def _spot_of(account: AwsAccount, region: str, now: datetime) -> Iterable[Price]:
    newest: dict[tuple[str, str], Answer] = {}
    history = account.pages(
        "ec2",
        region,
        "describe_spot_price_history",
        "SpotPriceHistory",
        InstanceTypes=list(_items()),
        ProductDescriptions=[SYSTEM],
        StartTime=now,
    )
    for entry in history:
        key = (str(entry["InstanceType"]), str(entry["AvailabilityZone"]))
        known = newest.get(key)
        if known is None or known["Timestamp"] < entry["Timestamp"]:
            newest[key] = entry
    for (item, zone), entry in newest.items():
        usd = Decimal(str(entry["SpotPrice"]))
        # The price of that time holds until the next entry: it is as of now.
        yield Price("aws", item, zone, "spot", usd, now, "spot history")
