"""What the emulated AWS charges: the price list API and the spot price history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

from tests.lab.aws.wire import ApiError, Reply, Request, ec2_reply, json_reply

_REGIONS = {
    "us-east-1": ("", "US East (N. Virginia)"),
    "us-east-2": ("USE2-", "US East (Ohio)"),
    "us-west-2": ("USW2-", "US West (Oregon)"),
    "eu-west-1": ("EU-", "EU (Ireland)"),
    "eu-central-1": ("EUC1-", "EU (Frankfurt)"),
}
_PUBLISHED = "2026-11-19T17:03:11Z"
_ON_DEMAND = {
    ("us-east-1", "g5.xlarge"): "1.006",
    ("us-east-2", "g5.xlarge"): "1.006",
    ("us-west-2", "g5.xlarge"): "1.006",
    ("eu-west-1", "g5.xlarge"): "1.123",
    ("eu-central-1", "g5.xlarge"): "1.258",
    ("us-east-1", "g5.2xlarge"): "1.212",
    ("us-east-1", "g6.xlarge"): "0.8048",
    ("us-east-2", "g6.xlarge"): "0.8048",
    ("us-west-2", "g6.xlarge"): "0.8048",
    ("us-east-1", "p4d.24xlarge"): "21.958",
    ("us-east-1", "p5.48xlarge"): "55.04",
    ("us-east-1", "p5.4xlarge"): "6.88",
    ("us-east-1", "m5.large"): "0.096",
    ("us-east-1", "t3.micro"): "0.0104",
}
_SPOT = {
    ("us-east-1a", "g5.xlarge"): "0.425",
    ("us-east-1b", "g5.xlarge"): "0.436",
    ("us-east-1c", "g5.xlarge"): "0.451",
    ("us-east-1a", "g6.xlarge"): "0.349",
    ("us-east-1b", "g6.xlarge"): "0.399",
    ("us-east-2a", "g5.xlarge"): "0.377",
    ("us-west-2a", "g5.xlarge"): "0.483",
}


class Prices:
    """The account's price list; a test may write into every table."""

    def __init__(self) -> None:
        self.on_demand = {key: Decimal(usd) for key, usd in _ON_DEMAND.items()}
        self.spot = {key: Decimal(usd) for key, usd in _SPOT.items()}
        self.spot_history: dict[tuple[str, str], list[tuple[datetime, Decimal]]] = {}
        self.gp3_usd_per_gb_month = Decimal("0.08")
        self.public_ipv4_usd_per_hour = Decimal("0.005")

    def check_bid(self, zone: str, instance_type: str, bid: str | None) -> None:
        """Refuse a spot request whose maximum is under the market.

        Raises:
            ApiError: SpotMaxPriceTooLow.
        """
        price = self.spot.get((zone, instance_type))
        if bid and price is not None and Decimal(bid) < price:
            raise ApiError(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {bid} is lower than the minimum required Spot "
                f"request fulfillment price of {price}.",
            )

    def answer(self, request: Request) -> Reply:
        """GetProducts of the price list API.

        Raises:
            ApiError: As the service refuses.
        """
        if request.name != "GetProducts":
            raise ApiError("InvalidAction", f"the lab does not know {request.name}")
        wanted = [(each["Field"], each["Value"]) for each in request.data.get("Filters", [])]
        service = request.data["ServiceCode"]
        found = [
            json.dumps(product)
            for product in self._products()
            if product["serviceCode"] == service and _fits(product, wanted)
        ]
        start = int(request.data.get("NextToken") or 0)
        end = start + int(request.data.get("MaxResults") or 100)
        more = {"NextToken": str(end)} if end < len(found) else {}
        return json_reply({"FormatVersion": "aws_v1", "PriceList": found[start:end], **more})

    def history(self, request: Request, now: datetime) -> Reply:
        """DescribeSpotPriceHistory: the prices since StartTime, and the one in force then."""
        types = request.numbered("InstanceType")
        descriptions = request.numbered("ProductDescription")
        zone = request.form.get("AvailabilityZone")
        since = _moment(request.form.get("StartTime"), now)
        until = _moment(request.form.get("EndTime"), now)
        rows: list[dict[str, Any]] = []
        if not descriptions or "Linux/UNIX" in descriptions:
            for place, instance_type in sorted({*self.spot, *self.spot_history}):
                if not place.startswith(request.region) or zone not in (None, place):
                    continue
                if not types or instance_type in types:
                    rows += self._rows(place, instance_type, since, until, now)
        rows.sort(key=lambda row: row["timestamp"], reverse=True)
        return ec2_reply(request.name, {"spotPriceHistorySet": rows, "nextToken": ""})

    def _rows(
        self, zone: str, instance_type: str, since: datetime, until: datetime, now: datetime
    ) -> list[dict[str, Any]]:
        known = sorted(self.spot_history.get((zone, instance_type), []))
        if (zone, instance_type) in self.spot and not known:
            known = [(now - timedelta(hours=5), self.spot[zone, instance_type])]
        before = [row for row in known if row[0] <= since][-1:]
        return [
            {
                "instanceType": instance_type,
                "productDescription": "Linux/UNIX",
                "spotPrice": f"{usd:.6f}",
                "timestamp": moment,
                "availabilityZone": zone,
            }
            for moment, usd in before + [row for row in known if since < row[0] <= until]
        ]

    def _products(self) -> Iterator[dict[str, Any]]:
        for (region, instance_type), usd in sorted(self.on_demand.items()):
            yield from _compute(region, instance_type, usd)
        for region in sorted({region for region, _ in self.on_demand}):
            yield _volume(region, self.gp3_usd_per_gb_month)
            yield from _addresses(region, self.public_ipv4_usd_per_hour)


