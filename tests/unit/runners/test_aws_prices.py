"""The shipped table and what takes its place; which quota a type counts against."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.machine import ProviderError
from orchestrator.domain.prices import CATALOGUE, Price, partition_plausible
from runners.aws.platform_config import shipped
from runners.aws.prices import _product, price_list
from runners.aws.quotas import class_of, quota_of

TABLE_DAY = datetime(2026, 11, 21, tzinfo=UTC)
PRICE = Price(
    provider="aws",
    item="g5.xlarge",
    place="us-east-1",
    market="on-demand",
    usd_per_hour=Decimal("1.20"),
    as_of=TABLE_DAY + timedelta(days=1),
    source="pricing API",
)


class Shelf:
    def __init__(self, *prices: Price) -> None:
        self.prices = prices

    def write(self, prices: Iterable[Price]) -> None:
        self.prices = tuple(prices)

    def of(self, provider: str) -> tuple[Price, ...]:
        return self.prices


def on_demand(*refreshed: Price) -> Price | None:
    return price_list(Shelf(*refreshed)).of("g5.xlarge", "us-east-1a", "us-east-1", "on-demand")


def test_the_shipped_table_breaks_no_rule_and_is_dated() -> None:
    believed, uncertain = partition_plausible(shipped().prices)
    assert not uncertain
    assert len(believed) == 68
    assert {price.as_of for price in believed} == {TABLE_DAY}


@pytest.mark.parametrize(
    ("region", "item", "usd"),
    [
        ("us-east-1", "g5.xlarge", "1.006"),
        ("us-east-1", "g6.xlarge", "0.8048"),
        ("us-east-1", "p5.48xlarge", "55.04"),
        ("eu-central-1", "g6e.16xlarge", "9.475"),
        ("ap-northeast-1", "p4d.24xlarge", "30.098"),
        ("ap-east-1", "g5.xlarge", "1.5488"),
    ],
)
def test_the_table_says_what_aws_asks(region: str, item: str, usd: str) -> None:
    price = price_list(None).of(item, f"{region}a", region, "on-demand")
    assert price is not None
    assert price.usd_per_hour == Decimal(usd)


def test_each_region_of_the_a10g_but_one_has_a_spot_price() -> None:
    def regions(market: str) -> set[str]:
        return {
            price.place
            for price in shipped().prices
            if (price.item, price.market) == ("g5.xlarge", market)
        }

    assert regions("on-demand") - regions("spot") == {"ap-east-1"}


def test_every_priced_type_is_described() -> None:
    assert {price.item for price in shipped().prices} <= set(shipped().types)


def test_an_unknown_price_is_none_and_never_nothing() -> None:
    assert price_list(None).of("g6.xlarge", "eu-west-1a", "eu-west-1", "on-demand") is None
    assert price_list(None).of("p5e.48xlarge", "us-east-1a", "us-east-1", "spot") is None


def test_a_newer_price_takes_the_tables_place() -> None:
    assert on_demand(PRICE) == PRICE


def test_an_older_price_does_not() -> None:
    found = on_demand(replace(PRICE, as_of=TABLE_DAY - timedelta(days=1)))
    assert found is not None
    assert found.source == CATALOGUE


def test_an_older_price_of_something_else_is_not_used_either() -> None:
    old = replace(PRICE, item="g5.2xlarge", as_of=TABLE_DAY - timedelta(days=1))
    assert price_list(Shelf(old)).of("g5.2xlarge", "", "us-east-1", "on-demand") is None


def test_a_price_of_nothing_is_not_used() -> None:
    found = on_demand(replace(PRICE, usd_per_hour=Decimal(0)))
    assert found is not None
    assert found.source == CATALOGUE


def test_a_zones_own_spot_price_comes_before_its_regions() -> None:
    zone = replace(PRICE, place="us-east-1b", market="spot", usd_per_hour=Decimal("0.3"))
    prices = price_list(Shelf(zone))
    there = prices.of("g5.xlarge", "us-east-1b", "us-east-1", "spot")
    beside = prices.of("g5.xlarge", "us-east-1a", "us-east-1", "spot")
    assert there == zone
    assert beside is not None
    assert beside.usd_per_hour == Decimal("0.451")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        '{"terms": {"OnDemand": {}}}',
        (
            '{"product": {"attributes": {"regionCode": "us-east-1"}}, "terms": {"OnDemand": {"o": '
            '{"priceDimensions": {"d": {"unit": "Quantity", "pricePerUnit": {"USD": "1"}}}}}}}'
        ),
        (
            '{"product": {"attributes": {"regionCode": "us-east-1"}}, "terms": {"OnDemand": {"o": '
            '{"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"CNY": "1"}}}}}}}'
        ),
    ],
)
def test_a_product_that_cannot_be_read_is_no_price(text: str) -> None:
    with pytest.raises(ProviderError, match="no price was taken"):
        _product(text, "g5.xlarge")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("g5.xlarge", "g"), ("g4dn.xlarge", "g"), ("g6e.16xlarge", "g"), ("gr6.4xlarge", "g"),
        ("vt1.3xlarge", "g"), ("p2.xlarge", "p"), ("p3.2xlarge", "p"), ("p4d.24xlarge", "p"),
        ("p5.48xlarge", "p5"), ("p5en.48xlarge", "p5"), ("p6-b200.48xlarge", ""),
        ("m5.large", "standard"), ("t3.micro", "standard"), ("im4gn.large", "standard"),
        ("inf2.xlarge", ""), ("trn1.2xlarge", ""), ("hpc6a.48xlarge", ""), ("dl1.24xlarge", "dl"),
        ("x2idn.16xlarge", ""), ("mac1.metal", ""),
    ],
)  # fmt: skip
def test_a_type_counts_against_its_own_limit(name: str, expected: str) -> None:
    assert class_of(name) == expected


@pytest.mark.parametrize(
    ("name", "market", "code"),
    [
        ("g5.xlarge", "on-demand", "L-DB2E81BA"), ("g5.xlarge", "spot", "L-3819A6DF"),
        ("p4d.24xlarge", "on-demand", "L-417A185B"), ("p3.2xlarge", "spot", "L-7212CCBC"),
        ("p5.48xlarge", "on-demand", "L-417A185B"), ("p5.48xlarge", "spot", "L-C4BD4855"),
        ("t3.micro", "on-demand", "L-1216C47A"), ("t3.micro", "spot", "L-34B43A08"),
        ("dl1.24xlarge", "on-demand", "L-6E869C2A"), ("dl1.24xlarge", "spot", "L-85EED4F7"),
        ("trn1.2xlarge", "spot", ""),
    ],
)  # fmt: skip
def test_a_limit_has_the_code_to_ask_for(name: str, market: str, code: str) -> None:
    quota = quota_of(name, "us-east-1", market)
    assert (quota.code, quota.scope, quota.unit) == (code, "us-east-1", "vCPU")


def test_the_sdk_is_not_loaded_for_the_traits() -> None:
    program = (
        "import sys, runners.aws; print(runners.aws.TRAITS.name, 'boto3' in sys.modules);"
        "print(runners.aws.AwsProvider.__name__, 'boto3' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == ["aws", "False", "AwsProvider", "True"]
