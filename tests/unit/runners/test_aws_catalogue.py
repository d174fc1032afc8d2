"""What is chosen out of all that EC2 offers, and what is kept of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    NotOfferedError,
    ProviderUnavailableError,
)
from runners.aws.catalogue import InstanceCatalogue
from runners.aws.machines import split_id
from runners.aws.network import _rule, _sources
from runners.aws.platform_config import parse_platform
from runners.ttl_cache import KEPT, TtlCache
from tests.platforms import as_platform

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
TYPES: dict[str, tuple[int, str, str, int]] = {
    "g4ad.xlarge": (4, "AMD", "Radeon Pro V520", 1),
    "g4ad.16xlarge": (64, "AMD", "Radeon Pro V520", 4),
    "g6f.large": (2, "NVIDIA", "L4", 1),
    "g6.xlarge": (4, "NVIDIA", "L4", 1),
    "g6.12xlarge": (48, "NVIDIA", "L4", 4),
    "x9.large": (8, "NVIDIA", "T9", 1),
    "x9.small": (2, "NVIDIA", "T9", 1),
    "g7e.2xlarge": (2, "NVIDIA", "NVIDIA", 1),
    "m5.large": (2, "", "", 0),
}


class Offerings:
    """Stands for an account: two regions that offer the same, and one that is away."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def read(self, service: str, region: str, operation: str, /, **asked: Any) -> dict[str, Any]:
        assert (service, operation) == ("ec2", "describe_instance_types")
        self.described += asked["InstanceTypes"]
        return {"InstanceTypes": [as_told(name) for name in asked["InstanceTypes"]]}

    def pages(
        self, service: str, region: str, operation: str, key: str, /, **asked: Any
    ) -> Iterator[dict[str, Any]]:
        assert (operation, key) == ("describe_instance_type_offerings", "InstanceTypeOfferings")
        assert asked["LocationType"] == "region"
        if region == "eu-west-1":
            raise ProviderUnavailableError("eu-west-1 is away")
        yield from ({"InstanceType": name} for name in TYPES)


def as_told(name: str) -> dict[str, Any]:
    vcpus, vendor, gpu, count = TYPES[name]
    gpus = {"GpuInfo": {"Gpus": [{"Name": gpu, "Manufacturer": vendor, "Count": count}]}}
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        **(gpus if gpu else {}),
    }


def chosen(
    vendor: str, name: str, *, count: int = 1, types: tuple[str, ...] = (), at: str = "us-east-1"
) -> tuple[str, ...]:
    platform: dict[str, object] = {
        "accelerator": {"vendor": vendor, "name": name, "count": count},
        "locations": (at, "us-east-2"),
    }
    if types:
        platform["instance_type"] = types
    catalogue = InstanceCatalogue(Offerings(), lambda: NOW)  # type: ignore[arg-type]
    return catalogue.chosen(parse_platform(as_platform(platform)))


def test_the_smallest_with_the_device_comes_first() -> None:
    assert chosen("nvidia", "T9") == ("x9.small", "x9.large")


def test_a_slice_of_a_device_is_not_the_device() -> None:
    assert chosen("nvidia", "L4") == ("g6.xlarge",)


def test_so_many_devices_as_asked() -> None:
    assert chosen("nvidia", "L4", count=4) == ("g6.12xlarge",)


def test_what_is_not_sold_is_recorded_with_the_answer() -> None:
    with pytest.raises(NotOfferedError) as refused:
        chosen("amd", "MI300X")
    assert str(refused.value) == (
        "no instance type of EC2 has 1 amd MI300X: DescribeInstanceTypeOfferings and "
        "DescribeInstanceTypes at 2026-11-21 09:30 UTC answered with 9 types (us-east-1 9, "
        "us-east-2 9), 7 of them with GPUs; those by amd: g4ad (Radeon Pro V520)"
    )


