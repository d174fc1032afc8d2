"""Names, accelerator types, the platform's keys, and the shipped prices."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.billing_v1 import Category, PricingExpression, PricingInfo, Sku
from google.cloud.cloudquotas_v1 import DimensionsInfo, QuotaDetails, QuotaInfo
from google.cloud.tpu_v2 import QueuedResource
from google.type.money_pb2 import Money

from orchestrator.domain.launch_plan import cautions
from orchestrator.domain.machine import ConfigError
from orchestrator.domain.prices import Price, partition_plausible
from orchestrator.domain.quota import Demand, Quota, QuotaLevel, QuotaStatus, headroom
from runners import registry
from runners.google.names import labels
from runners.tpu import TRAITS, names
from runners.tpu.places import find, known, prices_of, table
from runners.tpu.platform_config import accelerator, check_platform, parse_platform
from runners.tpu.quotas import _chips, _limit_in
from runners.tpu.states import ListedTpu
from tests.platforms import as_platform

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
ULID = "01k9abcdefghjkmnpqrstvwxyz"
RFC1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def test_traits_decide_what_a_matrix_may_say() -> None:
    assert (TRAITS.name, TRAITS.rented, TRAITS.notice) == ("tpu", True, "gcp")
    assert TRAITS.required == {"accelerator_type"}


def test_traits_are_known_without_googles_libraries() -> None:
    code = "import sys, runners.tpu; print([m for m in sys.modules if m.startswith('google')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "[]"


# names


@pytest.mark.parametrize("project", ["seatrial", "a", "a-project-with-a-very-long-name-of-forty-"])
@pytest.mark.parametrize("token", [ULID, "t-1", "T 1", "x" * 200, "ends-with-", "-"])
def test_an_id_follows_from_the_token_and_is_one(project: str, token: str) -> None:
    made = names.resource_id(project, token)
    assert RFC1035.fullmatch(made)
    assert made == names.resource_id(project, token)
    assert made.startswith("seatrial-")


def test_two_tokens_have_two_ids() -> None:
    tokens = ["t-1", "t-2", "T-1", "t_1", "x" * 200, "x" * 201, ULID, ULID.upper()]
    assert len({names.resource_id("p", token) for token in tokens}) == len(tokens)


def test_the_request_id_belongs_to_the_token_and_the_zone() -> None:
    first = names.request_id("p", "t-1", "us-west4-a")
    assert first == names.request_id("p", "t-1", "us-west4-a")
    assert first != names.request_id("p", "t-1", "us-west4-b")
    assert first != names.request_id("p", "t-2", "us-west4-a")


@pytest.mark.parametrize("value", ["", "ok-1_x", "A", "a.b", "a@b/c", "x" * 64, "ü"])
def test_labels_carry_any_tag(value: str) -> None:
    (made,) = labels({"seatrial-cell": value}).values()
    assert re.fullmatch(r"[-_a-z0-9]{0,63}", made)
    assert (made == value) is bool(re.fullmatch(r"[-_a-z0-9]{0,63}", value))


@pytest.mark.parametrize(
    "machine_id", ["", "x", "a/b", "a/instances/b", "a/nodes/", "/nodes/b", "a/nodes/b/c"]
)
def test_ids_of_strangers_are_none_of_ours(machine_id: str) -> None:
    assert names.parse(machine_id) is None


def test_a_machine_id_goes_there_and_back() -> None:
    handle = names.parse("us-west4-a/queuedResources/x")
    assert handle is not None
    assert handle.path("p") == "projects/p/locations/us-west4-a/queuedResources/x"
    assert names.handle_of(handle.path("p")) == handle
    assert handle.beside(names.NODES).machine_id == "us-west4-a/nodes/x"


# accelerators


@pytest.mark.parametrize(
    ("name", "generation", "chips", "runtime"),
    [
        ("v5litepod-1", "v5e", 1, "v2-alpha-tpuv5-lite"),
        ("v5litepod-4", "v5e", 4, "v2-alpha-tpuv5-lite"),
        ("v5litepod-8", "v5e", 8, "v2-alpha-tpuv5-lite"),
        ("v5p-8", "v5p", 4, "v2-alpha-tpuv5"),
        ("v6e-1", "v6e", 1, "v2-alpha-tpuv6e"),
        ("v4-8", "v4", 4, "tpu-ubuntu2204-base"),
        ("v3-8", "v3", 4, "tpu-ubuntu2204-base"),
        ("v2-8", "v2", 4, "tpu-ubuntu2204-base"),
    ],
)
def test_chips_and_runtime_of_each_generation(
    name: str, generation: str, chips: int, runtime: str
) -> None:
    made = accelerator(name)
    assert (made.generation, made.chips, made.runtime_version) == (generation, chips, runtime)
    assert accelerator(name, "tpu-vm-base").runtime_version == "tpu-vm-base"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "'' is no type of one host; valid: v2-8"),
        ("v5e-1", "'v5e-1' is no type of one host; did you mean 'v5litepod-1'?"),
        ("A10G", "is no type"),
        ("v5litepod-0", "is no type"),
        ("v5litepod-2", "did you mean 'v5litepod-"),
        ("v5litpod-4", "did you mean 'v5litepod-4'"),
        ("v4-4", "did you mean 'v4-8'"),
        ("v5litepod-16", "several hosts"),
        ("v9-1", "is no type"),
    ],
)
def test_an_impossible_accelerator_is_refused(name: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        accelerator(name)


# the platform's keys


def platform(**keys: object) -> Mapping[str, object]:
    return {"accelerator_type": "v5litepod-1", **keys}


def test_what_a_platform_means_by_default() -> None:
    asked = parse_platform(as_platform(platform()))
    assert asked.markets == ("on-demand",)
    assert (asked.public, asked.queued, asked.wait_s, asked.user) == (True, True, 300, "ubuntu")
    assert (asked.locations, asked.cheapest) == ((), False)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"options": {"apy": "node"}}, "options.apy.*did you mean 'api'"),
        ({"options": {"api": "nodes"}}, "options.api"),
        ({"options": {"wait_minutes": "0"}}, "options.wait_minutes"),
        ({"options": {"wait_minutes": "11"}}, "options.wait_minutes"),
        ({"options": {"wait_minutes": "x"}}, "options.wait_minutes"),
        ({"options": {"user": "a b"}}, "options.user"),
        ({"options": {"labels": "Owner=ML"}}, "options.labels.*no label of yours"),
        ({"options": {"flex_start": "true"}}, "no run duration"),
    ],
)
def test_an_impossible_platform_is_refused(keys: Mapping[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_platform(as_platform(platform(**keys)))


def test_every_impossible_value_is_found_in_one_look() -> None:
    asked = platform(
        accelerator_type="v5litepod-3",
        runtime_version="v2-alpha-tpuv5-lit",
        locations=("us-west4-a", "us-centrl1-a", "us-east1-a"),
        options={"netwrok": "mine"},
    )
    assert [
        (one.path, one.message.split("; ")[-1]) for one in check_platform(as_platform(asked))
    ] == [
        (("accelerator_type",), "did you mean 'v5litepod-4'?"),
        (("runtime_version",), "did you mean 'v2-alpha-tpuv5-lite'?"),
        (("locations", 1), "did you mean 'us-central1'?"),
        (("options", "netwrok"), "did you mean 'network'?"),
    ]


def test_a_zone_that_its_region_has_not_is_refused() -> None:
    (problem,) = check_platform(as_platform(platform(locations=("us-east1-a",))))
    assert str(problem) == (
        "locations.0: us-east1 has no zone 'us-east1-a'; it has us-east1-b, us-east1-c, us-east1-d"
    )


@pytest.mark.parametrize("library", [tpu_v2, tpu_v2alpha1])
def test_the_client_still_has_no_run_duration(library: object) -> None:
    """Once this fails, flex-start can be built: a kill switch on the cloud's side."""
    for message in (library.QueuedResource, library.Node, library.SchedulingConfig):  # type: ignore[attr-defined]
        fields = set(message.meta.fields)
        assert not {f for f in fields if "run_duration" in f or "provisioning_model" in f}


