"""The provider `tpu`: where, for how much, and within which limits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    MachineState,
    NotOfferedError,
    ProviderUnavailableError,
    QuotaError,
)
from orchestrator.domain.prices import partition_plausible
from orchestrator.domain.quota import Headroom, QuotaStatus, headroom
from runners.tpu import TpuProvider
from tests.integration import tpu_world
from tests.integration.tpu_world import NODE, TYPE, ZONE, Skewed, ask, release, until
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.google.billing_cloud import BillingCloud
from tests.lab.google.codes import gce_fault, tpu_fault
from tests.lab.google.quotas_cloud import QuotasCloud
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud
from tests.platforms import as_platform

# fixtures
api = tpu_world.api
clock = tpu_world.clock
cloud = tpu_world.cloud
machines = tpu_world.machines
open_provider = tpu_world.open_provider
provider = tpu_world.provider


# places


def test_places_are_zones_in_each_market_in_turn(provider: TpuProvider) -> None:
    platform = {
        "accelerator_type": "v5litepod-4",
        "locations": ("us-west4", "us-central1-a"),
        "market": ("spot", "on-demand"),
    }
    places = provider.places(as_platform(platform))
    zones = ["us-west4-a", "us-west4-b", "us-central1-a"]
    assert [p.name for p in places] == [
        f"{zone}/v5litepod-4/{market}" for market in ("spot", "on-demand") for zone in zones
    ]
    first = places[0]
    assert first.price_usd_per_hour == Decimal("2.24")  # 4 chips
    assert (first.region, first.zone, first.market) == ("us-west4", "us-west4-a", "spot")
    assert (first.priced, first.minimum_s) == ("as paid until 2026-10-31", 60)
    assert first.address_usd_per_hour == Decimal("0.0025")


def test_the_shipped_prices_need_no_answer_of_google(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud
) -> None:
    unset = open_provider(gcp_project="", ingress_cidr="")
    row = {"accelerator_type": "v5litepod-4", "locations": ("us-central1-a",), "market": ("spot",)}
    [place] = unset.listed_places(as_platform(row))
    assert (place.name, place.price_usd_per_hour) == (
        "us-central1-a/v5litepod-4/spot",
        Decimal("1.36"),
    )
    assert place.priced == "as paid until 2026-10-31"
    unknown = {"accelerator_type": "v6e-4", "locations": (ZONE,)}
    assert [one.price_usd_per_hour for one in unset.listed_places(as_platform(unknown))] == [None]
    assert cloud.calls == []


def test_cheapest_goes_by_price_over_all_markets(provider: TpuProvider) -> None:
    platform = {
        "accelerator_type": TYPE,
        "locations": "cheapest",
        "market": ("on-demand", "spot"),
    }
    prices = [place.usd_per_hour for place in provider.places(as_platform(platform))]
    assert prices == sorted(p for p in prices if p is not None)
    assert provider.places(as_platform(platform))[0].market == "spot"


def test_a_type_that_no_zone_has_is_not_offered(provider: TpuProvider) -> None:
    platform = {"accelerator_type": "v6e-4", "locations": (ZONE,)}
    with pytest.raises(NotOfferedError, match=r"ListAcceleratorTypes.*us-west4-a: \d+ types"):
        provider.places(as_platform(platform))
    with pytest.raises(NotOfferedError, match="europe-north2"):
        provider.places(as_platform({"accelerator_type": TYPE, "locations": ("europe-north2",)}))
    with pytest.raises(ConfigError, match="neither a region"):
        provider.places(as_platform({"accelerator_type": TYPE, "locations": ("Mars",)}))


def test_a_zone_that_does_not_answer_stays_and_the_launch_decides(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.faults.always("ListAcceleratorTypes", tpu_fault("PERMISSION_DENIED"), where=ZONE)
    platform = {"accelerator_type": TYPE, "locations": (ZONE, "us-central1-a")}
    assert [place.zone for place in provider.places(as_platform(platform))] == [
        ZONE,
        "us-central1-a",
    ]


def test_zones_are_asked_once_in_ten_minutes(
    provider: TpuProvider, cloud: TpuCloud, clock: Skewed
) -> None:
    def asked() -> int:
        return sum(call.name == "ListAcceleratorTypes" for call in cloud.calls)

    platform = {"accelerator_type": TYPE, "locations": (ZONE,)}
    for _ in range(3):
        provider.places(as_platform(platform))
    assert asked() == 1
    clock.move(601)
    provider.places(as_platform(platform))
    assert asked() == 2


# money and limits


def test_the_real_services_are_never_asked_from_a_lab(provider: TpuProvider) -> None:
    with pytest.raises(ProviderUnavailableError, match="SEATRIAL_GCP_BILLING_ENDPOINT"):
        provider.read_prices()
    (place,) = provider.places(as_platform({"accelerator_type": TYPE, "locations": (ZONE,)}))
    demands = provider.demands(as_platform({"accelerator_type": TYPE}), place)
    assert [(one.amount, one.quota.scope, one.quota.unit) for one in demands] == [
        (1, ZONE, "chip"),
        (1, ZONE.rpartition("-")[0], "IP"),
    ]
    levels = {one.quota: provider.level(one.quota) for one in demands}
    chips, addresses = headroom(demands, levels, at_once=1)
    assert (chips.status, addresses.status) == (QuotaStatus.UNKNOWN, QuotaStatus.UNKNOWN)
    assert "SEATRIAL_GCP_QUOTAS_ENDPOINT" in chips.sentence
    assert "SEATRIAL_GCP_COMPUTE_ENDPOINT" in addresses.sentence


def test_a_public_tpu_takes_an_address_of_its_region(
    open_provider: Callable[..., TpuProvider], clock: Skewed
) -> None:
    platform = as_platform({"accelerator_type": TYPE, "locations": (ZONE,), "market": ("spot",)})
    with ComputeCloud(machines=NoMachines(), clock=clock) as compute:
        compute.quotas.set("IN_USE_ADDRESSES", 4)
        compute.quotas.use("IN_USE_ADDRESSES", 4, region=ZONE.rpartition("-")[0])
        provider = open_provider(gcp_compute_endpoint=compute.endpoint_url)
        _, address = provider.demands(platform, provider.places(platform)[0])
        (room,) = headroom([address], {address.quota: provider.level(address.quota)}, at_once=1)
    assert (room.status, room.quota.code) == (QuotaStatus.SHORT, "IN_USE_ADDRESSES")
    assert room.quota.provider == "gcp", "virtual machines take the same ones"


def test_prices_are_read_from_the_catalogue(
    open_provider: Callable[..., TpuProvider], clock: Skewed
) -> None:
    with BillingCloud(clock=clock) as billing:
        provider = open_provider(gcp_billing_endpoint=billing.endpoint_url)
        prices = {(p.place, p.market): p for p in provider.read_prices()}
        billing.faults.always("services.skus.list", gce_fault("backendError"))
        with pytest.raises(ProviderUnavailableError, match="catalogue"):
            provider.read_prices()
    assert prices["us-west4", "spot"].usd_per_hour == Decimal("0.48")
    assert prices["europe-west4", "on-demand"].usd_per_hour == Decimal("1.56")
    assert {price.item for price in prices.values()} == {"v5e-chip"}
    assert {price.source for price in prices.values()} == {"pricing API"}
    believed, uncertain = partition_plausible(prices.values())
    assert (len(believed), uncertain) == (12, ())


def level_of(provider: TpuProvider, market: str, kind: str = TYPE) -> Headroom:
    platform = {"accelerator_type": kind, "locations": (ZONE,), "market": (market,)}
    (place,) = provider.places(as_platform(platform))
    demand = provider.demands(as_platform(platform), place)[0]
    (room,) = headroom([demand], {demand.quota: provider.level(demand.quota)}, at_once=1)
    return room


def test_quotas_are_limits_less_everything_that_is_listed(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud, clock: Skewed
) -> None:
    cloud.quotas.set(ZONE, 8)
    cloud.quotas.set(ZONE, 1, market="spot")
    with QuotasCloud(quotas=cloud.quotas, clock=clock) as quotas:
        provider = open_provider(gcp_quotas_endpoint=quotas.endpoint_url)
        assert level_of(provider, "on-demand", "v5litepod-8").status is QuotaStatus.OK
        provider.launch(ask())
        provider.launch(ask("t-2", options=NODE))
        spot = provider.launch(ask("t-3", market="spot"))
        until(provider, spot.id, MachineState.READY)
        room = level_of(provider, "on-demand", "v5litepod-8")
        assert (room.level.limit, room.level.used, room.status) == (8, 2, QuotaStatus.SHORT)
        assert "ask TPUV5sLitepodServingPerProjectPerZoneForTPUAPI for >= 10" in room.sentence
        cloud.preempt("seatrial-seatrial-t-3", notice_s=0)
        until(provider, spot.id, MachineState.STOPPING)
        assert level_of(provider, "spot").level.used == 1  # it counts until it is deleted
        with pytest.raises(QuotaError, match="Limit: 1 in zone"):
            provider.launch(ask("t-4", market="spot"))
        release(provider, spot.id)
        assert level_of(provider, "spot").status is QuotaStatus.OK


def test_a_quota_that_cannot_be_read_is_unknown(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud, clock: Skewed
) -> None:
    with QuotasCloud(quotas=cloud.quotas, clock=clock) as quotas:
        provider = open_provider(gcp_quotas_endpoint=quotas.endpoint_url)
        quotas.faults.always("quotaInfos.list", gce_fault("forbidden"))
        room = level_of(provider, "spot")
        assert (room.status, room.level.limit) == (QuotaStatus.UNKNOWN, None)
        assert "PERMISSION_DENIED" in room.sentence


@pytest.mark.parametrize("status", [200, 502])
def test_a_page_in_place_of_a_quota_is_named_and_not_printed(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud, clock: Skewed, status: int
) -> None:
    page = Fault(status=status, body="<html><title>502 Bad Gateway</title><p>nginx</html>")
    with QuotasCloud(quotas=cloud.quotas, clock=clock) as quotas:
        provider = open_provider(gcp_quotas_endpoint=quotas.endpoint_url)
        quotas.faults.always("quotaInfos.list", page)
        room = level_of(provider, "spot")
    assert room.status is QuotaStatus.UNKNOWN
    assert "<" not in room.sentence


def test_it_is_configured_where_a_project_is_named(
    open_provider: Callable[..., TpuProvider], provider: TpuProvider
) -> None:
    assert provider.is_configured()
    assert not open_provider(gcp_project="").is_configured()
    with pytest.raises(ConfigError, match="SEATRIAL_GCP_PROJECT"):
        open_provider(gcp_project="").launch(ask())


def test_a_cloud_that_is_away_is_unavailable(open_provider: Callable[..., TpuProvider]) -> None:
    provider = open_provider(gcp_tpu_endpoint="127.0.0.1:1")
    with pytest.raises(ProviderUnavailableError):
        provider.launch(ask())
    with pytest.raises(ProviderUnavailableError):
        provider.inventory()
