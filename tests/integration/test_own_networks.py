"""Machines in networks of the user's own: subnet, security group, encryption key, required tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import boto3
import pytest

from orchestrator.domain.machine import ConfigError, MachineState, SshAddress
from runners.aws import AwsProvider
from runners.gcp.instance import build_instance
from runners.gcp.platform_config import parse_platform
from tests.integration.aws_world import PLATFORM, account, ask, context, running
from tests.integration.gcp_lab import PLATFORM as GCP_PLATFORM
from tests.integration.gcp_lab import TEMPLATES, Clock, provider_of, settled, swept
from tests.integration.gcp_lab import ask as ask_gcp
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.machines import NoMachines
from tests.platforms import as_platform

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


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts empty programs of these names on a PATH that has no others."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(*names: str) -> None:
        for name in names:
            (tmp_path / name).touch(mode=0o755)

    return install


def test_an_instance_behind_systems_manager(aws: AwsCloud, programs: Callable[..., None]) -> None:
    platform = {
        **PLATFORM,
        "connect": "ssm",
        "options": {"instance_profile": "ssm-only"},
    }
    provider = AwsProvider(context(ingress_cidr=""))
    programs("aws")
    with pytest.raises(ConfigError, match="session-manager-plugin is not on the PATH"):
        provider.places(as_platform(platform))  # a plan says so already
    programs("session-manager-plugin")
    iam = boto3.client("iam", region_name="us-east-1")
    iam.create_instance_profile(InstanceProfileName="ssm-only")
    machine = running(provider, aws, platform=platform)
    call = next(call for call in aws.calls if call.name == "RunInstances")
    assert call.details["IamInstanceProfile.Name"] == "ssm-only"
    assert call.details["NetworkInterface.1.AssociatePublicIpAddress"] == "false"
    assert isinstance(machine.endpoint, SshAddress)
    assert machine.endpoint.address.startswith("172.31.")  # of the default VPC
    region, _, instance = machine.id.partition("/")
    assert machine.endpoint.proxy_command == (
        *("aws", "ssm", "start-session", "--target", instance, "--region", region),
        *("--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22"),
    )


def test_a_machine_behind_the_identity_aware_proxy(programs: Callable[..., None]) -> None:
    platform = {**GCP_PLATFORM, "connect": "iap"}
    with ComputeCloud(machines=NoMachines()) as cloud:
        clock = Clock()
        provider = provider_of(cloud, clock, ingress_cidr="")
        with pytest.raises(ConfigError, match="gcloud is not on the PATH"):
            provider.places(as_platform(platform))
        programs("gcloud")
        machine = provider.launch(ask_gcp(provider, clock, platform=platform))
        ready = settled(provider, machine.id, MachineState.READY)
        rules = provider._clients.firewalls.list(project="lab")
        (rule,) = [each for each in rules if each.allowed and "seatrial" in each.name]
        assert list(rule.source_ranges) == ["35.235.240.0/20"]
        assert isinstance(ready.endpoint, SshAddress)
        zone, _, name = machine.id.split("/")
        assert ready.endpoint.proxy_command == (
            *("gcloud", "compute", "start-iap-tunnel", name, "22", "--listen-on-stdin"),
            *("--project=lab", f"--zone={zone}", "--verbosity=warning", "--quiet"),
        )
        swept(provider, cloud)
