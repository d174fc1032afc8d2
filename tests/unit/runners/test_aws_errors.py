"""Every code of EC2 that a launch can meet, and what it becomes."""

from __future__ import annotations

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.aws.errors import ENDED, TABLE, Ec2Refusal, ended_by, error_of, error_rule

MEANINGS = (
    (CapacityError, Extent.PLACE,
     ("InsufficientInstanceCapacity InsufficientHostCapacity "
      "InsufficientReservedInstanceCapacity UnfulfillableCapacity InsufficientCapacity "
      "ReservationCapacityExceeded Unsupported SpotMaxPriceTooLow")),
    (QuotaError, Extent.MARKET,
     "MaxSpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded"),
    (QuotaError, Extent.REGION,
     ("VolumeLimitExceeded MaxIOPSLimitExceeded AddressLimitExceeded "
      "SecurityGroupLimitExceeded VpcLimitExceeded")),
    (QuotaError, Extent.ZONE,
     "InsufficientFreeAddressesInSubnet"),
    (ProviderUnavailableError, Extent.PLACE,
     ("RequestLimitExceeded Throttling ThrottlingException RequestThrottled "
      "EC2ThrottledException TooManyRequestsException InternalError InternalFailure "
      "ServerInternal ServiceUnavailable Unavailable RequestTimeout "
      "InvalidInstanceID.NotFound IncorrectInstanceState DependencyViolation VolumeInUse "
      "InvalidNetworkInterface.InUse InvalidAddress.InUse")),
    (ConfigError, Extent.PLACE,
     ("IdempotentParameterMismatch IdempotentInstanceTerminated "
      "InvalidParameterValue InvalidParameterCombination "
      "InvalidSubnetID.NotFound InvalidGroup.NotFound InvalidKeyPair.NotFound "
      "InvalidInstanceType MissingParameter")),
    (CredentialsError, Extent.REGION,
     "AuthFailure OptInRequired PendingVerification UnauthorizedOperation"),
    (CredentialsError, Extent.MARKET,
     "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
    (CredentialsError, Extent.PROJECT,
     ("InvalidClientTokenId UnrecognizedClientException ExpiredToken "
      "ExpiredTokenException RequestExpired SignatureDoesNotMatch InvalidAccessKeyId "
      "MissingAuthenticationToken IncompleteSignature Blocked AccessDenied "
      "AccessDeniedException")),
    (ConfigError, Extent.REGION,
     "InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidAMIID.Malformed"),
)  # fmt: skip
EXPECTED = {code: (kind, extent) for kind, extent, codes in MEANINGS for code in codes.split()}


@pytest.mark.parametrize("code", sorted(EXPECTED))
def test_every_code_has_its_error(code: str) -> None:
    error = error_of(Ec2Refusal(code, "words"), requested="RunInstances in us-east-1a")
    assert (type(error), error.extent, error.code) == (*EXPECTED[code], code)


def test_no_code_is_left_out() -> None:
    assert set(TABLE) == set(EXPECTED)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("SomethingNew", 500, ProviderUnavailableError),
        ("SomethingNew", 503, ProviderUnavailableError),
        ("SomethingNew", 408, ProviderUnavailableError),
        ("SomethingNew", 429, ProviderUnavailableError),
        ("SomethingNew", 403, CredentialsError),
        ("SomethingNew", 400, ConfigError),
        ("", 502, ProviderUnavailableError),
        ("InsufficientSomethingCapacity", 400, CapacityError),
        ("SnapshotLimitExceeded", 400, QuotaError),
        ("ThrottledSomehow", 400, ProviderUnavailableError),
        ("SomeThrottling", 400, ProviderUnavailableError),
        ("AccessDeniedForReasons", 400, CredentialsError),
        ("InvalidAMIID.Sulking", 400, ConfigError),
    ],
)
def test_an_unknown_code_is_taken_by_its_words_and_status(
    code: str, status: int, error: type[ProviderError]
) -> None:
    assert error_rule(code, status).error is error


def test_the_message_is_for_a_person() -> None:
    refusal = Ec2Refusal("VcpuLimitExceeded", "Your limit is 4.", "req-1")
    error = error_of(refusal, requested="RunInstances g5.xlarge on-demand in us-east-1a")
    assert str(error) == (
        "RunInstances g5.xlarge on-demand in us-east-1a was refused: VcpuLimitExceeded: Your limit "
        "is 4 [request req-1]; `seatrial plan` shows the limit; ask Service Quotas for more"
    )


def test_an_account_without_the_role_of_spot_says_how_to_make_it() -> None:
    # github.com/runs-on/runs-on/issues/233
    refusal = Ec2Refusal(
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "The provided credentials do not have permission to create the service-linked role for "
        "EC2 Spot Instances.",
    )
    error = error_of(refusal, requested="RunInstances g5.xlarge spot in us-east-1a")
    assert "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com" in str(error)


def test_a_type_outside_the_free_plan_is_the_accounts_matter() -> None:
    refusal = Ec2Refusal(
        "InvalidParameterCombination",
        "The specified instance type is not eligible for Free Tier. For a list of Free Tier "
        "instance types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'.",
    )
    error = error_of(refusal, requested="RunInstances g5.xlarge on-demand in us-east-1a")
    assert (type(error), error.extent) == (CredentialsError, Extent.PROJECT)
    assert "upgrade the account to the paid plan" in str(error)


def test_the_sentence_of_a_refusal_is_not_read_for_other_codes() -> None:
    quota = Ec2Refusal("InsufficientInstanceCapacity", "VcpuLimitExceeded, your quota is 0")
    assert type(error_of(quota, requested="x")) is CapacityError


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("Server.SpotInstanceTermination", "preempted"),
        ("Server.SpotInstanceShutdown", "preempted"),
        ("Server.InsufficientInstanceCapacity", "capacity"),
        ("Client.VolumeLimitExceeded", "quota"),
        ("Client.InstanceInitiatedShutdown", "deadline"),
        ("Client.UserInitiatedShutdown", ""),
        ("Server.InternalError", "failed"),
        ("Server.ScheduledStop", "failed"),
        ("Client.InternalError", "failed"),
        ("Client.InvalidSnapshot.NotFound", "failed"),
        ("Client.SomethingNew", "failed"),
        ("", ""),
    ],
)
def test_every_reason_of_an_end(code: str, ended: str) -> None:
    assert ended_by(code) == ended


def test_reasons_are_words_of_the_domain() -> None:
    assert set(ENDED.values()) <= {"preempted", "capacity", "quota", "deadline", "failed", ""}
