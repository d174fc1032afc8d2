"""One emulated account with the real boto3 clients on it, for the tests of the emulation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.lab.aws.rates import Rate
from tests.lab.aws_cloud import CREDENTIALS, AwsCloud
from tests.lab.machines import NoMachines

LINE = "oss-nvidia-driver-gpu-pytorch-2.9-ubuntu-24.04"
PARAMETER = f"/aws/service/deeplearning/ami/x86_64/{LINE}/latest/ami-id"
_SESSION = boto3.session.Session(**CREDENTIALS)
_ONCE = Config(
    retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=20
)


SPOT = {
    "MarketType": "spot",
    "SpotOptions": {
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    },
}


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Account:
    """The cloud, its clients and the shortest way to an instance."""

    def __init__(self, cloud: AwsCloud, machines: NoMachines) -> None:
        self.cloud = cloud
        self.machines = machines
        self._clients: list[Any] = []

    def client(self, service: str, region: str = "us-east-1", config: Config = _ONCE) -> Any:
        made = _SESSION.client(
            service, region_name=region, endpoint_url=self.cloud.endpoint_url, config=config
        )
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def subnet(self, zone: str) -> str:
        filters = [{"Name": "availability-zone", "Values": [zone]}]
        found = self.client("ec2", zone[:-1]).describe_subnets(Filters=filters)
        return str(found["Subnets"][0]["SubnetId"])

    def order(self, region: str = "us-east-1", **changes: Any) -> dict[str, Any]:
        """The parameters of a plain launch."""
        plain = {
            "ImageId": self.cloud.images.id_of(LINE, region),
            "InstanceType": "g5.xlarge",
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceInitiatedShutdownBehavior": "terminate",
        }
        return {key: value for key, value in {**plain, **changes}.items() if value is not None}

    def security_group(self) -> str:
        """A group of our own in the default network."""
        made = self.client("ec2").create_security_group(GroupName="ours", Description="ours")
        return str(made["GroupId"])

    def full_order(self, zone: str, group: str, **changes: Any) -> dict[str, Any]:
        """The parameters of a launch with everything a careful client gives."""
        tags = [{"Key": "run-id", "Value": "r1"}]
        kinds = ("instance", "volume", "network-interface", "spot-instances-request")
        disk = {
            "VolumeSize": 150,
            "VolumeType": "gp3",
            "DeleteOnTermination": True,
            "Encrypted": True,
        }
        order = self.order(
            MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
            InstanceMarketOptions=SPOT,
            NetworkInterfaces=[
                {
                    "DeviceIndex": 0,
                    "SubnetId": self.subnet(zone),
                    "Groups": [group],
                    "AssociatePublicIpAddress": True,
                    "DeleteOnTermination": True,
                }
            ],
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": disk}],
            TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in kinds],
            UserData="#cloud-config\nhostname: grüße\n",
        )
        return {**order, **changes}

    def launch(self, region: str = "us-east-1", **changes: Any) -> dict[str, Any]:
        """One instance, as RunInstances answers."""
        answer = self.client("ec2", region).run_instances(**self.order(region, **changes))
        return dict(answer["Instances"][0])

    def seen(self, instance_id: str, region: str = "us-east-1") -> dict[str, Any]:
        """The instance as DescribeInstances shows it."""
        answer = self.client("ec2", region).describe_instances(InstanceIds=[instance_id])
        return dict(answer["Reservations"][0]["Instances"][0])


@contextmanager
def opened(
    machines: NoMachines | None = None,
    clock: Callable[[], datetime] | None = None,
    *,
    is_throttled: bool = False,
) -> Iterator[Account]:
    """An account that is there for one test; it takes bursts of launches unless `is_throttled`."""
    chosen = machines or NoMachines()
    cloud = AwsCloud(machines=chosen, clock=clock) if clock else AwsCloud(machines=chosen)
    if not is_throttled:
        cloud.rates.rates["RunInstances"] = Rate(100, 100)
    with cloud:
        account = Account(cloud, chosen)
        yield account
        account.close()


@contextmanager
def refused(code: str) -> Iterator[dict[str, Any]]:
    """The block's call must be refused with this code; gives the error's fields."""
    error: dict[str, Any] = {}
    with pytest.raises(ClientError) as caught:
        yield error
    error.update(caught.value.response["Error"])
    error["status"] = caught.value.response["ResponseMetadata"]["HTTPStatusCode"]
    assert error["Code"] == code, error