def _fits(product: dict[str, Any], wanted: list[tuple[str, str]]) -> bool:
    known = {
        **product["product"]["attributes"],
        "productFamily": product["product"]["productFamily"],
    }
    return all(known.get(field) == value for field, value in wanted)


def _moment(text: str | None, default: datetime) -> datetime:
    if not text:
        return default
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _compute(region: str, instance_type: str, usd: Decimal) -> Iterator[dict[str, Any]]:
    """The product that is meant, amid the ones that look like it."""
    prefix, _ = _where(region)
    plain = {
        "instanceType": instance_type,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "marketoption": "OnDemand",
        "operation": "RunInstances",
        "usagetype": f"{prefix}BoxUsage:{instance_type}",
    }
    others: tuple[tuple[dict[str, str], Decimal], ...] = (
        ({}, usd),
        ({"operatingSystem": "Windows", "operation": "RunInstances:0002"}, usd + Decimal("0.184")),
        ({"operatingSystem": "RHEL", "operation": "RunInstances:0010"}, usd + Decimal("0.06")),
        ({"preInstalledSw": "SQL Std", "operation": "RunInstances:0004"}, usd * 2),
        ({"tenancy": "Dedicated", "usagetype": f"{prefix}DedicatedUsage:{instance_type}"}, usd + 2),
        ({"capacitystatus": "UnusedCapacityReservation"}, usd),
        ({"capacitystatus": "AllocatedCapacityReservation"}, Decimal(0)),
        ({"marketoption": "CapacityBlock"}, Decimal(0)),
    )
    for change, price in others:
        attributes = {**plain, **change}
        words = f"per {attributes['marketoption']} {attributes['operatingSystem']} {instance_type}"
        yield _product("AmazonEC2", "Compute Instance", region, attributes, price, "Hrs", words)


def _volume(region: str, usd: Decimal) -> dict[str, Any]:
    attributes = {
        "volumeApiName": "gp3",
        "volumeType": "General Purpose",
        "storageMedia": "SSD-backed",
        "operation": "",
        "usagetype": f"{_where(region)[0]}EBS:VolumeUsage.gp3",
    }
    words = "per GB-month of General Purpose (gp3) provisioned storage"
    return _product("AmazonEC2", "Storage", region, attributes, usd, "GB-Mo", words)


def _addresses(region: str, usd: Decimal) -> Iterator[dict[str, Any]]:
    for use in ("InUse", "Idle"):
        attributes = {
            "group": "VPCPublicIPv4Address",
            "groupDescription": f"{use} public IPv4 address",
            "operation": "",
            "usagetype": f"{_where(region)[0]}PublicIPv4:{use}Address",
        }
        words = f"per {use} public IPv4 address per hour"
        yield _product("AmazonVPC", "VPC", region, attributes, usd, "Hrs", words)


def _where(region: str) -> tuple[str, str]:
    return _REGIONS.get(region, (f"{region}-", region))


def _product(
    service: str,
    family: str,
    region: str,
    attributes: dict[str, str],
    usd: Decimal,
    unit: str,
    words: str,
) -> dict[str, Any]:
    place = {"regionCode": region, "location": _where(region)[1], "locationType": "AWS Region"}
    known = {"servicecode": service, **place, **attributes}
    sku = sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16].upper()
    rate = f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "unit": unit,
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${usd} {words}",
        "appliesTo": [],
        "rateCode": rate,
        "pricePerUnit": {"USD": f"{usd:.10f}"},
    }
    offer = {
        "priceDimensions": {rate: dimension},
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return {
        "product": {"productFamily": family, "attributes": known, "sku": sku},
        "serviceCode": service,
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": offer}},
        "version": "20261119170311",
        "publicationDate": _PUBLISHED,
    }
