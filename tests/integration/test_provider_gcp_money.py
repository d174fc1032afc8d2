"""The provider ``gcp``: what machines cost, and how many of them may be had."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.prices import Price
from orchestrator.domain.quota import QuotaStatus, headroom
from runners.gcp import GcpProvider
from tests.integration.gcp_lab import PLATFORM, ZONE, Clock, ask, provider_of
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.billing_cloud import BillingCloud
from tests.lab.google.codes import gce_fault
from tests.platforms import as_platform


class Book:
    """Refreshed prices, in memory."""

    def __init__(self, *prices: Price) -> None:
        self.prices = prices

    def write(self, prices: object) -> None:
        raise AssertionError("a provider only reads")

    def of(self, provider: str) -> tuple[Price, ...]:
        return tuple(each for each in self.prices if each.provider == provider)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cloud(clock: Clock) -> Iterator[ComputeCloud]:
    with ComputeCloud(clock=clock) as cloud:
        yield cloud


@pytest.fixture
def provider(cloud: ComputeCloud, clock: Clock) -> Iterator[GcpProvider]:
    provider = provider_of(cloud, clock)
    yield provider
    provider.close()


# prices


def test_prices_are_of_the_dated_table(provider: GcpProvider) -> None:
    places = {place.name: place for place in provider.places(as_platform(PLATFORM))}
    place = places["us-central1-a/g2-standard-4/on-demand"]
    assert place.price_usd_per_hour == Decimal("0.70683")
    assert place.disk_usd_per_hour == Decimal("0.10") / 730 * 100
    assert place.address_usd_per_hour == Decimal("0.005")
    assert (place.minimum_s, place.priced) == (60, "undated catalogue, read 2026-11-21")
    assert (place.region, place.zone, place.market) == ("us-central1", ZONE, "on-demand")
    spot = places["us-central1-a/g2-standard-4/spot"]
    assert spot.price_usd_per_hour == Decimal("0.28184")
    assert places["us-west1-a/g2-standard-4/spot"].price_usd_per_hour == Decimal("0.28184")
    private = provider.places(as_platform({**PLATFORM, "connect": "private"}))
    assert {each.address_usd_per_hour for each in private} == {Decimal(0)}


def test_a_refreshed_price_takes_the_place_of_the_tables(cloud: ComputeCloud, clock: Clock) -> None:
    at = clock()
    fresh = Price("gcp", "g2-standard-4", "us-west1", "spot", Decimal("0.3"), at, "pricing API")
    old = replace(fresh, market="on-demand", as_of=at - timedelta(days=3650))
    provider = provider_of(cloud, clock, prices=Book(fresh, old))
    places = {place.name: place for place in provider.places(as_platform(PLATFORM))}
    spot = places["us-west1-a/g2-standard-4/spot"]
    assert spot.price_usd_per_hour == Decimal("0.3")
    assert spot.priced == f"pricing API {at:%Y-%m-%d}"
    assert places["us-west1-a/g2-standard-4/on-demand"].price_usd_per_hour == Decimal("0.70683")
    assert fresh in provider.known_prices()


# quotas


def sentences(provider: GcpProvider, place: str) -> dict[str, tuple[QuotaStatus, str]]:
    (found,) = [each for each in provider.places(as_platform(PLATFORM)) if each.name == place]
    demands = provider.demands(as_platform(PLATFORM), found)
    levels = {each.quota: provider.level(each.quota) for each in demands}
    lines = headroom(demands, levels, at_once=1)
    return {line.quota.code: (line.status, line.sentence) for line in lines}


def test_what_a_spot_machine_takes_of_which_quotas(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    lines = sentences(provider, f"{ZONE}/g2-standard-4/spot")
    assert lines["PREEMPTIBLE_NVIDIA_L4_GPUS"][0] is QuotaStatus.OK
    assert lines["GPUS_ALL_REGIONS"] == (
        QuotaStatus.OK,
        "needs 1 GPU of GPUs in all regions in lab, 4 free",
    )
    assert lines["SSD_TOTAL_GB"][0] is QuotaStatus.OK
    assert lines["PREEMPTIBLE_CPUS"][0] is QuotaStatus.UNKNOWN
    assert "take CPUS like all others" in lines["PREEMPTIBLE_CPUS"][1]
    provider.launch(ask(provider, clock, place=f"{ZONE}/g2-standard-4/spot"))
    room, said = sentences(provider, f"{ZONE}/g2-standard-4/spot")["PREEMPTIBLE_NVIDIA_L4_GPUS"]
    assert room is QuotaStatus.SHORT
    assert said == (
        "needs 1 GPU of L4 spot in us-central1, 0 free; ask PREEMPTIBLE_NVIDIA_L4_GPUS for >= 2"
    )
    assert (
        sentences(provider, f"{ZONE}/g2-standard-4/on-demand")["NVIDIA_L4_GPUS"][0]
        is QuotaStatus.OK
    )


def test_a_spot_quota_of_zero_means_that_the_standard_one_counts(
    provider: GcpProvider, cloud: ComputeCloud
) -> None:
    cloud.quotas.set("PREEMPTIBLE_NVIDIA_L4_GPUS", 0)
    spot = f"{ZONE}/g2-standard-4/spot"
    status, said = sentences(provider, spot)["PREEMPTIBLE_NVIDIA_L4_GPUS"]
    assert status is QuotaStatus.UNKNOWN
    assert "take NVIDIA_L4_GPUS like all others" in said
    cloud.quotas.set("NVIDIA_L4_GPUS", 0)
    status, said = sentences(provider, spot)["PREEMPTIBLE_NVIDIA_L4_GPUS"]
    assert status is QuotaStatus.SHORT


def test_a_quota_that_cannot_be_read_is_unknown_and_never_enough(
    provider: GcpProvider, cloud: ComputeCloud
) -> None:
    cloud.quotas.forget("NVIDIA_L4_GPUS")
    cloud.refuse("projects.get", "forbidden", "forbidden", "forbidden")
    lines = sentences(provider, f"{ZONE}/g2-standard-4/on-demand")
    assert lines["NVIDIA_L4_GPUS"][0] is QuotaStatus.UNKNOWN
    assert "is not among the quotas" in lines["NVIDIA_L4_GPUS"][1]
    assert lines["GPUS_ALL_REGIONS"][0] is QuotaStatus.UNKNOWN
    assert "forbidden" in lines["GPUS_ALL_REGIONS"][1]


def test_a_quota_without_a_limit_is_never_short(provider: GcpProvider, cloud: ComputeCloud) -> None:
    for name in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_CPUS", "GPUS_ALL_REGIONS"):
        cloud.quotas.set(name, -1)
    cloud.quotas.set("NVIDIA_L4_GPUS", 0, region="us-west1")
    on_demand = sentences(provider, f"{ZONE}/g2-standard-4/on-demand")
    assert on_demand["NVIDIA_L4_GPUS"][0] is QuotaStatus.OK
    assert on_demand["GPUS_ALL_REGIONS"][0] is QuotaStatus.OK
    assert (
        sentences(provider, f"{ZONE}/g2-standard-4/spot")["PREEMPTIBLE_CPUS"][0] is QuotaStatus.OK
    )
    none = sentences(provider, "us-west1-a/g2-standard-4/on-demand")
    assert none["NVIDIA_L4_GPUS"][0] is QuotaStatus.SHORT


# the catalogue


class Catalogue(BaseHTTPRequestHandler):
    """Two pages of SKUs, as the billing API answers them."""

    def do_GET(self) -> None:
        is_second = "pageToken=two" in self.path
        what = ("G2 Instance Core", "G2 Instance Ram", "Nvidia L4 GPU")
        spot = "Spot Preemptible " if is_second else ""
        nanos = (25_000_000, 3_000_000, 560_000_000)
        skus = [
            sku(f"{spot}{name} running in Americas", nano // (2 if spot else 1))
            for name, nano in zip(what, nanos, strict=True)
        ]
        body = {"skus": skus, **({} if is_second else {"nextPageToken": "two"})}
        answer = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def sku(description: str, nanos: int) -> dict[str, object]:
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "nanos": nanos}}
    spot = description.startswith("Spot")
    return {
        "description": description,
        "category": {
            "resourceFamily": "Compute",
            "usageType": "Preemptible" if spot else "OnDemand",
        },
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": [rate]}}],
    }


def test_prices_are_read_from_the_catalogue(cloud: ComputeCloud, clock: Clock) -> None:
    server = HTTPServer(("127.0.0.1", 0), Catalogue)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    provider = provider_of(cloud, clock, gcp_billing_endpoint=endpoint)
    try:
        found = {(p.item, p.place, p.market): p for p in provider.read_prices()}
    finally:
        provider.close()
        server.shutdown()
        server.server_close()
        thread.join()
    four = found["g2-standard-4", "us-central1", "on-demand"]
    assert four.usd_per_hour == Decimal("0.708")  # 4 x 0.025 + 16 x 0.003 + 0.56
    assert found["g2-standard-4", "us-central1", "spot"].usd_per_hour == Decimal("0.354")
    assert found["g2-standard-8", "us-central1", "on-demand"].usd_per_hour == Decimal("0.856")
    assert four.source == "pricing API"


def test_a_refused_catalogue_names_the_api_that_is_to_be_enabled(
    cloud: ComputeCloud, clock: Clock
) -> None:
    told = (
        "Cloud Billing API has not been used in project 123456789012 before or it is disabled. "
        "Enable it by visiting https://console.developers.google.com/apis/api/"
        "cloudbilling.googleapis.com/overview?project=123456789012 then retry."
    )
    with BillingCloud(clock=clock) as billing:
        provider = provider_of(cloud, clock, gcp_billing_endpoint=billing.endpoint_url)
        billing.faults.always("services.skus.list", gce_fault("accessNotConfigured", message=told))
        with pytest.raises(ConfigError) as caught:
            tuple(provider.read_prices())
        provider.close()
    assert "the Cloud Billing API: Google answered" in str(caught.value)
    assert "cloudbilling.googleapis.com" in str(caught.value)
    assert "Compute" not in str(caught.value)


def test_google_is_never_asked_for_prices_beside_an_emulated_cloud(provider: GcpProvider) -> None:
    assert provider.read_prices() == ()
