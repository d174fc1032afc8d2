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
from runners.aws.errors import ENDED, TABLE, Refusal, ended_by, error_of, meaning_of

# Written out by code, as the EC2 reference lists them: the table groups them the other way round.
EXPECTED: dict[str, tuple[type[ProviderError], Extent]] = {
    "InsufficientInstanceCapacity": (CapacityError, Extent.PLACE),
    "InsufficientHostCapacity": (CapacityError, Extent.PLACE),
    "InsufficientReservedInstanceCapacity": (CapacityError, Extent.PLACE),
    "UnfulfillableCapacity": (CapacityError, Extent.PLACE),
    "InsufficientCapacity": (CapacityError, Extent.PLACE),
    "ReservationCapacityExceeded": (CapacityError, Extent.PLACE),
    "Unsupported": (CapacityError, Extent.PLACE),
    "SpotMaxPriceTooLow": (CapacityError, Extent.PLACE),
    "MaxSpotInstanceCountExceeded": (QuotaError, Extent.MARKET),
    "VcpuLimitExceeded": (QuotaError, Extent.MARKET),
    "InstanceLimitExceeded": (QuotaError, Extent.MARKET),
    "VolumeLimitExceeded": (QuotaError, Extent.REGION),
    "MaxIOPSLimitExceeded": (QuotaError, Extent.REGION),
    "AddressLimitExceeded": (QuotaError, Extent.REGION),
    "InsufficientFreeAddressesInSubnet": (QuotaError, Extent.ZONE),
    "SecurityGroupLimitExceeded": (QuotaError, Extent.REGION),
    "VpcLimitExceeded": (QuotaError, Extent.REGION),
    "RequestLimitExceeded": (ProviderUnavailableError, Extent.PLACE),
    "Throttling": (ProviderUnavailableError, Extent.PLACE),
    "ThrottlingException": (ProviderUnavailableError, Extent.PLACE),
    "RequestThrottled": (ProviderUnavailableError, Extent.PLACE),
    "EC2ThrottledException": (ProviderUnavailableError, Extent.PLACE),
    "TooManyRequestsException": (ProviderUnavailableError, Extent.PLACE),
    "InternalError": (ProviderUnavailableError, Extent.PLACE),
    "InternalFailure": (ProviderUnavailableError, Extent.PLACE),
    "ServerInternal": (ProviderUnavailableError, Extent.PLACE),
    "ServiceUnavailable": (ProviderUnavailableError, Extent.PLACE),
    "Unavailable": (ProviderUnavailableError, Extent.PLACE),
    "RequestTimeout": (ProviderUnavailableError, Extent.PLACE),
    "IdempotentParameterMismatch": (ConfigError, Extent.PLACE),
    "AuthFailure": (CredentialsError, Extent.REGION),
    "UnauthorizedOperation": (CredentialsError, Extent.PROJECT),
    "InvalidClientTokenId": (CredentialsError, Extent.PROJECT),
    "UnrecognizedClientException": (CredentialsError, Extent.PROJECT),
    "ExpiredToken": (CredentialsError, Extent.PROJECT),
    "ExpiredTokenException": (CredentialsError, Extent.PROJECT),
    "RequestExpired": (CredentialsError, Extent.PROJECT),
    "SignatureDoesNotMatch": (CredentialsError, Extent.PROJECT),
    "InvalidAccessKeyId": (CredentialsError, Extent.PROJECT),
    "MissingAuthenticationToken": (CredentialsError, Extent.PROJECT),
    "IncompleteSignature": (CredentialsError, Extent.PROJECT),
    "OptInRequired": (CredentialsError, Extent.REGION),
    "Blocked": (CredentialsError, Extent.PROJECT),
    "PendingVerification": (CredentialsError, Extent.REGION),
    "AccessDenied": (CredentialsError, Extent.PROJECT),
    "AccessDeniedException": (CredentialsError, Extent.PROJECT),
    "InvalidAMIID.NotFound": (ConfigError, Extent.REGION),
    "InvalidAMIID.Unavailable": (ConfigError, Extent.REGION),
    "InvalidAMIID.Malformed": (ConfigError, Extent.REGION),
    "InvalidParameterValue": (ConfigError, Extent.PLACE),
    "InvalidParameterCombination": (ConfigError, Extent.PLACE),
    "InvalidSubnetID.NotFound": (ConfigError, Extent.PLACE),
    "InvalidGroup.NotFound": (ConfigError, Extent.PLACE),
    "InvalidKeyPair.NotFound": (ConfigError, Extent.PLACE),
    "InvalidInstanceType": (ConfigError, Extent.PLACE),
    "MissingParameter": (ConfigError, Extent.PLACE),
    "InvalidInstanceID.NotFound": (ProviderUnavailableError, Extent.PLACE),
    "IncorrectInstanceState": (ProviderUnavailableError, Extent.PLACE),
    "DependencyViolation": (ProviderUnavailableError, Extent.PLACE),
    "VolumeInUse": (ProviderUnavailableError, Extent.PLACE),
    "InvalidNetworkInterface.InUse": (ProviderUnavailableError, Extent.PLACE),
    "InvalidAddress.InUse": (ProviderUnavailableError, Extent.PLACE),
}


@pytest.mark.parametrize("code", sorted(EXPECTED))
def test_every_code_has_its_error(code: str) -> None:
    error = error_of(Refusal(code, "words"), asked="RunInstances in us-east-1a")
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
    assert meaning_of(code, status).error is error


def test_the_message_is_for_a_person() -> None:
    refusal = Refusal("VcpuLimitExceeded", "Your limit is 4.", "req-1")
    error = error_of(refusal, asked="RunInstances g5.xlarge on-demand in us-east-1a")
    assert str(error) == (
        "RunInstances g5.xlarge on-demand in us-east-1a was refused: VcpuLimitExceeded: Your limit "
        "is 4 [request req-1]; `seatrial plan` shows the limit; ask Service Quotas for more"
    )


def test_the_sentence_of_a_refusal_is_never_read() -> None:
    quota = Refusal("InsufficientInstanceCapacity", "VcpuLimitExceeded, your quota is 0")
    assert type(error_of(quota, asked="x")) is CapacityError


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