def test_a_plan_with_tpus_says_that_nothing_ends_them_and_what_would() -> None:
    told = cautions(
        ["tpu", "local", "tpu"], {name: registry.traits(name) for name in ("tpu", "local")}
    )
    assert [one.partition(": ")[0] for one in told] == ["tpu"]
    assert "does not end by itself" in told[0]
    assert "`seatrial bootstrap gcp`" in told[0]


# prices


def test_the_shipped_table_is_dated_and_believable() -> None:
    shipped = table()
    believed, uncertain = partition_plausible(shipped.prices)
    assert (len(believed), uncertain) == (len(shipped.prices), ())
    assert {(price.source, price.as_of.date().isoformat()) for price in shipped.prices} == {
        ("undated catalogue, read", "2026-11-21"),
        ("as paid until", "2026-10-31"),
    }
    west = find(shipped.prices, "v5e-chip", "us-west4", "spot")
    assert west is not None
    assert (west.usd_per_hour, west.source) == (Decimal("0.56"), "as paid until")
    assert find(shipped.prices, "v5e-chip", "mars1", "spot") is None


def test_zones_are_listed_once_and_lie_in_their_regions() -> None:
    for regions in table().zones.values():
        zones = [zone for zones in regions.values() for zone in zones]
        assert len(set(zones)) == len(zones)
        assert all(z.startswith(f"{r}-") for r, listed in regions.items() for z in listed)


