"""Names, labels, ids and requests of the provider ``gcp``, and what is known without asking."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from google.cloud import billing_v1
from google.type import money_pb2
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.machine import ConfigError, LaunchRequest, Login, Place
from orchestrator.domain.prices import partition_plausible
from runners.gcp.images import ResolvedImage
from runners.gcp.instance import (
    ResourceId,
    build_instance,
    instance_name,
    network_tag,
    parse_id,
    request_id,
)
from runners.gcp.places import MARKETS, KnownPrices, prices_from, table
from runners.gcp.platform_config import KNOWN, check_platform, parse_platform, types_with
from runners.google.firewall import rule_name
from runners.google.names import REGIONS, label
from tests.platforms import as_platform

RFC1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
PRICES = Path(__file__).parents[3] / "runners" / "gcp" / "prices.toml"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@given(st.text(max_size=200))
def test_every_token_has_a_name_that_is_allowed(token: str) -> None:
    assert RFC1035.fullmatch(instance_name(token))
    assert RFC1035.fullmatch(network_tag(token))
    assert RFC1035.fullmatch(f"{rule_name(network_tag(token), '10.0.0.0/8')}-deny")
    assert re.fullmatch(r"[-_a-z0-9]{0,63}", label(token))


@given(st.text(max_size=100), st.text(max_size=100))
def test_two_tokens_have_two_names(one: str, other: str) -> None:
    assert (instance_name(one) == instance_name(other)) == (one == other)


def test_names_are_plain_where_they_can_be() -> None:
    assert instance_name("01hx-ab") == "seatrial-01hx-ab"
    assert instance_name("Ab/c").startswith("seatrial-ab-c-")
    assert label("r-1") == "r-1"
    assert label("gcp-l4.image") != "gcp-l4.image"


def test_a_request_id_is_of_one_token_in_one_zone() -> None:
    ids = {request_id(token, zone) for token in ("a", "b") for zone in ("x-a", "x-b")}
    assert len(ids) == 4
    assert all(UUID(each).version == 5 for each in ids)
    # Fixed for ever: a controller of the next version repeats the same call.
    assert request_id("t-1", "us-central1-a") == "13c28ccb-e84d-5646-9319-450cbc613f4e"


@pytest.mark.parametrize(
    "spelled",
    [
        "us-central1-a/instances/n",
        "us-central1-a/disks/n",
        "global/firewalls/n",
        "us-central1/addresses/n",
    ],
)
def test_an_id_is_read_as_it_is_written(spelled: str) -> None:
    which = parse_id(spelled)
    assert isinstance(which, ResourceId)
    assert str(which) == spelled


@pytest.mark.parametrize("stranger", ["", "x", "a/b", "a/nodes/n", "a/instances/N", "a/b/c/d"])
def test_what_is_no_id_of_ours(stranger: str) -> None:
    assert parse_id(stranger) is None


# the instance


def build(*, minutes: float = 30, market: str = "spot", disk_gb: int = 100) -> dict[str, object]:
    place = Place("p", zone="us-central1-a", market=market, instance_type="g2-standard-4")
    login = Login("ssh-ed25519 AAAA comment", "private", "ssh-ed25519 BBBB", "host")
    platform = {"instance_type": "g2-standard-4", "disk_gb": disk_gb}
    request = LaunchRequest(
        "t-1",
        place,
        as_platform(platform),
        {},
        login=login,
        expires_at=NOW + timedelta(minutes=minutes),
    )
    instance = build_instance(
        request,
        parse_platform(as_platform(platform)),
        ResolvedImage("link", "image-1", "1", "", 50, "", needs_driver=False),
        project="seatrial",
        now=NOW,
        templates=Path(__file__).parents[3] / "templates",
    )
    scheduling = instance.scheduling
    return {
        "seconds": scheduling.max_run_duration.seconds,
        "model": scheduling.provisioning_model,
        "action": scheduling.instance_termination_action,
        "labels": dict(instance.labels),
        "key": {i.key: i.value for i in instance.metadata.items}["ssh-keys"],
    }


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(30, 1800), (30.01, 1860), (29.99, 1800), (0.1, 60)]
)
def test_the_run_duration_is_whole_minutes_rounded_up(minutes: float, seconds: int) -> None:
    assert build(minutes=minutes)["seconds"] == seconds


def test_a_machine_of_either_market_is_deleted_when_it_ends() -> None:
    spot, plain = build(market="spot"), build(market="on-demand")
    assert (spot["model"], plain["model"]) == ("SPOT", "STANDARD")
    assert spot["action"] == plain["action"] == "DELETE"
    assert spot["labels"] == {"seatrial-project": "seatrial", "seatrial-token": "t-1"}
    assert spot["key"] == "ubuntu:ssh-ed25519 AAAA ubuntu"


def test_what_should_have_ended_is_not_launched() -> None:
    with pytest.raises(ConfigError, match="which is past"):
        build(minutes=0)


# what is known without asking


def test_the_shipped_table_is_believed_and_complete() -> None:
    prices = KnownPrices(None).all()
    believed, uncertain = partition_plausible(prices)
    assert uncertain == ()
    assert len(believed) == len(prices)
    regions = set(table().zones)
    assert {p.place for p in prices} <= regions
    for item in ("disk-gb", "address"):
        assert {p.place for p in prices if p.item == item} == regions
    four = {(p.place, p.market): p.usd_per_hour for p in prices if p.item == "g2-standard-4"}
    assert four["us-central1", "on-demand"] == Decimal("0.70683")
    assert four["us-central1", "spot"] == Decimal("0.28184")
    assert four["me-central2", "on-demand"] == Decimal("1.13093")
    for name in KNOWN:
        priced = {(p.place, p.market) for p in prices if p.item == name}
        assert priced == {(region, market) for region in regions for market in MARKETS}
    assert sum(len(zones) for zones in table().zones.values()) == 44


def test_machine_types_by_accelerator() -> None:
    assert types_with("L4", 1)[:2] == ("g2-standard-4", "g2-standard-8")
    assert types_with("NVIDIA L4", 8) == ("g2-standard-96",)
    assert types_with("A100", 1) == ()
    assert KNOWN["g2-standard-4"].quota == "NVIDIA_L4_GPUS"


def test_the_traits_are_known_without_the_client_library() -> None:
    code = (
        "import sys\n"
        "from runners import registry\n"
        "assert registry.traits('gcp').rented\n"
        "print([name for name in sys.modules if name.startswith('google.')])\n"
    )
    root = Path(__file__).parents[3]
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


# the catalogue


def sku(
    description: str, usd: str, *, usage: str = "OnDemand", family: str = "Compute"
) -> billing_v1.Sku:
    amount = Decimal(usd)
    price = money_pb2.Money(units=int(amount), nanos=int(amount % 1 * 10**9))
    rate = billing_v1.PricingExpression.TierRate(unit_price=price)
    expression = billing_v1.PricingExpression(tiered_rates=[rate])
    return billing_v1.Sku(
        description=description,
        category=billing_v1.Category(resource_family=family, usage_type=usage),
        service_regions=["us-east4", "nowhere1"],
        pricing_info=[billing_v1.PricingInfo(pricing_expression=expression)],
    )


PARTS = (
    sku("G2 Instance Core running in Virginia", "0.03"),
    sku("G2 Instance Ram running in Virginia", "0.003"),
    sku("Nvidia L4 GPU running in Virginia", "0.56"),
)


def test_a_machine_costs_the_sum_of_its_parts() -> None:
    disk = sku("Balanced PD Capacity in Virginia", "0.11", family="Storage")
    found = {(p.item, p.place, p.market): p for p in prices_from([*PARTS, disk], NOW)}
    assert found["g2-standard-4", "us-east4", "on-demand"].usd_per_hour == Decimal("0.728")
    assert found["g2-standard-24", "us-east4", "on-demand"].usd_per_hour == Decimal("2.128")
    assert found["disk-gb", "us-east4", "on-demand"].usd_per_hour == Decimal("0.11") / 730
    assert {place for _, place, _ in found} == {"us-east4"}
    assert {p.as_of for p in found.values()} == {NOW}


@pytest.mark.parametrize("missing", range(3))
def test_half_a_price_is_none(missing: int) -> None:
    parts = [each for at, each in enumerate(PARTS) if at != missing]
    assert prices_from(parts, NOW) == ()


@pytest.mark.parametrize(
    "other",
    [
        sku("Nvidia L4 GPU attached to DWS Defined Duration VM running in Virginia", "0.1"),
        sku("Commitment v1: Nvidia L4 GPU running in Virginia for 1 Year", "0.1"),
        sku("Nvidia L4 GPU running in Virginia", "0.1", usage="Commit1Yr"),
        sku("Reserved Nvidia L4 GPU in Virginia", "0.1"),
        sku("G2 Custom Instance Core running in Virginia", "0.01"),
        sku("G2 Sole Tenancy Instance Core running in Virginia", "0.01"),
        sku("Nvidia L4 GPU running in Virginia", "0.1", family="Storage"),
    ],
)
def test_prices_of_other_terms_are_left_out(other: billing_v1.Sku) -> None:
    first, last = prices_from([*PARTS, other], NOW), prices_from([other, *PARTS], NOW)
    four = {p.usd_per_hour for p in (*first, *last) if p.item == "g2-standard-4"}
    assert four == {Decimal("0.728")}


def test_spot_is_told_by_the_words() -> None:
    spot = [
        sku(f"Spot Preemptible {each.description}", "0.01", usage="Preemptible") for each in PARTS
    ]
    found = {(p.item, p.market): p.usd_per_hour for p in prices_from([*PARTS, *spot], NOW)}
    assert found["g2-standard-4", "spot"] == Decimal("0.21")
    assert found["g2-standard-4", "on-demand"] == Decimal("0.728")


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ({"instance_type": "g2-standrad-4"}, ("instance_type",), "did you mean 'g2-standard-4'?"),
        (
            {"instance_type": "g2-standard-5"},
            ("instance_type",),
            "no machine type 'g2-standard-5'; did you mean 'g2-standard-4'?",
        ),
        ({"instance_type": "p5.48xlarge"}, ("instance_type",), "no machine type 'p5.48xlarge'"),
        ({"locations": ("us-west1", "us-centrl1")}, ("locations", 1), "did you mean 'us-central1'"),
        (
            {"locations": ("us-central1-d",)},
            ("locations", 0),
            "it has us-central1-a, us-central1-b",
        ),
        ({"disk_gb": 9}, ("disk_gb",), "no size from 10 to 65536"),
        ({"options": {"api": "node"}}, ("options", "api"), "gcp has no option 'api'"),
        ({"options": {"network": "My VPC"}}, ("options", "network"), "neither a name nor a path"),
        ({"options": {"kms_key": "k"}}, ("options", "kms_key"), "neither a name nor a path"),
        ({"options": {"labels": "A=b"}}, ("options", "labels"), "no label of yours"),
        ({"options": {"labels": "seatrial-run=b"}}, ("options", "labels"), "no label of yours"),
    ],
)
def test_a_value_that_compute_engine_cannot_have_is_refused(
    keys: Mapping[str, object], path: tuple[object, ...], words: str
) -> None:
    (problem,) = check_platform(as_platform({"instance_type": "g2-standard-4", **keys}))
    assert problem.path == path
    assert words in problem.message


def test_other_families_with_accelerators_are_left_to_the_api() -> None:
    assert check_platform(as_platform({"instance_type": "a2-highgpu-1g"})) == ()


def test_the_zones_of_the_price_table_are_zones() -> None:
    for region, letters in tomllib.loads(PRICES.read_text())["zones"].items():
        assert set(letters) <= set(REGIONS[region])
