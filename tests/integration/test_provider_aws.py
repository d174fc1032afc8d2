"""The provider aws, launching: real boto3 clients against an emulated AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    ConsoleLog,
    CredentialsError,
    Extent,
    Machine,
    MachineState,
    Offers,
    Provider,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
    SshAddress,
)
from orchestrator.domain.prices import Prices
from orchestrator.domain.quota import Quotas
from runners.aws import AwsProvider
from tests.integration.aws_world import (
    NOW,
    PLATFORM,
    TAGS,
    account,
    ask,
    calls,
    context,
    ec2,
    running,
)
from tests.lab.aws.codes import DROPPED, GATEWAY_PAGE, LOST, aws_fault
from tests.lab.aws_cloud import AwsCloud
from tests.lab.faults import Fault
from tests.platforms import as_platform
from tests.waiting import until


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def aws(cloud: AwsCloud) -> AwsProvider:
    return AwsProvider(context())


# what it is


def test_it_has_all_the_verbs_and_extras(aws: AwsProvider) -> None:
    provider: Provider = aws
    for extra in (Offers, Prices, Quotas, ConsoleLog):
        assert isinstance(provider, extra)


# launch


def test_a_launch_is_tagged_encrypted_and_ends_by_itself(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = aws.launch(ask(aws))
    assert (machine.token, machine.state) == ("a-1-1", MachineState.REQUESTED)
    assert machine.simulated
    found = ec2(cloud).describe_instances()["Reservations"][0]["Instances"][0]
    assert machine.id == f"us-east-1/{found['InstanceId']}"
    assert found["InstanceLifecycle"] == "spot"
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    (volume,) = ec2(cloud).describe_volumes()["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (150, "gp3", True)
    sent = next(call.details for call in cloud.calls if call.name == "RunInstances")
    assert sent["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert sent["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert sent["NetworkInterface.1.DeleteOnTermination"] == "true"
    assert sent["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert len(sent["ClientToken"]) == 64
    assert sent["ClientToken"].isascii()


def test_every_kind_of_resource_carries_every_tag(aws: AwsProvider, cloud: AwsCloud) -> None:
    aws.launch(ask(aws))
    sent = next(call.details for call in cloud.calls if call.name == "RunInstances")
    tagged: dict[str, dict[str, str]] = {}
    for n in range(1, 10):
        kind = sent.get(f"TagSpecification.{n}.ResourceType")
        if kind:
            tagged[kind] = {
                sent[f"TagSpecification.{n}.Tag.{m}.Key"]: sent[
                    f"TagSpecification.{n}.Tag.{m}.Value"
                ]
                for m in range(1, 20)
                if f"TagSpecification.{n}.Tag.{m}.Key" in sent
            }
    assert set(tagged) == {"instance", "volume", "network-interface", "spot-instances-request"}
    for tags in tagged.values():
        assert {**TAGS, "seatrial-token": "a-1-1"}.items() <= tags.items()


def test_what_is_ready_says_where_and_what_it_is(aws: AwsProvider, cloud: AwsCloud) -> None:
    machine = running(aws, cloud)
    assert machine.state is MachineState.READY
    assert isinstance(machine.endpoint, SshAddress)
    assert (machine.endpoint.user, machine.endpoint.port, machine.endpoint.host_key) == (
        "ubuntu",
        22,
        "",
    )
    assert machine.tags == {**TAGS, "seatrial-token": "a-1-1"}
    facts = machine.facts
    assert (facts["instance_type"], facts["zone"], facts["market"]) == (
        "g5.xlarge",
        "us-east-1a",
        "spot",
    )
    assert facts["image_id"].startswith("ami-")
    assert "PyTorch 2.12" in facts["image_name"]
    assert facts["image_created"].startswith("2026-10-09")
    assert facts["instance_id"] in machine.id


def test_the_same_token_is_the_same_machine_in_any_process(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    first = aws.launch(ask(aws))
    again = AwsProvider(context())
    assert again.launch(ask(again)).id == first.id
    assert again.launch(ask(again, place=1)).id == first.id
    assert [kind for kind, _ in cloud.alive()].count("instance") == 1


@pytest.mark.parametrize("fault", [LOST, aws_fault("InternalError", after=True)])
def test_a_lost_answer_costs_one_machine_and_no_second(
    aws: AwsProvider, cloud: AwsCloud, fault: Fault
) -> None:
    cloud.invisible_for_looks = 3
    cloud.faults.script("RunInstances", [fault])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    machine = aws.launch(request)
    assert calls(cloud, "RunInstances")[-1] == "ok"
    assert [kind for kind, _ in cloud.alive()].count("instance") == 1
    cloud.invisible_for_looks = 0
    assert [one.id for one in eventually_all(aws) if one.kind == "machine"] == [machine.id]


def eventually_all(aws: AwsProvider) -> tuple[Machine, ...]:
    for _ in range(5):
        found = tuple(aws.inventory())
        if any(one.kind == "machine" for one in found):
            return found
    raise AssertionError("the instance never showed")


def test_a_repeated_request_is_the_same_to_the_last_byte(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.script("RunInstances", [DROPPED])
    with pytest.raises(ProviderUnavailableError):
        aws.launch(ask(aws))
    later = AwsProvider(context(NOW + timedelta(minutes=3)))
    later.launch(ask(later))
    first, second = (call for call in cloud.calls if call.name == "RunInstances")
    assert first.details == second.details


def test_another_image_under_the_same_token_finds_the_machine(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.invisible_for_looks = 1
    cloud.faults.script("RunInstances", [LOST])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    changed = replace(request, platform=as_platform({**PLATFORM, "disk_gb": 200}))
    machine = aws.launch(changed)  # invisible by its tag, then found by its token
    assert calls(cloud, "RunInstances") == ["dropped", "IdempotentParameterMismatch"]
    assert machine.token == request.token


def test_a_mismatch_that_nobody_can_see_is_a_refusal_of_the_place(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    """The cell believes it once the inventory has shown no machine of the token for a while."""
    cloud.invisible_for_looks = 9
    cloud.faults.script("RunInstances", [LOST])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    with pytest.raises(CapacityError, match="no instance with this token is visible"):
        aws.launch(replace(request, platform=as_platform({**PLATFORM, "disk_gb": 200})))


def test_a_token_that_a_failed_call_has_used_up_leads_to_the_next_place(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    """The answer is lost, and the call had failed: EC2 remembers its token all the same."""
    cloud.faults.script("RunInstances", [aws_fault("InternalError")])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    changed = replace(request, platform=as_platform({**PLATFORM, "disk_gb": 200}))
    with pytest.raises(CapacityError) as caught:
        aws.launch(changed)
    assert (caught.value.code, caught.value.extent) == (
        "IdempotentParameterMismatch",
        Extent.PLACE,
    )
    assert aws.launch(request).token == request.token, "the same request may be repeated"


def test_a_token_of_an_instance_that_is_over_finds_its_end(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    """The answer is lost, EC2 takes the spot instance, and the call is made again."""
    cloud.invisible_for_looks = 1
    cloud.faults.script("RunInstances", [LOST])
    request = ask(aws)
    with pytest.raises(ProviderUnavailableError):
        aws.launch(request)
    [made] = [key for kind, key in cloud.alive() if kind == "instance"]
    cloud.preempt(made, notice_s=0)
    until(lambda: cloud.state(made) == "terminated")
    found = aws.launch(request)  # invisible by its tag, then found by its token
    assert (found.state, found.ended) == (MachineState.TERMINATED, "preempted")
    assert calls(cloud, "RunInstances")[-1] == "IdempotentInstanceTerminated"


def test_each_zone_has_a_token_of_its_own(aws: AwsProvider, cloud: AwsCloud) -> None:
    cloud.faults.script("RunInstances", [aws_fault("InsufficientInstanceCapacity")] * 2)
    for place in (0, 1):
        with pytest.raises(CapacityError):
            aws.launch(ask(aws, place=place))
    first, second = (call.key for call in cloud.calls if call.name == "RunInstances")
    assert first != second


# refusals


@pytest.mark.parametrize(
    ("code", "error", "extent"),
    [
        ("InsufficientInstanceCapacity", CapacityError, Extent.PLACE),
        ("MaxSpotInstanceCountExceeded", QuotaError, Extent.MARKET),
        ("RequestLimitExceeded", ProviderUnavailableError, None),
        ("UnauthorizedOperation", CredentialsError, Extent.REGION),
        ("InvalidAMIID.NotFound", ConfigError, Extent.REGION),
        ("InvalidParameterCombination", ConfigError, None),
    ],
)
def test_a_refusal_is_typed_and_asked_for_once(
    aws: AwsProvider,
    cloud: AwsCloud,
    code: str,
    error: type[ProviderError],
    extent: Extent | None,
) -> None:
    cloud.refuse("RunInstances", code)
    with pytest.raises(error) as refused:
        aws.launch(ask(aws))
    assert calls(cloud, "RunInstances") == [code]
    assert refused.value.code == code
    assert extent in (None, refused.value.extent)
    for word in ("RunInstances", "g5.xlarge", "spot", "us-east-1a", code):
        assert word in str(refused.value)
    assert not [kind for kind, _ in cloud.alive() if kind == "instance"]


@pytest.mark.parametrize("fault", [DROPPED, GATEWAY_PAGE])
def test_no_answer_is_no_refusal(aws: AwsProvider, cloud: AwsCloud, fault: Fault) -> None:
    cloud.faults.script("RunInstances", [fault])
    with pytest.raises(ProviderUnavailableError):
        aws.launch(ask(aws))
    assert len(calls(cloud, "RunInstances")) == 1


def test_a_throttled_launch_goes_through_with_the_same_token(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    cloud.refuse("RunInstances", "RequestLimitExceeded", "Throttling")
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError, match="again later"):
            aws.launch(ask(aws))
    aws.launch(ask(aws))
    assert len({call.key for call in cloud.calls if call.name == "RunInstances"}) == 1


def test_expired_credentials_are_read_again_once(aws: AwsProvider, cloud: AwsCloud) -> None:
    request = ask(aws)
    cloud.refuse("RunInstances", "ExpiredToken")
    assert aws.launch(request).state is MachineState.REQUESTED
    assert calls(cloud, "RunInstances") == ["ExpiredToken", "ok"]


def test_expired_credentials_that_stay_expired_stop(aws: AwsProvider, cloud: AwsCloud) -> None:
    request = ask(aws)
    cloud.faults.always("RunInstances", aws_fault("ExpiredToken"))
    with pytest.raises(CredentialsError, match="ExpiredToken"):
        aws.launch(request)
    assert len(calls(cloud, "RunInstances")) == 2


def test_nobody_at_all_is_told_where_credentials_come_from(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError, match="configure credentials"):
        AwsProvider(context()).places(as_platform(PLATFORM))
    assert not cloud.calls


def test_a_machine_is_never_launched_without_a_way_in_and_an_end(
    aws: AwsProvider, cloud: AwsCloud
) -> None:
    with pytest.raises(ConfigError, match="a login and a time to end"):
        aws.launch(replace(ask(aws), login=None))
    with pytest.raises(ConfigError, match="a login and a time to end"):
        aws.launch(replace(ask(aws), expires_at=None))
    assert not calls(cloud, "RunInstances")


def test_an_endpoint_that_is_none_is_a_fault_of_the_settings(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL"):
        AwsProvider(context()).places(as_platform(PLATFORM))


def test_without_a_network_nothing_is_known(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailableError, match="had no usable answer: Could not connect"):
        AwsProvider(context()).places(as_platform(PLATFORM))
    with pytest.raises(ProviderUnavailableError, match="may have been carried out"):
        AwsProvider(context()).terminate("us-east-1/i-0abc")
