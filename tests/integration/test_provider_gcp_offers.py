"""The provider ``gcp``: where, from which image, for how much, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    ConsoleLog,
    Credentialed,
    Extent,
    MachineState,
    NotOfferedError,
    Offers,
    ProviderUnavailableError,
)
from orchestrator.domain.prices import Prices
from orchestrator.domain.quota import Quotas
from runners import registry
from runners.fake import MemoryHostStore
from runners.gcp import TRAITS, GcpProvider
from runners.provider_context import ProviderContext
from tests.integration.gcp_lab import PLATFORM, ZONE, Clock, ask, called, provider_of, settled
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.images import Image
from tests.platforms import as_platform

FAMILY = "pytorch-2-9-cu129-ubuntu-2404-nvidia-580"
NEXT = "pytorch-2-9-cu129-ubuntu-2204-nvidia-580"
DEPRECATED = "pytorch-2-7-cu128-ubuntu-2204-nvidia-570"


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


def names(provider: GcpProvider, **changed: object) -> list[str]:
    return [place.name for place in provider.places(as_platform({**PLATFORM, **changed}))]


# the seam


def test_it_is_found_by_name_and_has_every_extra() -> None:
    assert registry.traits("gcp") is TRAITS
    settings = {"gcp_compute_endpoint": "http://127.0.0.1:1", "gcp_project": "lab"}
    provider = registry.load("gcp", ProviderContext(book=MemoryHostStore(), settings=settings))
    for extra in (Offers, Prices, Quotas, ConsoleLog, Credentialed):
        assert isinstance(provider, extra)
    assert TRAITS.rented
    assert TRAITS.notice == "gcp"


def test_without_a_project_it_says_which_setting_is_missing(
    cloud: ComputeCloud, clock: Clock
) -> None:
    provider = provider_of(cloud, clock, gcp_project="")
    assert not provider.is_configured()
    with pytest.raises(ConfigError, match="SEATRIAL_GCP_PROJECT") as caught:
        list(provider.inventory())
    assert caught.value.extent is Extent.PROJECT
    assert provider_of(cloud, clock).is_configured()


def test_nobody_at_the_endpoint_is_unavailable(cloud: ComputeCloud, clock: Clock) -> None:
    provider = provider_of(cloud, clock, gcp_compute_endpoint="http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailableError, match="ConnectionError"):
        provider.inspect(f"{ZONE}/instances/x")
    provider.close()


# places


def test_spot_everywhere_comes_before_on_demand_anywhere(provider: GcpProvider) -> None:
    assert names(provider) == [
        "us-west1-a/g2-standard-4/spot",
        "us-central1-a/g2-standard-4/spot",
        "us-west1-a/g2-standard-4/on-demand",
        "us-central1-a/g2-standard-4/on-demand",
    ]


def test_a_region_is_all_its_zones_and_types_are_in_order(provider: GcpProvider) -> None:
    found = names(
        provider,
        locations=("us-east4", "us-west1-b"),
        instance_type=("g2-standard-8", "g2-standard-4"),
        market=None,
    )
    assert found == [
        "us-east4-a/g2-standard-8/on-demand",
        "us-east4-c/g2-standard-8/on-demand",
        "us-east4-a/g2-standard-4/on-demand",
        "us-east4-c/g2-standard-4/on-demand",
        "us-west1-b/g2-standard-8/on-demand",
        "us-west1-b/g2-standard-4/on-demand",
    ]


def test_the_cheapest_is_first_and_what_has_no_price_is_last(provider: GcpProvider) -> None:
    found = provider.places(as_platform({**PLATFORM, "locations": "cheapest"}))
    totals = [place.usd_per_hour for place in found]
    known = [total for total in totals if total is not None]
    assert known == sorted(known)
    assert totals[len(known) :] == [None] * (len(totals) - len(known))
    assert found[0].name == "asia-northeast3-a/g2-standard-4/spot"
    assert len({place.region for place in found}) == 18


def test_an_accelerator_finds_the_smallest_machine_with_so_many(provider: GcpProvider) -> None:
    wish = {"vendor": "nvidia", "name": "L4", "count": 2}
    found = names(provider, instance_type=None, accelerator=wish, locations=(ZONE,), market=None)
    assert found == [f"{ZONE}/g2-standard-24/on-demand"]
    one = names(
        provider,
        instance_type=None,
        accelerator={**wish, "count": 1},
        locations=(ZONE,),
        market=None,
    )
    assert one[0] == f"{ZONE}/g2-standard-4/on-demand"


def test_what_is_not_sold_says_what_was_asked_and_answered(
    provider: GcpProvider, cloud: ComputeCloud
) -> None:
    amd = {"vendor": "amd", "name": "MI300X", "count": 1}
    for _ in range(2):
        with pytest.raises(NotOfferedError) as caught:
            provider.places(as_platform({"accelerator": amd}))
    said = str(caught.value)
    assert "1 x amd MI300X" in said
    assert "acceleratorTypes.aggregatedList answered 2 accelerators" in said
    assert "nvidia-h100-80gb, nvidia-l4" in said
    assert called(cloud, "acceleratorTypes.aggregatedList") == 1  # kept for ten minutes


def test_an_accelerator_that_is_sold_in_types_unknown_here_is_no_false_no(
    provider: GcpProvider,
) -> None:
    wish = {"vendor": "nvidia", "name": "H100-80GB", "count": 1}
    with pytest.raises(ConfigError, match="name one by instance_type"):
        provider.places(as_platform({"accelerator": wish}))


def test_a_type_that_is_not_in_the_table_is_looked_for(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    platform = {"instance_type": "a3-highgpu-1g", "locations": ("us-west1", "us-central1")}
    for _ in range(3):
        (place,) = provider.places(as_platform(platform))
    assert place.name == "us-central1-a/a3-highgpu-1g/on-demand"
    assert place.price_usd_per_hour is None
    assert called(cloud, "machineTypes.aggregatedList") == 1
    clock.ahead += timedelta(minutes=11)
    provider.places(as_platform(platform))
    assert called(cloud, "machineTypes.aggregatedList") == 2


@pytest.mark.parametrize(
    ("instance_type", "location", "source"),
    [
        ("a3-highgpu-1g", "us-west1", "machineTypes"),
        ("g2-standard-4", "europe-west9", "table 2026"),
    ],
)
def test_a_type_in_no_location_says_where_it_is(
    provider: GcpProvider, instance_type: str, location: str, source: str
) -> None:
    with pytest.raises(NotOfferedError, match=f"{source}.*us-central1"):
        provider.places(as_platform({"instance_type": instance_type, "locations": (location,)}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"locations": ("moon",)}, "'moon' is neither a region"),
        ({"instance_type": None, "accelerator": None}, "name an instance_type"),
        ({"accelerator": {"vendor": "nvidia", "name": "A100", "count": 1}}, "has 1 x nvidia-l4"),
    ],
)
def test_an_impossible_platform_is_refused_without_asking(
    provider: GcpProvider, cloud: ComputeCloud, changed: Mapping[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        provider.places(as_platform({**PLATFORM, **changed}))
    assert cloud.calls == []


# images


def booted_from(provider: GcpProvider, clock: Clock, *, token: str = "t-1", **image: object) -> str:
    platform = {**PLATFORM, "image": image or None}
    return provider.launch(ask(provider, clock, token=token, platform=platform)).facts["image_name"]


def test_the_first_family_that_can_still_be_had_is_taken(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.images.withdraw(FAMILY)
    assert booted_from(provider, clock) == f"{NEXT}-v20260626"


def test_no_image_without_torch_is_rented_for_want_of_one_with_it(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    for family in (FAMILY, NEXT):
        cloud.images.withdraw(family)
    assert booted_from(provider, clock) == f"{DEPRECATED}-v20260626"
    cloud.images.withdraw(DEPRECATED)
    clock.ahead += timedelta(hours=1)
    with pytest.raises(ConfigError, match=f"{DEPRECATED} \\(not found\\); name one"):
        booted_from(provider, clock, token="t-2")


def test_a_deprecated_image_is_taken_only_if_nothing_newer_is_listed(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.images.deprecate(FAMILY)
    assert booted_from(provider, clock, family=(FAMILY, NEXT)) == f"{NEXT}-v20260626"
    assert booted_from(provider, clock, token="t-2", family=(FAMILY,)) == f"{FAMILY}-v20260626"


def test_no_image_names_all_that_were_tried(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.images.deprecate(FAMILY, "OBSOLETE")
    with pytest.raises(ConfigError, match=f"{FAMILY}.*name mine-1") as caught:
        booted_from(provider, clock, family=(FAMILY, "other"), name="mine-1")
    assert caught.value.extent is Extent.PROJECT
    assert called(cloud, "instances.insert") == 0


def test_an_image_by_name_from_a_project_with_a_user_of_its_own(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.images.add(Image("mine", "seatrial-3", "seatrial", 30))
    image = {"name": "seatrial-3", "project": "mine", "user": "tester"}
    machine = provider.launch(ask(provider, clock, platform={**PLATFORM, "image": image}))
    ready = settled(provider, machine.id, MachineState.READY)
    assert machine.facts["image_name"] == "seatrial-3"
    assert getattr(ready.endpoint, "user", "") == "tester"
    assert "install-nvidia-driver" not in cloud.fleet.by_id("seatrial-t-1").order.metadata


def test_an_image_without_a_driver_is_told_to_install_one(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    old = "common-cu121"
    cloud.images.add(Image("deeplearning-platform-release", f"{old}-v20231105-debian-11", old))
    booted_from(provider, clock, family=old)
    assert cloud.fleet.by_id("seatrial-t-1").order.metadata["install-nvidia-driver"] == "True"


def test_a_disk_smaller_than_its_image_is_refused_before_anything_is_made(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    with pytest.raises(ConfigError, match="disk_gb: 20 is less than the 50 GB"):
        provider.launch(ask(provider, clock, platform={**PLATFORM, "disk_gb": 20}))
    assert called(cloud, "firewalls.insert") == 0


def test_an_image_key_of_another_cloud_is_refused(provider: GcpProvider, clock: Clock) -> None:
    with pytest.raises(ConfigError, match=r"image\.ami: gcp has no such key; did you mean"):
        booted_from(provider, clock, ami="ami-1")
