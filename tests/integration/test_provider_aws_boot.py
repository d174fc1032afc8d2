"""The provider aws: who may enter a machine, and what it boots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    Extent,
    MachineState,
    ProviderUnavailableError,
    SshAddress,
)
from runners.aws import AwsProvider
from runners.aws.catalogue import InstanceCatalogue
from tests.integration.aws_world import (
    CIDR,
    PLATFORM,
    account,
    ask,
    calls,
    context,
    ec2,
    groups,
    running,
)
from tests.lab.aws.codes import LOST, aws_fault
from tests.lab.aws_cloud import AwsCloud
from tests.platforms import as_platform


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def aws(cloud: AwsCloud) -> AwsProvider:
    return AwsProvider(context())


# who may enter


def test_one_group_lets_in_ssh_from_the_controller_only(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.launch(ask(aws))
    other = AwsProvider(context())
    other.launch(ask(other, token="a-2-1", place=1))
    (group,) = groups(cloud)
    assert group["GroupName"].startswith("seatrial-lab-")
    (rule,) = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 22, 22)
    assert [one["CidrIp"] for one in rule["IpRanges"]] == [CIDR]
    found = ec2(cloud).describe_instances()["Reservations"]
    used = {one["SecurityGroups"][0]["GroupId"] for each in found for one in each["Instances"]}
    assert used == {group["GroupId"]}


def test_a_public_machine_needs_somebody_to_let_in(cloud: AwsCloud) -> None:
    aws = AwsProvider(context(ingress_cidr=""))
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR"):
        aws.launch(ask(AwsProvider(context())))
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR"):  # a plan says so already
        aws.places(as_platform(PLATFORM))
    assert not calls(cloud, "RunInstances")


def test_missing_credentials_and_a_missing_ingress_are_one_refusal(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CredentialsError("no credentials", extent=Extent.PROJECT)

    aws = AwsProvider(context(ingress_cidr=""))
    monkeypatch.setattr(InstanceCatalogue, "zones", refuse)
    with pytest.raises(
        CredentialsError, match=r"^no credentials; SEATRIAL_INGRESS_CIDR is not set"
    ):
        aws.places(as_platform(PLATFORM))
    with pytest.raises(CredentialsError, match=r"^no credentials$"):
        aws.places(as_platform({**PLATFORM, "connect": "private"}))


def test_a_private_machine_is_reached_by_its_private_address(cloud: AwsCloud) -> None:
    aws = AwsProvider(context(ingress_cidr=""))
    private = {**PLATFORM, "connect": "private"}
    assert aws.places(as_platform(private))[0].address_usd_per_hour == 0
    machine = running(aws, cloud, platform=private)
    assert isinstance(machine.endpoint, SshAddress)
    found = ec2(cloud).describe_instances()["Reservations"][0]["Instances"][0]
    assert machine.endpoint.address == found["PrivateIpAddress"]
    assert not found.get("PublicIpAddress")
    (vpc,) = ec2(cloud).describe_vpcs()["Vpcs"]
    (rule,) = groups(cloud)[0]["IpPermissions"]
    assert [one["CidrIp"] for one in rule["IpRanges"]] == [vpc["CidrBlock"]]


def test_a_group_that_somebody_opened_is_not_used(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.launch(ask(aws))
    (group,) = groups(cloud)
    everybody = {"CidrIp": "0.0.0.0/0"}
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [everybody]}
    ec2(cloud).authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    other = AwsProvider(context())
    with pytest.raises(ConfigError, match=r"also lets in 0\.0\.0\.0/0 to port 22"):
        other.launch(ask(other, token="a-2-1"))


def test_a_group_of_our_name_that_is_not_ours_is_not_used(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    aws.launch(ask(aws))
    (group,) = groups(cloud)
    ec2(cloud).delete_tags(Resources=[group["GroupId"]], Tags=[{"Key": "seatrial-project"}])
    other = AwsProvider(context())
    with pytest.raises(ConfigError, match="it is not ours"):
        other.launch(ask(other, token="a-2-1"))


def test_a_group_that_was_swept_is_made_again(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.terminate(aws.launch(ask(aws)).id)
    (group,) = groups(cloud)
    aws.terminate(f"us-east-1/{group['GroupId']}")
    assert not groups(cloud)
    request = ask(aws, token="a-2-1")
    with pytest.raises(ProviderUnavailableError, match="made again"):
        aws.launch(request)
    assert aws.launch(request).state is MachineState.REQUESTED


def test_a_group_in_use_is_ended_later(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.launch(ask(aws))
    (group,) = groups(cloud)
    with pytest.raises(ProviderUnavailableError, match="DependencyViolation"):
        aws.terminate(f"us-east-1/{group['GroupId']}")


def test_a_group_that_was_only_half_made_is_finished(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.refuse("AuthorizeSecurityGroupIngress", "InternalError")
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    aws.launch(request)
    assert len(groups(cloud)[0]["IpPermissions"]) == 1


def test_a_group_whose_making_was_not_heard_of_is_found(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.script("CreateSecurityGroup", [LOST])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    aws.launch(request)
    assert len(groups(cloud)) == 1


def test_a_subnet_of_ones_own_decides_about_the_zones(aws: AwsProvider, cloud: AwsCloud) -> None:
    (subnet,) = ec2(cloud).describe_subnets(
        Filters=[{"Name": "availability-zone", "Values": ["us-east-1b"]}]
    )["Subnets"]
    own = {**PLATFORM, "options": {"subnet": subnet["SubnetId"]}}
    assert {place.zone for place in aws.places(as_platform(own))} == {"us-east-1b"}
    aws.launch(ask(aws, platform=own))
    found = ec2(cloud).describe_instances()["Reservations"][0]["Instances"][0]
    assert found["SubnetId"] == subnet["SubnetId"]
    elsewhere = replace(ask(aws, token="a-2-1"), platform=as_platform(own))
    with pytest.raises(ConfigError, match=r"options\.subnet"):
        aws.launch(replace(elsewhere, place=replace(elsewhere.place, zone="us-east-1a")))


def test_a_region_without_its_default_network_is_passed_over(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    client = ec2(cloud)
    for subnet in client.describe_subnets()["Subnets"]:
        client.delete_subnet(SubnetId=subnet["SubnetId"])
    both = {**PLATFORM, "locations": ("us-east-1", "us-east-2")}
    assert {place.region for place in aws.places(as_platform(both))} == {"us-east-2"}
    with pytest.raises(ConfigError, match="us-east-1 has no default subnet"):
        aws.places(as_platform(PLATFORM))


# the image


def test_the_usual_image_is_one_that_is_patched_and_has_python_3_12(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    assert "PyTorch 2.12 (Ubuntu 24.04)" in running(aws, cloud).facts["image_name"]


def test_a_line_of_a_python_without_wheels_comes_after_all_of_ubuntu_24(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    for torch in ("2.12", "2.11", "2.10", "2.9"):
        cloud.images.drop_parameter(f"oss-nvidia-driver-gpu-pytorch-{torch}-ubuntu-24.04")
    assert "PyTorch 2.8 (Ubuntu 24.04)" in running(aws, cloud).facts["image_name"]


def test_lines_that_are_gone_are_passed_over(aws: AwsProvider, cloud: AwsCloud) -> None:
    line = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-{}/latest/ami-id"
    listed = (line.format("2.6-ubuntu-22.04"), line.format("2.8-ubuntu-24.04"))
    machine = running(aws, cloud, platform={**PLATFORM, "image": {"ssm": listed}})
    assert "PyTorch 2.8" in machine.facts["image_name"]


def test_where_no_image_is_there_all_that_were_tried_are_named(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    wrong = {**PLATFORM, "image": {"ssm": ("/no/such", "/nor/this")}}
    with pytest.raises(ConfigError, match="/no/such, /nor/this"):
        aws.launch(ask(aws, platform=wrong))
    assert not calls(cloud, "RunInstances")


def test_without_leave_to_read_parameters_the_usual_image_is_found_by_name(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.faults.always("GetParameter", aws_fault("AccessDeniedException"))
    machine = running(aws, cloud)
    assert "PyTorch 2.12 (Ubuntu 24.04) 20261009" in machine.facts["image_name"]


def test_leave_that_is_missing_for_a_named_parameter_is_said(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.faults.always("GetParameter", aws_fault("AccessDeniedException"))
    with pytest.raises(CredentialsError, match="GetParameter /mine in us-east-1"):
        aws.launch(ask(aws, platform={**PLATFORM, "image": {"ssm": "/mine"}}))


def test_an_image_of_ones_own_and_its_user(aws: AwsProvider, cloud: AwsCloud) -> None:
    known = aws.launch(ask(aws)).facts["image_id"]
    own = {**PLATFORM, "image": {"ami": ("ami-00000000000000000", known), "user": "tester"}}
    machine = running(aws, cloud, platform=own, token="a-2-1")
    assert machine.facts["image_id"] == known
    assert isinstance(machine.endpoint, SshAddress)
    assert machine.endpoint.user == "tester"


def test_amazon_linux_lets_in_its_own_user_on_its_own_device(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    name = (
        "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.9-amazon-linux-2023"
        "/latest/ami-id"
    )
    machine = running(aws, cloud, platform={**PLATFORM, "image": {"ssm": name}})
    assert isinstance(machine.endpoint, SshAddress)
    assert machine.endpoint.user == "ec2-user"
    sent = next(call.details for call in cloud.calls if call.name == "RunInstances")
    assert sent["BlockDeviceMapping.1.DeviceName"] == "/dev/xvda"


def test_a_disk_smaller_than_the_image_is_refused_here(aws: AwsProvider, cloud: AwsCloud) -> None:
    with pytest.raises(ConfigError, match=r"disk_gb: the image .* needs 45"):
        aws.launch(ask(aws, platform={**PLATFORM, "disk_gb": 20}))
