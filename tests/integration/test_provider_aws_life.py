"""The provider aws: how machines end, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.domain.machine import (
    CredentialsError,
    MachineState,
    PartialInventoryError,
    ProviderUnavailableError,
)
from runners.aws import AwsProvider
from tests.integration.aws_world import (
    PLATFORM,
    TAGS,
    account,
    ask,
    context,
    ec2,
    gone,
    running,
)
from tests.lab.aws.codes import aws_fault
from tests.lab.aws_cloud import AwsCloud
from tests.lab.machines import NoMachines
from tests.platforms import as_platform


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def aws(cloud: AwsCloud) -> AwsProvider:
    return AwsProvider(context())


# life and end


def test_a_machine_boots_before_it_can_be_reached(cloud: AwsCloud) -> None:
    machines = cloud.machines
    assert isinstance(machines, NoMachines)
    machines.boot_delay_s = 3600
    aws = AwsProvider(context())
    machine = running(aws, cloud)
    assert (machine.state, machine.endpoint) == (MachineState.REQUESTED, None)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("Server.InsufficientInstanceCapacity", "capacity"),
        ("Server.SpotInstanceTermination", "preempted"),
    ],
)
def test_an_instance_that_dies_in_pending_says_why(
    aws: AwsProvider, cloud: AwsCloud, code: str, ended: str
) -> None:
    cloud.die_in_pending(code)
    machine = gone(aws, aws.launch(ask(aws)).id)
    assert machine.ended == ended
    assert code in machine.detail
    assert not [one for one in aws.inventory() if one.kind == "machine"]


def test_a_preempted_machine_says_so(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = running(aws, cloud)
    before = datetime.now(UTC).replace(microsecond=0)
    cloud.preempt(machine.facts["instance_id"], notice_s=0)
    taken = gone(aws, machine.id)
    assert taken.ended == "preempted"
    # EC2 tells no time beside Server.SpotInstanceTermination: the spot request has it.
    assert taken.ended_at is not None
    assert before <= taken.ended_at <= datetime.now(UTC)
    assert gone(aws, machine.id).ended_at == taken.ended_at


def test_the_end_that_we_asked_for_has_the_time_at_which_ec2_bills_no_more(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    machine = running(aws, cloud)
    assert machine.ended_at is None
    before = datetime.now(UTC).replace(microsecond=0)
    aws.terminate(machine.id)
    ended = aws.inspect(machine.id).ended_at
    assert ended is not None
    assert before <= ended <= datetime.now(UTC)


def test_a_machine_that_powered_itself_off_met_its_deadline(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    machine = running(aws, cloud)
    machines = cloud.machines
    assert isinstance(machines, NoMachines)
    machines.end(machine.facts["instance_id"])
    off = aws.inspect(machine.id)
    assert off.ended == "deadline"
    # EC2 tells no time of a guest's own shutdown; nobody has looked since the machine expired.
    expired = datetime.fromtimestamp(int(TAGS["seatrial-expires-at"]), UTC)
    assert (off.ended_at, gone(aws, machine.id).ended_at) == (expired, expired)


def test_a_stopped_machine_is_ending_and_can_be_terminated(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    machine = running(aws, cloud, place=-1)
    ec2(cloud).stop_instances(InstanceIds=[machine.facts["instance_id"]])
    assert aws.inspect(machine.id).state is MachineState.STOPPING
    assert machine.id in {one.id for one in aws.inventory()}
    aws.terminate(machine.id)
    gone(aws, machine.id)


def test_terminate_is_repeatable_and_leaves_nothing(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.shutting_down_s = 3600
    machine = running(aws, cloud)
    aws.terminate(machine.id)
    assert aws.inspect(machine.id).state is MachineState.STOPPING
    aws.terminate(machine.id)
    cloud.clock = lambda: datetime.now(UTC) + timedelta(hours=2)
    assert gone(aws, machine.id).ended == ""
    aws.terminate(machine.id)
    assert {kind for kind, _ in cloud.alive()} <= {"security-group"}


@pytest.mark.parametrize("code", ["IncorrectInstanceState", "InvalidInstanceID.NotFound"])
def test_what_is_ending_or_gone_is_no_error(aws: AwsProvider, cloud: AwsCloud, code: str) -> None:
    machine = aws.launch(ask(aws))
    cloud.refuse("TerminateInstances", code)
    aws.terminate(machine.id)


def test_a_terminate_that_is_refused_is_an_error(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = aws.launch(ask(aws))
    cloud.faults.always("TerminateInstances", aws_fault("UnauthorizedOperation"))
    with pytest.raises(CredentialsError, match=machine.facts["instance_id"]):
        aws.terminate(machine.id)


def test_the_unknown_is_gone_and_may_be_terminated(aws: AwsProvider) -> None:
    for machine_id in (
        "nobody-knows-it",
        "",
        "us-east-1/",
        "us-east-1/i-0123456789abcdef0",
        "us-east-1/i-nonsense",
        "us-east-1/vol-0123456789abcdef0",
        "us-east-1/sg-0123456789abcdef0",
        "us-east-1/eni-0123456789abcdef0",
        "us-east-1/eipalloc-0123456789abcdef0",
        "us-east-1/x-1",
    ):
        assert aws.inspect(machine_id).state is MachineState.TERMINATED, machine_id
        aws.terminate(machine_id)


def test_a_new_instance_may_not_be_there_yet(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.invisible_for_looks = 2
    machine = aws.launch(ask(aws))
    missing = aws.inspect(machine.id)
    assert (missing.state, missing.ended) == (MachineState.TERMINATED, "")
    for _ in range(3):
        found = aws.inspect(machine.id)
    assert found.state is MachineState.READY


def test_a_console_is_shown_for_instances_only(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = running(aws, cloud)
    assert machine.facts["instance_id"] in aws.console(machine.id)
    assert aws.console("us-east-1/vol-1") == ""


# what is left behind


def tagged(kind: str) -> list[dict[str, Any]]:
    tags = [{"Key": "seatrial-project", "Value": "lab"}, {"Key": "seatrial-token", "Value": "t"}]
    return [{"ResourceType": kind, "Tags": tags}]


def test_every_kind_of_leftover_is_listed_and_can_be_ended(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    client = ec2(cloud, "eu-west-1")
    client.create_volume(AvailabilityZone="eu-west-1a", Size=10, TagSpecifications=tagged("volume"))
    subnet = client.describe_subnets()["Subnets"][0]["SubnetId"]
    client.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface"))
    client.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    client.create_security_group(
        GroupName="ours", Description="d", TagSpecifications=tagged("security-group")
    )
    client.create_volume(AvailabilityZone="eu-west-1a", Size=10)  # somebody else's
    found = tuple(aws.inventory())
    assert sorted(one.kind for one in found) == [
        "address",
        "disk",
        "firewall",
        "network-interface",
    ]
    for one in found:
        assert (one.token, one.simulated) == ("t", True)
        assert aws.inspect(one.id).state is MachineState.READY
        aws.terminate(one.id)
        aws.terminate(one.id)
        assert aws.inspect(one.id).state is MachineState.TERMINATED
    assert not tuple(aws.inventory())


def test_a_volume_that_outlives_its_instance_is_listed(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = running(aws, cloud)
    client = ec2(cloud)
    volume = client.create_volume(
        AvailabilityZone="us-east-1a", Size=10, TagSpecifications=tagged("volume")
    )["VolumeId"]
    instance = machine.facts["instance_id"]
    client.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
    kinds = {one.id: one.kind for one in aws.inventory()}
    assert kinds[machine.id] == "machine"
    assert kinds[f"us-east-1/{volume}"] == "disk"
    # The root disk and the interface end with the instance.
    assert sorted(kinds.values()) == ["disk", "firewall", "machine"]


def test_the_shared_group_says_that_it_is_shared(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.launch(ask(aws))
    (group,) = (one for one in aws.inventory() if one.kind == "firewall")
    assert group.tags == {"seatrial-project": "lab", "seatrial-shared": "true"}


def test_machines_of_all_regions_are_found_and_no_others(aws: AwsProvider, cloud: AwsCloud) -> None:
    both = {**PLATFORM, "locations": ("us-east-1", "eu-central-1"), "market": ("on-demand",)}
    places = {place.region: n for n, place in enumerate(aws.places(as_platform(both)))}
    made = {
        aws.launch(ask(aws, platform=both, place=n, token=f"a-1-{n}")).id for n in places.values()
    }
    stranger = AwsProvider(context(project="other"))
    stranger.launch(ask(stranger, token="b-1-1"))
    assert {one.id for one in aws.inventory() if one.kind == "machine"} == made


def test_regions_that_a_policy_denies_are_named_beside_what_the_others_have(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    # github.com/elastic/cloudbeat/issues/3014: a policy of the organisation denies regions
    machine = aws.launch(ask(aws))
    cloud.faults.always("DescribeInstances", aws_fault("UnauthorizedOperation"), where="eu-west-1")
    with pytest.raises(PartialInventoryError, match=r"in eu-west-1: .*not authorized") as caught:
        aws.inventory()
    assert machine.id in {one.id for one in caught.value.machines}
    assert list(caught.value.gaps) == ["eu-west-1"]


def test_a_region_that_does_not_answer_hides_no_other(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = aws.launch(ask(aws))
    cloud.silent.add("eu-central-1")
    with pytest.raises(PartialInventoryError, match="in eu-central-1") as caught:
        aws.inventory()
    assert machine.id in {one.id for one in caught.value.machines}
    assert caught.value.hides("eu-central-1a/g5.xlarge/spot")
    assert not caught.value.hides("us-east-1a/g5.xlarge/spot")


def test_the_list_of_regions_is_asked_of_one_that_no_policy_denies(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    machine = aws.launch(ask(aws))
    cloud.faults.script("DescribeRegions", [aws_fault("UnauthorizedOperation")])
    assert machine.id in {one.id for one in aws.inventory()}


def test_credentials_that_may_read_nowhere_are_refused(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.always("DescribeInstances", aws_fault("UnauthorizedOperation"))
    with pytest.raises(CredentialsError):
        aws.inventory()


def test_what_is_read_of_a_region_in_part_is_not_told(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = aws.launch(ask(aws))
    region = machine.id.partition("/")[0]
    cloud.faults.always("DescribeVolumes", aws_fault("ServiceUnavailable"), where=region)
    with pytest.raises(PartialInventoryError, match=f"in {region}: DescribeVolumes") as caught:
        aws.inventory()
    assert machine.id not in {one.id for one in caught.value.machines}


def test_an_inventory_without_any_region_is_none(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.always("DescribeVolumes", aws_fault("ServiceUnavailable"))
    with pytest.raises(ProviderUnavailableError, match="DescribeVolumes") as caught:
        aws.inventory()
    assert not isinstance(caught.value, PartialInventoryError)
