"""What of a platform AWS understands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Accelerator
from runners.aws.platform_config import (
    Location,
    check_platform,
    is_called,
    may_match,
    parse_platform,
)
from tests.platforms import as_platform


def test_what_is_not_said_has_its_default() -> None:
    config = parse_platform(as_platform({"instance_type": "g5.xlarge"}))
    assert config.instance_types == ("g5.xlarge",)
    assert config.markets == ("on-demand",)
    assert config.regions == ("us-east-1", "us-east-2", "us-west-2")
    assert (config.public, config.disk_gb, config.device) == (True, 150, None)
    assert (config.image, config.subnets, config.cheapest) == ({}, (), False)


def test_everything_can_be_said() -> None:
    config = parse_platform(
        as_platform(
            {
                "instance_type": ("g6.xlarge", "g5.xlarge"),
                "accelerator": {"vendor": "nvidia", "name": "L4", "count": 1},
                "locations": ("us-west-2b", "ap-southeast-2", "us-west-2"),
                "market": ("spot", "on-demand"),
                "image": {"ami": "ami-0abcdef1234567890", "user": "tester"},
                "connect": "private",
                "disk_gb": 200,
                "options": {"subnet": "subnet-1, subnet-2"},
            }
        )
    )
    assert config.locations == (
        Location("us-west-2", "us-west-2b"),
        Location("ap-southeast-2"),
        Location("us-west-2"),
    )
    assert config.regions == ("us-west-2", "ap-southeast-2")
    assert config.image == {"ami": ("ami-0abcdef1234567890",), "user": ("tester",)}
    assert (config.public, config.subnets) == (False, ("subnet-1", "subnet-2"))


def test_cheapest_is_over_every_region_with_a_price() -> None:
    config = parse_platform(as_platform({"instance_type": "g5.xlarge", "locations": "cheapest"}))
    assert config.cheapest
    assert len(config.regions) == 15


L4 = {"vendor": "nvidia", "name": "L4"}


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ({}, "instance_type: name one, or an accelerator"),
        (
            {"instance_type": "g5.xlrage"},
            "no EC2 instance type 'g5.xlrage'; did you mean 'g5.xlarge'",
        ),
        (
            {"instance_type": "nosuch"},
            "no EC2 instance type 'nosuch'; valid: g5.xlarge, g6.xlarge",
        ),
        ({"instance_type": "g5.xlarge", "locations": ("us-esat-1",)}, "did you mean 'us-east-1'"),
        ({"instance_type": "g5.xlarge", "image": {"ami": "ami-1"}}, "'ami-1' is no AMI id"),
        ({"instance_type": ()}, "instance_type: the list is empty"),
        ({"instance_type": ("g5.xlarge", " ")}, "instance_type: .* holds an empty text"),
        ({"accelerator": {**L4, "count": 0}}, r"accelerator\.count: 0"),
        (
            {"instance_type": "g5.xlarge", "locations": ("virginia",)},
            r"locations\.0: 'virginia' is neither",
        ),
        ({"instance_type": "g5.xlarge", "locations": ("us-west1-a",)}, "neither a region"),
        ({"instance_type": "g5.xlarge", "image": {"family": "f"}}, r"image\.family: not for aws"),
        ({"instance_type": "g5.xlarge", "image": {"ami": "a", "ssm": "b"}}, "image: one of"),
        ({"instance_type": "g5.xlarge", "image": {"ami": ()}}, r"image\.ami: the list is empty"),
        ({"instance_type": "g5.xlarge", "disk_gb": 0}, "disk_gb: 0"),
        ({"instance_type": "g5.xlarge", "disk_gb": 16385}, "disk_gb: 16385"),
        (
            {"instance_type": "g5.xlarge", "options": {"subnets": "s"}},
            r"options\.subnets: aws has no .* did you mean 'subnet'",
        ),
        (
            {
                "instance_type": "g5.xlarge",
                "options": {"instance_profile": "arn:aws:iam::1:r/x"},
            },
            r"options\.instance_profile: 'arn:aws:iam::1:r/x' is neither the name",
        ),
    ],
)
def test_an_impossible_platform_is_refused_by_its_key(
    platform: Mapping[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_platform(as_platform(platform))


@pytest.mark.parametrize(
    ("asked", "known", "same"),
    [
        ("A10G", "A10G", True), ("NVIDIA A10G", "A10G", True), ("nvidia a10g", "A10G", True),
        ("L4", "L4", True), ("L4", "L40S", False), ("L40S", "L4", False), ("H100", "H200", False),
        ("NVIDIA H100 80GB HBM3", "H100", True), ("AMD Instinct MI300X", "MI300X", True),
        ("MI300X", "Radeon Pro V520", False), ("MI300X", "MI300A", False), ("Tesla T4", "T4", True),
        ("T4", "T4g", False), ("NVIDIA H200", "NVIDIA", False), ("NVIDIA H200", "", False),
    ],
)  # fmt: skip
def test_a_device_is_known_by_its_whole_name(asked: str, known: str, same: bool) -> None:
    assert is_called(Accelerator(vendor="nvidia", name=asked), known) is same


def test_a_vendors_name_alone_may_be_any_of_its_devices() -> None:
    asked = Accelerator(vendor="nvidia", name="H200", count=8)
    assert may_match(asked, "NVIDIA")
    assert not may_match(asked, "")


def test_every_impossible_value_is_found_in_one_look() -> None:
    platform = as_platform(
        {"instance_type": ("g5.xlarge", "g5.xlrage"), "locations": ("us-west-2", "us-weast-2")}
    )
    assert [problem.path for problem in check_platform(platform)] == [
        ("instance_type", 1),
        ("locations", 1),
    ]


def test_a_usual_platform_is_checked_without_the_service_model() -> None:
    code = """
import sys
from orchestrator.domain.matrix import Platform
from runners.aws import TRAITS
usual = Platform(id="a", provider="aws", instance_type="g5.xlarge", locations=("us-east-1b",))
assert TRAITS.check(usual) == ()
assert "botocore" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
