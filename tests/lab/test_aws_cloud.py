"""The emulated EC2 shows the real client what the real one would: launches, lives and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import (
    ConnectionClosedError,
    ReadTimeoutError,
    WaiterError,
)
from botocore.parsers import ResponseParserError

from tests.lab.aws.account import SPOT, Account, HandClock, opened, refused
from tests.lab.aws.codes import CODES, DROPPED, GATEWAY_PAGE, LOST, aws_fault
from tests.lab.cloud_facts import durations
from tests.lab.faults import ANY
from tests.lab.machines import NoMachines


@pytest.fixture
def account() -> Iterator[Account]:
    with opened() as each:
        yield each


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it in 120 s"
        time.sleep(0.02)


def test_a_full_launch_and_all_that_comes_with_it(account: Account) -> None:
    ec2, group = account.client("ec2"), account.security_group()
    order = account.full_order("us-east-1b", group, ClientToken="t1")
    made = ec2.run_instances(**order)["Instances"][0]
    assert made["State"]["Name"] == "pending"
    assert made["InstanceLifecycle"] == "spot"
    spec = account.machines.booted[0]
    assert spec.id == made["InstanceId"]
    assert spec.user_data == order["UserData"]
    assert spec.addresses == (made["PrivateIpAddress"], made["PublicIpAddress"])
    assert (spec.default_user, spec.device) == ("ubuntu", "A10G")
    assert ip_address(made["PublicIpAddress"]) in ip_network("198.51.100.0/24")

    ours = [{"Name": "tag:run-id", "Values": ["r1"]}]
    assert len(ec2.describe_volumes(Filters=ours)["Volumes"]) == 1
    assert len(ec2.describe_network_interfaces(Filters=ours)["NetworkInterfaces"]) == 1
    asked = ec2.describe_spot_instance_requests(Filters=ours)["SpotInstanceRequests"]
    assert [each["SpotInstanceRequestId"] for each in asked] == [made["SpotInstanceRequestId"]]
    assert asked[0]["State"] == "active"
    seen = account.seen(made["InstanceId"])
    assert seen["State"]["Name"] == "running"
    assert seen["SecurityGroups"][0]["GroupId"] == group
    kinds = sorted(kind for kind, _ in account.cloud.alive())
    assert kinds == ["instance", "network-interface", "security-group", "spot-request", "volume"]


def test_a_terminated_instance_stays_listed_and_leaves_nothing(account: Account) -> None:
    ec2, group = account.client("ec2"), account.security_group()
    made = account.launch(**account.full_order("us-east-1b", group))["InstanceId"]
    account.seen(made)
    with refused("DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    ended = ec2.terminate_instances(InstanceIds=[made])["TerminatingInstances"][0]
    assert ended["CurrentState"]["Name"] == "shutting-down"
    assert ended["PreviousState"]["Name"] == "running"
    _until(lambda: account.cloud.state(made) == "terminated")
    seen = account.seen(made)
    assert seen["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert seen["StateTransitionReason"].startswith("User initiated (2")
    ec2.delete_security_group(GroupId=group)
    assert account.cloud.alive() == []
    assert account.machines.live() == ()


NEVER_S = 10.0**6


def come_up(account: Account, instance: str) -> None:
    """Its machine, which takes for ever, is up."""
    account.machines.boot_delay_s = 0
    account.machines.reboot(instance)


def test_the_waiters_follow_the_machine() -> None:
    clock = HandClock()
    with opened(NoMachines(boot_delay_s=NEVER_S), clock) as account:
        ec2 = account.client("ec2")
        made = account.launch()["InstanceId"]
        assert account.seen(made)["State"]["Name"] == "pending"
        quick = {"Delay": 0.1, "MaxAttempts": 50}
        with pytest.raises(WaiterError):
            ec2.get_waiter("instance_terminated").wait(InstanceIds=[made], WaiterConfig=quick)
        come_up(account, made)
        ec2.get_waiter("instance_running").wait(InstanceIds=[made], WaiterConfig=quick)
        account.cloud.shutting_down_s = 30
        ec2.terminate_instances(InstanceIds=[made])
        assert account.seen(made)["State"]["Name"] == "shutting-down"
        ec2.terminate_instances(InstanceIds=[made])
        clock.move(31)
        _until(lambda: account.cloud.state(made) == "terminated")
        ec2.terminate_instances(InstanceIds=[made])
        with refused("InvalidInstanceID.NotFound"):
            ec2.terminate_instances(InstanceIds=["i-0123456789abcdef0"])


def test_every_step_takes_its_time() -> None:
    clock, takes = HandClock(), durations("aws")
    with opened(clock=clock) as account:
        account.cloud.follow_facts()
        made = account.launch()["InstanceId"]
        assert account.cloud.state(made) == "pending"
        clock.move(takes["pending"])
        assert account.cloud.state(made) == "running"
        account.client("ec2").terminate_instances(InstanceIds=[made])
        clock.move(takes["shutting-down"] - 0.1)
        assert account.cloud.state(made) == "shutting-down"
        clock.move(0.1)
        _until(lambda: account.cloud.state(made) == "terminated")


def test_a_token_gives_the_same_instance_again(account: Account) -> None:
    first = account.launch(ClientToken="t1")
    again = account.launch(ClientToken="t1")
    assert again["InstanceId"] == first["InstanceId"]
    assert again["PrivateIpAddress"] == first["PrivateIpAddress"]
    with refused("IdempotentParameterMismatch"):
        account.launch(ClientToken="t1", InstanceType="g6.xlarge")
    with refused("IdempotentParameterMismatch"):
        account.launch(ClientToken="t1", UserData="other")
    assert account.launch(ClientToken="t2")["InstanceId"] != first["InstanceId"]
    assert account.launch("us-west-2", ClientToken="t1")["InstanceId"] != first["InstanceId"]
    assert len(account.machines.booted) == 3
    found = account.client("ec2").describe_instances(
        Filters=[{"Name": "client-token", "Values": ["t1"]}]
    )
    ids = [each["InstanceId"] for r in found["Reservations"] for each in r["Instances"]]
    assert ids == [first["InstanceId"]]


def test_a_token_used_in_another_zone_makes_a_second_instance(account: Account) -> None:
    ids = [
        account.launch(SubnetId=account.subnet(zone), ClientToken="t1")["InstanceId"]
        for zone in ("us-east-1a", "us-east-1b", "us-east-1a")
    ]
    assert ids[0] == ids[2] != ids[1]


def test_one_token_from_many_threads_makes_one_instance(account: Account) -> None:
    ec2, order = account.client("ec2"), account.order(ClientToken="t1")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ec2.run_instances(**order), range(16)))
    assert len({answer["Instances"][0]["InstanceId"] for answer in answers}) == 1
    assert len(account.machines.booted) == 1


def test_several_instances_come_of_one_call(account: Account) -> None:
    ec2 = account.client("ec2")
    order = account.order(MinCount=1, MaxCount=3, ClientToken="t1")
    made = [ec2.run_instances(**order)["Instances"] for _ in range(2)]
    ids = [[each["InstanceId"] for each in answer] for answer in made]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(account.machines.booted) == 3
    ec2.terminate_instances(InstanceIds=ids[0])
    _until(lambda: account.cloud.alive() == [])


def test_a_terminate_can_fail_thrice(account: Account) -> None:
    made = account.launch(SubnetId=account.subnet("us-east-1b"))["InstanceId"]
    account.cloud.refuse("TerminateInstances", *["InternalError"] * 3, where="us-east-1b")
    for _ in range(3):
        with refused("InternalError"):
            account.client("ec2").terminate_instances(InstanceIds=[made])
    account.client("ec2").terminate_instances(InstanceIds=[made])
    _until(lambda: account.cloud.alive() == [])


def test_addresses_are_given_once_in_all_regions(account: Account) -> None:
    for region in ("us-east-1", "us-west-2"):
        for _ in range(3):
            made = account.launch(region)
            account.client("ec2", region).terminate_instances(InstanceIds=[made["InstanceId"]])
            account.launch(region)
    given = [address for spec in account.machines.booted for address in spec.addresses]
    assert len(given) == len(set(given)) == 24
    used = account.machines.booted[0].addresses[1]
    account.cloud.give_next_public_address(used)
    assert account.launch()["PublicIpAddress"] == used


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g5.tiny"}, "InvalidParameterValue"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        ({"Placement": {"AvailabilityZone": "us-east-1e"}}, "Unsupported"),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]},
            "InvalidBlockDeviceMapping",
        ),
    ],
)
def test_a_launch_that_is_wrong_is_refused_and_leaves_nothing(
    account: Account, changes: dict[str, Any], code: str
) -> None:
    with refused(code):
        account.launch(**changes)
    assert account.cloud.alive() == []
    assert account.cloud.calls[-1].answer == code


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_reaches_the_client_by_its_code(code: str) -> None:
    with opened() as account:
        account.cloud.refuse("RunInstances", code)
        with refused(code) as error:
            account.launch()
        assert error["status"] == aws_fault(code).status
        assert account.cloud.alive() == []


def test_faults_fit_zone_region_and_market(account: Account) -> None:
    cloud = account.cloud
    cloud.refuse("RunInstances", "InsufficientInstanceCapacity", where=("us-east-1a", "spot"))
    cloud.faults.always("RunInstances", aws_fault("AuthFailure"), where="us-west-2")
    in_a, in_b = account.subnet("us-east-1a"), account.subnet("us-east-1b")
    account.launch(SubnetId=in_a)
    account.launch(SubnetId=in_b, InstanceMarketOptions=SPOT)
    with refused("InsufficientInstanceCapacity"):
        account.launch(SubnetId=in_a, InstanceMarketOptions=SPOT)
    account.launch(SubnetId=in_a, InstanceMarketOptions=SPOT)
    for _ in range(2):
        with refused("AuthFailure"):
            account.launch("us-west-2")
    assert cloud.faults.unused == 0
    cloud.faults.always(ANY, aws_fault("RequestExpired"))
    with refused("RequestExpired"):
        account.client("sts").get_caller_identity()


def test_an_answer_that_is_lost_leaves_an_instance_that_the_token_finds(account: Account) -> None:
    account.cloud.faults.script(
        "RunInstances", [LOST, aws_fault("InternalError", after=True), DROPPED, GATEWAY_PAGE]
    )
    with pytest.raises(ConnectionClosedError):
        account.launch(ClientToken="t1")
    with refused("InternalError"):
        account.launch(ClientToken="t2")
    with pytest.raises(ConnectionClosedError):
        account.launch(ClientToken="t3")
    with pytest.raises(ResponseParserError):
        account.launch(ClientToken="t3")
    assert len(account.machines.booted) == 2
    assert account.launch(ClientToken="t1")["InstanceId"] == account.machines.booted[0].id
    answers = [call.answer for call in account.cloud.calls]
    assert answers == ["dropped", "InternalError", "dropped", "page", "ok"]
    assert account.cloud.calls[0].details["answer lost"] == "ok"


def test_a_late_answer_is_a_time_out_for_an_impatient_client(account: Account) -> None:
    impatient = Config(retries={"total_max_attempts": 1}, read_timeout=0.2)
    account.cloud.faults.script("RunInstances", [aws_fault("Unavailable", delay_s=0.6)])
    with pytest.raises(ReadTimeoutError):
        account.client("ec2", config=impatient).run_instances(**account.order())
    _until(lambda: len(account.cloud.calls) == 1)


def test_a_burst_of_throttling_passes_with_retries(account: Account) -> None:
    patient = account.client("ec2", config=Config(retries={"mode": "standard", "max_attempts": 3}))
    account.cloud.refuse("RunInstances", "RequestLimitExceeded", "RequestLimitExceeded")
    patient.run_instances(**account.order(ClientToken="t1"))
    assert [(call.key, call.answer) for call in account.cloud.calls] == [
        ("t1", "RequestLimitExceeded"),
        ("t1", "RequestLimitExceeded"),
        ("t1", "ok"),
    ]


def test_a_new_instance_is_not_seen_at_once(account: Account) -> None:
    account.cloud.invisible_for_looks = 2
    account.cloud.hides_from_changes = True
    ec2, made = account.client("ec2"), account.launch(ClientToken="t1")["InstanceId"]
    with refused("InvalidInstanceID.NotFound"):
        ec2.terminate_instances(InstanceIds=[made])
    with refused("InvalidInstanceID.NotFound"):
        account.seen(made)
    assert ec2.describe_instances()["Reservations"] == []
    assert account.seen(made)["InstanceId"] == made
    assert account.cloud.state(made) == "running"


def test_a_new_instance_is_not_seen_for_a_while() -> None:
    clock = HandClock()
    with opened(clock=clock) as account:
        account.cloud.lag_s = 5
        made = account.launch()["InstanceId"]
        with refused("InvalidInstanceID.NotFound"):
            account.seen(made)
        clock.move(5)
        assert account.seen(made)["LaunchTime"] == HandClock().now


@pytest.mark.parametrize(
    "code",
    ["Server.InsufficientInstanceCapacity", "Server.InternalError", "Client.VolumeLimitExceeded"],
)
def test_an_instance_can_die_before_it_runs(account: Account, code: str) -> None:
    account.cloud.die_in_pending(code, where="us-east-1b")
    alive = account.launch(SubnetId=account.subnet("us-east-1a"))
    dead = account.launch(SubnetId=account.subnet("us-east-1b"))
    assert dead["State"]["Name"] == "pending"
    _until(lambda: account.cloud.state(dead["InstanceId"]) == "terminated")
    seen = account.seen(dead["InstanceId"])
    assert seen["StateReason"]["Code"] == code
    assert seen["StateReason"]["Message"].startswith(f"{code}: ")
    assert [spec.id for spec in account.machines.booted] == [alive["InstanceId"]]
    billed = {line.resource_id for line in account.cloud.billing()}
    assert dead["InstanceId"] not in billed


def test_a_spot_interruption_gives_notice_and_then_takes() -> None:
    clock = HandClock()
    with opened(clock=clock) as account:
        made = account.launch(InstanceMarketOptions=SPOT)["InstanceId"]
        account.seen(made)
        account.cloud.preempt(made, notice_s=120)
        assert account.machines.preempted_at(made) == clock.now.replace(minute=2)
        assert account.seen(made)["State"]["Name"] == "running"
        clock.move(121)
        _until(lambda: account.cloud.state(made) == "terminated")
        seen = account.seen(made)
        assert seen["StateReason"]["Code"] == "Server.SpotInstanceTermination"
        requests = account.client("ec2").describe_spot_instance_requests()
        request = requests["SpotInstanceRequests"][0]
        assert request["State"] == "closed"
        assert request["Status"]["Code"] == "instance-terminated-no-capacity"
        assert account.cloud.alive() == []


@pytest.mark.parametrize(("behaviour", "state"), [("terminate", "terminated"), ("stop", "stopped")])
def test_a_guest_that_shuts_down_ends_as_it_was_told(
    account: Account, behaviour: str, state: str
) -> None:
    made = account.launch(InstanceInitiatedShutdownBehavior=behaviour)["InstanceId"]
    account.seen(made)
    account.machines.end(made)
    _until(lambda: account.cloud.state(made) == state)
    assert account.seen(made)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert bool(account.cloud.alive()) == (state == "stopped")


def test_what_is_not_deleted_with_the_instance_stays(account: Account) -> None:
    ec2 = account.client("ec2")
    disk = {"VolumeSize": 50, "VolumeType": "gp3", "DeleteOnTermination": False}
    nic = {"DeviceIndex": 0, "DeleteOnTermination": False}
    made = account.launch(
        BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": disk}], NetworkInterfaces=[nic]
    )["InstanceId"]
    ec2.allocate_address(Domain="vpc")
    ec2.create_key_pair(KeyName="ours", KeyType="ed25519")
    ec2.terminate_instances(InstanceIds=[made])
    _until(lambda: account.cloud.state(made) == "terminated")
    left = dict(account.cloud.alive())
    assert sorted(left) == ["address", "key-pair", "network-interface", "volume"]
    ec2.delete_volume(VolumeId=left["volume"])
    assert "volume" not in dict(account.cloud.alive())


def test_the_meter_follows_the_clouds_own_clock() -> None:
    clock = HandClock()
    with opened(NoMachines(boot_delay_s=NEVER_S), clock) as account:
        started = clock.now
        made = account.launch(InstanceMarketOptions=SPOT, SubnetId=account.subnet("us-east-1b"))
        clock.move(30)
        come_up(account, made["InstanceId"])
        _until(lambda: account.cloud.state(made["InstanceId"]) == "running")
        clock.move(100)
        account.client("ec2").terminate_instances(InstanceIds=[made["InstanceId"]])
        clock.move(10)
        lines = {line.kind: line for line in account.cloud.billing()}
        spent = {kind: (line.started_at, line.ended_at) for kind, line in lines.items()}
        ended = clock.now.replace(second=10)
        assert spent["instance"] == (started.replace(second=30), ended)
        assert spent["volume"] == spent["address"] == (started, ended)
        assert [lines[kind].item for kind in ("instance", "volume", "address")] == [
            "g5.xlarge",
            "gp3:45",
            "public-ipv4",
        ]
        assert (lines["instance"].market, lines["instance"].zone) == ("spot", "us-east-1b")


def test_a_reboot_and_the_console_reach_the_machine() -> None:
    with opened(NoMachines()) as account:
        ec2, made = account.client("ec2"), account.launch()["InstanceId"]
        assert made in ec2.get_console_output(InstanceId=made)["Output"]
        _until(lambda: account.cloud.state(made) == "running")
        account.machines.boot_delay_s = NEVER_S
        ec2.reboot_instances(InstanceIds=[made])
        assert not account.machines.is_up(made)
        assert account.cloud.state(made) == "running"
