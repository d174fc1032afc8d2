"""An account of the emulated AWS, and what the tests of the provider aws ask of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from orchestrator.assets import asset_dir
from orchestrator.domain.machine import (
    LaunchRequest,
    Login,
    Machine,
    MachineState,
)
from orchestrator.domain.prices import Price
from runners.aws import AwsProvider
from runners.fake import MemoryHostStore
from runners.provider_context import ProviderContext
from tests.lab.aws_cloud import AwsCloud
from tests.lab.machines import NoMachines
from tests.platforms import as_platform

NOW = datetime.now(UTC).replace(microsecond=0)
PLATFORM: Mapping[str, object] = {
    "provider": "aws",
    "instance_type": "g5.xlarge",
    "accelerator": {"vendor": "nvidia", "name": "A10G", "count": 1},
    "locations": ("us-east-1",),
    "market": ("spot", "on-demand"),
}
MI300X: Mapping[str, object] = {
    "provider": "aws",
    "accelerator": {"vendor": "amd", "name": "MI300X", "count": 1},
}
LOGIN = Login("ssh-ed25519 AAAAlogin", "private", "ssh-ed25519 AAAAhost", "-----HOST-----")
TAGS = {
    "seatrial-project": "lab",
    "seatrial-controller": "c-1",
    "seatrial-run": "r-1",
    "seatrial-cell": "aws-a10g",
    "seatrial-attempt": "a-1",
    "seatrial-expires-at": "1795000000",
}
CIDR = "203.0.113.7/32"


class Shelf:
    """A price book."""

    def __init__(self, *prices: Price) -> None:
        self.prices = prices

    def write(self, prices: Any) -> None:
        self.prices = tuple(prices)

    def of(self, provider: str) -> tuple[Price, ...]:
        assert provider == "aws"
        return self.prices


REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1")


@contextmanager
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    """An account of the emulated AWS, and an environment that leads boto3 there.

    It has a few regions enabled: an inventory asks each of them for everything.
    """
    enabled = [region for region in RegionsAndZonesBackend.regions if region.name in REGIONS]
    monkeypatch.setattr(RegionsAndZonesBackend, "regions", enabled)
    with AwsCloud(machines=NoMachines()) as cloud:
        for name, value in {
            "AWS_ENDPOINT_URL": cloud.endpoint_url,
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }.items():
            monkeypatch.setenv(name, value)
        yield cloud


def context(now: datetime = NOW, **settings: str) -> ProviderContext:
    return ProviderContext(
        book=MemoryHostStore(),
        settings={"project": "lab", "ingress_cidr": CIDR, **settings},
        prices=Shelf(),
        now=lambda: now,
        templates=asset_dir("templates"),
    )


def ask(
    aws: AwsProvider,
    *,
    token: str = "a-1-1",
    place: int = 0,
    platform: Mapping[str, object] = PLATFORM,
) -> LaunchRequest:
    return LaunchRequest(
        token=token,
        place=aws.places(as_platform(platform))[place],
        platform=as_platform(platform),
        tags={**TAGS, "seatrial-token": token},
        login=LOGIN,
        expires_at=NOW + timedelta(hours=2),
    )


def calls(cloud: AwsCloud, name: str) -> list[str]:
    """How each call of that name was answered."""
    return [call.answer for call in cloud.calls if call.name == name]


def ec2(cloud: AwsCloud, region: str = "us-east-1") -> Any:
    return boto3.client("ec2", region_name=region)


def running(aws: AwsProvider, cloud: AwsCloud, **how: Any) -> Machine:
    return aws.inspect(aws.launch(ask(aws, **how)).id)


def gone(aws: AwsProvider, machine_id: str) -> Machine:
    """The machine, once the cloud says that it is gone."""
    for _ in range(2400):
        machine = aws.inspect(machine_id)
        if machine.state is MachineState.TERMINATED:
            return machine
        time.sleep(0.05)
    raise AssertionError(f"{machine} is never gone")


def groups(cloud: AwsCloud) -> list[dict[str, Any]]:
    found = ec2(cloud).describe_security_groups()["SecurityGroups"]
    return [group for group in found if group["GroupName"] != "default"]
