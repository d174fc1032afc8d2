"""Machines in networks of the user's own: subnet, security group, encryption key, required tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import boto3
import pytest

from runners.aws import AwsProvider
from runners.gcp.instance import build_instance
from runners.gcp.platform_config import parse_platform
from tests.integration.aws_world import PLATFORM, account, ask, context
from tests.integration.gcp_lab import PLATFORM as GCP_PLATFORM
from tests.integration.gcp_lab import TEMPLATES, Clock, provider_of
from tests.integration.gcp_lab import ask as ask_gcp
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
GCP_KEY = "projects/keys/locations/us/keyRings/r/cryptoKeys/k"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


def test_an_instance_in_a_subnet_and_group_of_the_users_own(aws: AwsCloud) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.1.0/24", AvailabilityZone="us-east-1a")[
        "Subnet"
    ]["SubnetId"]
    group = ec2.create_security_group(GroupName="bastion", Description="ours", VpcId=vpc)["GroupId"]
    options = {
        "subnet": subnet,
        "security_group": group,
        "kms_key": KEY,
        "tags": "cost-center=42, owner=ml team",
    }
    machine = AwsProvider(context()).launch(
        ask(AwsProvider(context()), platform={**PLATFORM, "options": options})
    )
    call = next(call for call in aws.calls if call.name == "RunInstances")
    assert call.details["NetworkInterface.1.SubnetId"] == subnet
    assert call.details["NetworkInterface.1.SecurityGroupId.1"] == group
    assert call.details["BlockDeviceMapping.1.Ebs.KmsKeyId"] == KEY
    (found,) = ec2.describe_instances(InstanceIds=[machine.id.rpartition("/")[2]])["Reservations"]
    tags = {tag["Key"]: tag["Value"] for tag in found["Instances"][0]["Tags"]}
    assert (tags["cost-center"], tags["owner"]) == ("42", "ml team")
    assert tags["seatrial-project"] == "lab"
    made = [call.name for call in aws.calls].count("CreateSecurityGroup")
    assert made == 1, "the user's own, and none of ours"


@pytest.mark.parametrize(
    ("options", "network", "subnetwork"),
    [
        ({}, "global/networks/default", ""),
        ({"network": "research"}, "global/networks/research", ""),
        ({"subnetwork": "gpu"}, "", "regions/us-central1/subnetworks/gpu"),
        (
            {"subnetwork": "projects/host/regions/us-central1/subnetworks/gpu"},
            "",
            "projects/host/regions/us-central1/subnetworks/gpu",
        ),
    ],
)
def test_a_machine_in_a_network_of_the_users_own(
    options: Mapping[str, str], network: str, subnetwork: str
) -> None:
    with ComputeCloud() as cloud:
        clock = Clock()
        provider = provider_of(cloud, clock)
        more = {"kms_key": GCP_KEY, "labels": "cost-center=42"} if options else {}
        request = ask_gcp(
            provider, clock, platform={**GCP_PLATFORM, "options": {**options, **more}}
        )
        config = parse_platform(request.platform)
        wanted = build_instance(
            request,
            config,
            provider._images.resolve(config.image),
            project="seatrial",
            now=clock(),
            templates=TEMPLATES,
        )
    (interface,) = wanted.network_interfaces
    assert (interface.network, interface.subnetwork) == (network, subnetwork)
    assert config.has_own_network is bool(options)
    if options:
        assert wanted.disks[0].disk_encryption_key.kms_key_name == GCP_KEY
        assert wanted.labels["cost-center"] == "42"
    assert wanted.labels["seatrial-project"] == "seatrial"
