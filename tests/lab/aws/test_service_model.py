"""The emulated AWS refuses what the services' own descriptions do not have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.aws.account import SPOT, Account, HandClock, opened, refused


@pytest.fixture
def account() -> Iterator[Account]:
    with opened() as each:
        yield each


def sent(account: Account, **changed: Any) -> str:
    """The code that RunInstances is refused with once the wire has these; "ok" where it is not."""
    ec2 = account.client("ec2")

    def change(params: dict[str, Any], **_: Any) -> None:
        for key, value in changed.items():
            name = key.replace("__", ".")
            params["body"].pop(name, None)
            if value is not None:
                params["body"][name] = value

    ec2.meta.events.register("before-call.ec2.RunInstances", change)
    try:
        ec2.run_instances(**account.order(InstanceMarketOptions=SPOT))
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "ok"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, "ok"),
        ({"InstanceTyp": "g5.xlarge"}, "UnknownParameter"),
        ({"MetadataOptions__HttpToken": "required"}, "UnknownParameter"),
        ({"MetadataOptions__HttpTokens": "mandatory"}, "InvalidParameterValue"),
        ({"TagSpecification__1__ResourceType": "machine"}, "InvalidParameterValue"),
        ({"TagSpecifications__1__ResourceType": "instance"}, "UnknownParameter"),
        ({"NetworkInterface__x__SubnetId": "subnet-1"}, "UnknownParameter"),
        ({"InstanceMarketOptions__SpotOptions__SpotInstanceType": "once"}, "InvalidParameterValue"),
        ({"InstanceInitiatedShutdownBehavior": "delete"}, "InvalidParameterValue"),
        ({"MaxCount": "one"}, "InvalidParameterValue"),
        ({"MaxCount": None}, "MissingParameter"),
    ],
)
def test_a_launch_is_held_against_the_description_of_ec2(
    account: Account, changed: dict[str, Any], code: str
) -> None:
    assert sent(account, **changed) == code


def test_a_service_of_json_is_held_against_its_description(account: Account) -> None:
    quotas = account.client("service-quotas")

    def misspell(params: dict[str, Any], **_: Any) -> None:
        params["body"] = params["body"].replace(b"QuotaCode", b"QuotaCod")

    quotas.meta.events.register("before-call.service-quotas.GetServiceQuota", misspell)
    with pytest.raises(ClientError, match="ValidationException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")


def test_a_call_that_failed_has_used_its_token_and_a_throttled_one_has_not(
    account: Account,
) -> None:
    for code, is_remembered in (("InsufficientInstanceCapacity", True), ("Throttling", False)):
        account.cloud.refuse("RunInstances", code)
        with refused(code):
            account.launch(ClientToken=code)
        if is_remembered:
            with refused("IdempotentParameterMismatch"):
                account.launch(ClientToken=code, InstanceType="g6.xlarge")
        account.launch(ClientToken=code, InstanceType="g5.xlarge")


def test_a_token_of_a_terminated_instance_is_refused(account: Account) -> None:
    made = account.launch(ClientToken="t")["InstanceId"]
    account.client("ec2").terminate_instances(InstanceIds=[made])
    while account.cloud.state(made) != "terminated":
        time.sleep(0.02)
    with refused("IdempotentInstanceTerminated"):
        account.launch(ClientToken="t")


def test_a_burst_of_launches_is_throttled_and_the_bucket_fills_again() -> None:
    clock = HandClock()
    with opened(clock=clock, is_throttled=True) as account:
        answers = [launched(account) for _ in range(7)]
        assert answers == ["ok"] * 5 + ["RequestLimitExceeded"] * 2
        clock.move(1)
        assert [launched(account) for _ in range(3)] == ["ok", "ok", "RequestLimitExceeded"]
        assert account.client("ec2").describe_instances()["Reservations"]


def launched(account: Account) -> str:
    try:
        account.launch(InstanceType="t3.micro")
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "ok"