def test_a_part_of_the_answer_is_no_proof_that_nothing_is_sold() -> None:
    with pytest.raises(ProviderUnavailableError, match="eu-west-1 is away"):
        chosen("amd", "MI300X", at="eu-west-1")
    assert chosen("nvidia", "T9", at="eu-west-1") == ("x9.small", "x9.large")


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("g4ad.xlarge", 1, "g4ad.xlarge has .*, not 1 amd MI300X"),
        ("g6e.xlarge", 1, "g6e.xlarge has .*, not 1 amd MI300X"),
        ("p5e.48xlarge", 1, "p5e.48xlarge has .*, not 1 amd MI300X"),
        ("g5.xlarge", 3, "g5.xlarge has 1 nvidia A10G, not 3 amd MI300X"),
        ("m5.large", 1, "m5.large has no GPU, not 1 amd MI300X"),
    ],
)
def test_a_named_type_with_another_device_is_refused(name: str, count: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen("amd", "MI300X", count=count, types=(name,))


def test_a_named_type_with_fewer_devices_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"g5\.xlarge has 1 nvidia A10G, not 3 nvidia A10G"):
        chosen("nvidia", "A10G", count=3, types=("g5.xlarge",))


def test_a_named_type_whose_device_has_no_name_is_taken_at_its_word() -> None:
    assert chosen("nvidia", "H200", types=("g7e.2xlarge",)) == ("g7e.2xlarge",)


def test_a_type_is_described_once_for_all_regions() -> None:
    account = Offerings()
    catalogue = InstanceCatalogue(account, lambda: NOW)  # type: ignore[arg-type]
    config = parse_platform(
        as_platform(
            {
                "accelerator": {"vendor": "nvidia", "name": "T9"},
                "locations": ("us-east-1", "us-east-2"),
            }
        )
    )
    catalogue.chosen(config)
    catalogue.chosen(config)
    assert sorted(account.described) == sorted(TYPES)


# what is kept


def test_an_answer_is_kept_for_its_time_and_outlives_an_outage() -> None:
    clock, asked = [NOW], []

    def answer() -> int:
        asked.append(clock[0])
        if len(asked) == 2:
            raise ProviderUnavailableError("away")
        return len(asked)

    kept: TtlCache[int] = TtlCache(lambda: clock[0], serve_stale=True)
    assert [kept.get("a", answer), kept.get("a", answer)] == [1, 1]
    clock[0] += KEPT
    assert kept.get("a", answer) == 1
    assert kept.get("a", answer) == 3
    kept.forget("a")
    assert kept.get("a", answer) == 4
    assert len(asked) == 4


def test_a_failure_without_an_older_answer_is_one() -> None:
    kept: TtlCache[int] = TtlCache(lambda: NOW + timedelta(0), serve_stale=True)

    def away() -> int:
        raise ProviderUnavailableError("away")

    with pytest.raises(ProviderUnavailableError):
        kept.get("a", away)


@pytest.mark.parametrize(
    ("cidr", "ranges"), [("203.0.113.7/32", "IpRanges"), ("2001:db8::/64", "Ipv6Ranges")]
)
def test_addresses_of_both_kinds_are_let_in(cidr: str, ranges: str) -> None:
    rule = _rule(cidr)
    assert len(rule[ranges]) == 1
    assert _sources(rule) == {(22, cidr)}


def test_a_rule_for_a_range_of_ports_is_none_of_ours() -> None:
    wide = {"FromPort": 0, "ToPort": 65535, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    assert _sources(wide) == {(-1, "10.0.0.0/8")}
    assert _sources({"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}) == {
        (-1, "sg-1")
    }


@pytest.mark.parametrize(
    ("machine_id", "parts"),
    [
        ("us-east-1/i-0abc", ("us-east-1", "i-0abc")),
        ("us-east-1/eipalloc-1", ("us-east-1", "eipalloc-1")),
        ("i-0abc", ("", "")),
        ("/i-0abc", ("", "")),
        ("us-east-1/", ("", "")),
        ("us-east-1/i/0", ("", "")),
        ("", ("", "")),
    ],
)
def test_an_id_that_is_not_of_this_providers_making_is_none(
    machine_id: str, parts: tuple[str, str]
) -> None:
    assert split_id(machine_id) == parts