class Book:
    def __init__(self, *prices: Price) -> None:
        self.prices = prices

    def write(self, prices: object) -> None:
        raise AssertionError("nothing is written")

    def of(self, provider: str) -> tuple[Price, ...]:
        assert provider == "tpu"
        return self.prices


def test_the_newest_price_counts() -> None:
    def price(usd: str, as_of: datetime) -> Price:
        place = ("tpu", "v5e-chip", "us-west4", "spot")
        return Price(*place, Decimal(usd), as_of, "pricing API")

    def west(*prices: Price) -> Decimal:
        found = find(known(Book(*prices)), "v5e-chip", "us-west4", "spot")
        assert found is not None
        return found.usd_per_hour

    assert west() == Decimal("0.56")
    assert west(price("0.5", NOW)) == Decimal("0.5")
    assert west(price("0.5", datetime(2026, 1, 1, tzinfo=UTC))) == Decimal("0.56")


def sku(
    description: str, *, unit: str = "h", currency: str = "USD", nanos: int = 480_000_000
) -> Sku:
    tier = PricingExpression.TierRate(
        unit_price=Money(currency_code=currency, units=0, nanos=nanos)
    )
    expression = PricingExpression(usage_unit=unit, tiered_rates=[tier])
    return Sku(
        description=description,
        category=Category(resource_family="Compute", usage_type="OnDemand"),
        service_regions=["us-west4"],
        pricing_info=[PricingInfo(pricing_expression=expression)],
    )


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ("TpuV5e running in Las Vegas", ("v5e-chip", "on-demand")),
        ("Spot Preemptible TpuV5e running in Las Vegas", ("v5e-chip", "spot")),
        ("Preemptible TpuV5e", ("v5e-chip", "spot")),
        ("TPU v5p", ("v5p-chip", "on-demand")),
        ("Commitment v1: TpuV5e 1 year", None),
        ("DWS Calendar Mode TpuV5e", None),
        ("TpuV5e DWS Defined Duration", None),
        ("Nvidia L4 GPU", None),
        ("TpuV5eX", None),
    ],
)
def test_which_skus_are_chips(description: str, found: tuple[str, str] | None) -> None:
    prices = list(prices_of(sku(description), NOW))
    assert [(p.item, p.market) for p in prices] == ([found] if found else [])
    assert all(p.usd_per_hour == Decimal("0.48") for p in prices)


def test_a_sku_by_another_measure_is_no_price() -> None:
    assert not list(prices_of(sku("TpuV5e", unit="GiBy.h"), NOW))
    assert not list(prices_of(sku("TpuV5e", currency="EUR"), NOW))
    assert not list(prices_of(Sku(description="TpuV5e", service_regions=["us-west4"]), NOW))


# quotas


def quota(*dimensions: tuple[dict[str, str], list[str], int]) -> QuotaInfo:
    return QuotaInfo(
        quota_id="TPUV5sLitepodServingPerProjectPerZoneForTPUAPI",
        dimensions_infos=[
            DimensionsInfo(
                dimensions=found, applicable_locations=where, details=QuotaDetails(value=value)
            )
            for found, where, value in dimensions
        ],
    )


def test_the_zones_own_limit_goes_before_the_general_one() -> None:
    info = quota(({}, [], 4), ({"zone": "us-west4-a"}, ["us-west4-a"], 16))
    assert _limit_in(info, "us-west4-a") == (16, "")
    assert _limit_in(info, "us-west1-c") == (4, "")


def test_no_limit_is_more_than_anybody_needs() -> None:
    wanted = Quota("tpu", "us-west4-a", "code", "chips", "chip")
    for info in (quota(({}, [], -1)), quota(({"zone": "us-west4-a"}, [], -1))):
        limit, why = _limit_in(info, "us-west4-a")
        (room,) = headroom([Demand(wanted, 8)], {wanted: QuotaLevel(limit, 64, why)}, at_once=1)
        assert room.status is QuotaStatus.OK


@pytest.mark.parametrize("queued", [None, QueuedResource(name="q")])
def test_what_says_nothing_of_its_accelerator_counts_for_no_chip(
    queued: QueuedResource | None,
) -> None:
    seen = ListedTpu(names.Handle("us-west4-a", "queuedResources", "q"), queued, None)
    assert _chips(seen, "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI") == 0


def test_a_zone_that_is_not_mentioned_is_unknown() -> None:
    limit, why = _limit_in(quota(({"zone": "us-west4-a"}, [], 16)), "us-west1-c")
    assert limit is None
    assert "us-west1-c" in why


def test_an_id_tells_its_token_and_project() -> None:
    lease = f"{ULID}-1-12"  # as a lease is named: cell, attempt, number
    assert names.token_in(names.resource_id("a", lease), "a") == lease
    assert names.token_in(names.resource_id("a", ULID), "a") == ULID
    assert names.token_in(names.resource_id("a-b", ULID), "a") is None
    assert names.token_in("somebody-elses", "a") is None
