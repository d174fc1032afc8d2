"""The provider aws: places, prices and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.machine import (
    CredentialsError,
    NotOfferedError,
    Place,
)
from orchestrator.domain.prices import partition_plausible
from orchestrator.domain.quota import QuotaLevel, QuotaStatus, headroom
from runners.aws import AwsProvider
from tests.integration.aws_world import (
    MI300X,
    NOW,
    PLATFORM,
    account,
    ask,
    calls,
    context,
)
from tests.lab.aws.codes import GATEWAY_PAGE, aws_fault
from tests.lab.aws_cloud import AwsCloud
from tests.platforms import as_platform


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def aws(cloud: AwsCloud) -> AwsProvider:
    return AwsProvider(context())


def test_the_shipped_prices_need_no_answer_of_aws(aws: AwsProvider, cloud: AwsCloud) -> None:
    a10g = {"provider": "aws", "accelerator": {"vendor": "nvidia", "name": "A10G"}}
    found = aws.listed_places(as_platform(a10g | {"locations": ("us-east-1", "eu-west-2b")}))
    assert [(place.name, place.price_usd_per_hour) for place in found] == [
        ("us-east-1/g5.xlarge/on-demand", Decimal("1.006")),
        ("eu-west-2b/g5.xlarge/on-demand", Decimal("1.277")),
    ]
    assert {place.priced for place in found} == {"undated catalogue, read 2026-11-21"}
    named = {"provider": "aws", "instance_type": ("g6.xlarge", "m5.large")}
    assert {one.instance_type for one in aws.listed_places(as_platform(named))} == {"g6.xlarge"}
    assert aws.listed_places(as_platform(MI300X)) == ()
    assert cloud.calls == []


# places


def names(places: tuple[Place, ...]) -> list[str]:
    return [place.name for place in places]


def test_places_are_market_by_market_then_by_location_then_by_type(aws: AwsProvider) -> None:
    platform = {
        "instance_type": ("g6.xlarge", "g5.xlarge"),
        "locations": ("us-east-2b", "us-east-1"),
        "market": ("spot", "on-demand"),
    }
    order = [(p.market, p.region, p.instance_type) for p in aws.places(as_platform(platform))]
    seen = list(dict.fromkeys(order))
    assert seen == [
        (market, region, kind)
        for market in ("spot", "on-demand")
        for region in ("us-east-2", "us-east-1")
        for kind in ("g6.xlarge", "g5.xlarge")
        if (market, region, kind) in order
    ]
    assert {p.zone for p in aws.places(as_platform(platform)) if p.region == "us-east-2"} == {
        "us-east-2b"
    }
    assert names(aws.places(as_platform(platform)))[-1].endswith("/g5.xlarge/on-demand")


def test_a_place_costs_what_the_table_says_with_disk_and_address(aws: AwsProvider) -> None:
    spot, *_, on_demand = aws.places(as_platform(PLATFORM))
    assert (spot.market, spot.price_usd_per_hour) == ("spot", Decimal("0.451"))
    assert (on_demand.market, on_demand.price_usd_per_hour) == ("on-demand", Decimal("1.006"))
    assert spot.disk_usd_per_hour == Decimal("0.08") / 720 * 150
    assert spot.address_usd_per_hour == Decimal("0.005")
    assert (spot.minimum_s, spot.priced) == (60, "undated catalogue, read 2026-11-21")


def test_on_demand_is_what_a_platform_gets_that_says_nothing(aws: AwsProvider) -> None:
    places = aws.places(as_platform({"instance_type": "g5.xlarge"}))
    assert {place.market for place in places} == {"on-demand"}
    assert {place.region for place in places} == {"us-east-1", "us-east-2", "us-west-2"}


def test_cheapest_goes_by_the_price_over_all_regions(aws: AwsProvider) -> None:
    platform = {**PLATFORM, "locations": "cheapest"}
    places = aws.places(as_platform(platform))
    prices = [place.usd_per_hour for place in places if place.usd_per_hour is not None]
    assert prices == sorted(prices)
    assert (places[0].region, places[0].market) == ("eu-north-1", "spot")
    assert len({place.region for place in places}) > 5
    assert all(place.usd_per_hour is None for place in places[len(prices) :])


def test_places_are_remembered_for_ten_minutes(cloud: AwsCloud) -> None:
    clock = [NOW]
    aws = AwsProvider(replace(context(), now=lambda: clock[0]))
    aws.places(as_platform(PLATFORM))
    asked = len(cloud.calls)
    aws.places(as_platform(PLATFORM))
    clock[0] += timedelta(minutes=9)
    aws.places(as_platform(PLATFORM))
    assert len(cloud.calls) == asked
    clock[0] += timedelta(minutes=2)
    cloud.faults.always("DescribeInstanceTypeOfferings", aws_fault("ServiceUnavailable"))
    assert aws.places(as_platform(PLATFORM))  # the older answer is better than none
    assert len(cloud.calls) > asked


def test_one_location_that_does_not_answer_does_not_take_the_others_along(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    both = {**PLATFORM, "locations": ("us-east-1", "us-east-2")}
    cloud.faults.always(
        "DescribeInstanceTypeOfferings", aws_fault("AuthFailure"), where="us-east-1"
    )
    assert {place.region for place in aws.places(as_platform(both))} == {"us-east-2"}
    with pytest.raises(CredentialsError, match="may not be enabled"):
        aws.places(as_platform(PLATFORM))


def test_a_type_that_no_zone_has_is_not_offered(aws: AwsProvider) -> None:
    with pytest.raises(
        NotOfferedError, match=r"EC2 offers p6e-gb200\.36xlarge in none of us-east-1"
    ):
        aws.places(
            as_platform({"instance_type": "p6e-gb200.36xlarge", "locations": ("us-east-1",)})
        )


def test_an_accelerator_is_enough_to_choose_by_and_nothing_is_rented_in_its_place(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    a10g = {"accelerator": {"vendor": "nvidia", "name": "NVIDIA A10G"}, "locations": ["us-east-1"]}
    assert {place.instance_type for place in aws.places(as_platform(a10g))} == {"g5.xlarge"}
    with pytest.raises(NotOfferedError) as refused:
        aws.places(as_platform({**MI300X, "locations": ["us-east-1"]}))
    said = str(refused.value)
    for word in ("MI300X", "us-east-1", "those by amd: none", f"{NOW:%Y-%m-%d}"):
        assert word in said
    assert not calls(cloud, "RunInstances")


# prices


def test_prices_are_read_and_can_be_believed(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.prices.on_demand["us-east-1", "g5.xlarge"] = Decimal("1.111")
    cloud.prices.spot["us-east-1b", "g5.xlarge"] = Decimal("0.333")
    believed, uncertain = partition_plausible(aws.read_prices())
    assert not uncertain
    read = {(one.item, one.place, one.market): one for one in believed}
    assert read["g5.xlarge", "us-east-1", "on-demand"].usd_per_hour == Decimal("1.111")
    assert read["g5.xlarge", "us-east-1", "on-demand"].source == "pricing API"
    assert read["g5.xlarge", "us-east-1b", "spot"].usd_per_hour == Decimal("0.333")
    assert read["g5.xlarge", "us-east-1b", "spot"].as_of == NOW


def test_refreshed_prices_take_the_tables_place(cloud: AwsCloud) -> None:
    later = NOW + timedelta(days=30)
    cloud.prices.on_demand["us-east-1", "g5.xlarge"] = Decimal("1.111")
    cloud.prices.spot["us-east-1b", "g5.xlarge"] = Decimal("0.333")
    given = context(later)
    aws = AwsProvider(given)
    assert given.prices is not None
    given.prices.write(aws.read_prices())
    prices = {(p.zone, p.market): p for p in aws.places(as_platform(PLATFORM))}
    assert prices["us-east-1b", "spot"].price_usd_per_hour == Decimal("0.333")
    assert prices["us-east-1b", "spot"].priced == f"spot history {later:%Y-%m-%d}"
    assert prices["us-east-1a", "on-demand"].price_usd_per_hour == Decimal("1.111")
    assert prices["us-east-1a", "on-demand"].priced == f"pricing API {later:%Y-%m-%d}"


def test_the_newest_entry_of_the_spot_history_holds(aws: AwsProvider, cloud: AwsCloud) -> None:
    zone = ("us-east-1a", "g5.xlarge")
    cloud.prices.spot_history[zone] = [
        (NOW - timedelta(hours=9), Decimal("0.5")),
        (NOW - timedelta(hours=1), Decimal("0.6")),
    ]
    read = [p for p in aws.read_prices() if (p.place, p.item) == zone]
    assert [p.usd_per_hour for p in read] == [Decimal("0.6")]


def test_a_region_that_is_not_enabled_has_no_spot_prices(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.always("DescribeSpotPriceHistory", aws_fault("AuthFailure"), where="us-east-1")
    spot = {price.place for price in aws.read_prices() if price.market == "spot"}
    assert "us-east-2a" in spot
    assert "us-east-1a" not in spot


# quotas


def level(aws: AwsProvider, place: int = 0) -> QuotaLevel:
    (demand,) = aws.demands(as_platform(PLATFORM), aws.places(as_platform(PLATFORM))[place])
    assert demand.amount == 4
    return aws.level(demand.quota)


def test_what_runs_already_is_no_longer_free(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.quotas["us-east-1", "L-3819A6DF"] = 8
    assert level(aws) == QuotaLevel(8, 0)
    aws.launch(ask(aws))
    assert level(aws) == QuotaLevel(8, 4)
    assert level(aws, place=-1).used == 0  # on-demand counts for itself


def test_what_is_short_says_what_to_ask_for(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.quotas["us-east-1", "L-3819A6DF"] = 4
    place = aws.places(as_platform(PLATFORM))[0]
    demands = aws.demands(as_platform(PLATFORM), place) * 2
    levels = {one.quota: aws.level(one.quota) for one in demands}
    (room,) = headroom(demands, levels, at_once=2)
    assert room.status is QuotaStatus.SHORT
    assert room.sentence == (
        "needs 8 vCPU of G/VT spot in us-east-1, 4 free; ask L-3819A6DF for >= 8"
    )


def test_an_account_without_a_limit_of_its_own_has_the_default(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.quotas["us-east-1", "L-3819A6DF"] = None
    assert level(aws) == QuotaLevel(0, 0)


def test_what_cannot_be_read_is_unknown(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.always("GetServiceQuota", aws_fault("AccessDeniedException"))
    found = level(aws)
    assert (found.limit, found.used) == (None, None)
    assert "AccessDeniedException" in found.why_unknown


def test_usage_that_cannot_be_read_is_unknown_too(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.always("DescribeInstances", aws_fault("UnauthorizedOperation"))
    found = level(aws)
    assert (found.limit, found.used) == (512, None)
    assert "UnauthorizedOperation" in found.why_unknown


def test_a_page_in_place_of_a_quota_is_named_and_not_printed(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.faults.always("GetServiceQuota", GATEWAY_PAGE)
    said = level(aws).why_unknown
    assert "a web page titled '500 Internal Server Error'" in said
    assert "<" not in said
