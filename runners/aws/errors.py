"""What EC2's error codes mean: which error each becomes, and how far it reaches.

The message of an error is for people and changes; only its code is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What to do about a code."""

    error: type[ProviderError]
    extent: Extent
    advice: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error, as EC2 gave it."""

    code: str
    words: str
    request_id: str = ""
    status: int = 400


_NONE_LEFT = Meaning(CapacityError, Extent.PLACE, "the next place is tried")
_NEVER_HERE = Meaning(CapacityError, Extent.PLACE, "the zone does not have this type so")
_TOO_CHEAP = Meaning(CapacityError, Extent.PLACE, "the spot price is above the on-demand price")
_NO_ADDRESS = Meaning(QuotaError, Extent.ZONE, "the subnet has no free address: use another zone")
_VCPUS = Meaning(
    QuotaError, Extent.MARKET, "`seatrial plan` shows the limit; ask Service Quotas for more"
)
_OTHER_LIMIT = Meaning(
    QuotaError, Extent.REGION, "delete what is not needed there, or ask Service Quotas for more"
)
_AGAIN = Meaning(ProviderUnavailableError, Extent.PLACE, "the same call is made again later")
_NOBODY = Meaning(
    CredentialsError,
    Extent.PROJECT,
    "check the credentials (`aws sts get-caller-identity`) and this computer's clock",
)
_NOT_ALLOWED = Meaning(
    CredentialsError,
    Extent.PROJECT,
    "the credentials lack a permission; `aws sts decode-authorization-message` names it",
)
_NOT_THERE = Meaning(
    CredentialsError,
    Extent.REGION,
    "the region may not be enabled for the account, or this computer's clock is wrong",
)
_ACCOUNT = Meaning(CredentialsError, Extent.PROJECT, "AWS Support decides about the account")
_WRONG = Meaning(ConfigError, Extent.PLACE, "correct the platform's keys in the matrix")
_WRONG_IMAGE = Meaning(ConfigError, Extent.REGION, "correct the platform's image")

_MEANINGS: tuple[tuple[Meaning, str], ...] = (
    (
        _NONE_LEFT,
        (
            "InsufficientInstanceCapacity InsufficientHostCapacity UnfulfillableCapacity"
            " InsufficientReservedInstanceCapacity InsufficientCapacity ReservationCapacityExceeded"
        ),
    ),
    (_NEVER_HERE, "Unsupported"),
    (_TOO_CHEAP, "SpotMaxPriceTooLow"),
    (_NO_ADDRESS, "InsufficientFreeAddressesInSubnet"),
    (_VCPUS, "MaxSpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded"),
    (
        _OTHER_LIMIT,
        (
            "VolumeLimitExceeded MaxIOPSLimitExceeded AddressLimitExceeded"
            " SecurityGroupLimitExceeded VpcLimitExceeded"
        ),
    ),
    (
        _AGAIN,
        (
            "RequestLimitExceeded Throttling ThrottlingException RequestThrottled"
            " EC2ThrottledException TooManyRequestsException"
            " InternalError InternalFailure ServerInternal ServiceUnavailable Unavailable"
            " RequestTimeout"
            # Not visible yet, or still in use: neither is an answer.
            " InvalidInstanceID.NotFound IncorrectInstanceState DependencyViolation VolumeInUse"
            " InvalidNetworkInterface.InUse InvalidAddress.InUse"
        ),
    ),
    (
        _NOBODY,
        (
            "InvalidClientTokenId UnrecognizedClientException ExpiredToken ExpiredTokenException"
            " RequestExpired SignatureDoesNotMatch InvalidAccessKeyId MissingAuthenticationToken"
            " IncompleteSignature"
        ),
    ),
    (_NOT_ALLOWED, "UnauthorizedOperation AccessDenied AccessDeniedException"),
    (_NOT_THERE, "AuthFailure OptInRequired PendingVerification"),
    (_ACCOUNT, "Blocked"),
    (_WRONG_IMAGE, "InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidAMIID.Malformed"),
    (
        _WRONG,
        (
            "InvalidParameterValue InvalidParameterCombination InvalidSubnetID.NotFound"
            " InvalidGroup.NotFound InvalidKeyPair.NotFound InvalidInstanceType MissingParameter"
            " IdempotentParameterMismatch"
        ),
    ),
)
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
TABLE: Mapping[str, Meaning] = {
    code: meaning for meaning, codes in _MEANINGS for code in codes.split()
}

ENDED: Mapping[str, str] = {
    "Server.SpotInstanceTermination": "preempted",
    "Server.SpotInstanceShutdown": "preempted",
    "Server.InsufficientInstanceCapacity": "capacity",
    "Client.VolumeLimitExceeded": "quota",
    "Client.InstanceInitiatedShutdown": "deadline",
    "Client.UserInitiatedShutdown": "",
}
"""Why an instance ended, by its state reason; every other reason is ``failed``."""


def meaning_of(code: str, status: int = HTTPStatus.BAD_REQUEST) -> Meaning:
    """What a code means; for an unknown one, what its words and its HTTP status suggest."""
    known = TABLE.get(code)
    if known is not None:
        return known
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return _AGAIN
    for part, meaning in (
        ("Throttl", _AGAIN),
        ("Capacity", _NONE_LEFT),
        ("LimitExceeded", _OTHER_LIMIT),
        ("AccessDenied", _NOT_ALLOWED),
        ("AMIID", _WRONG_IMAGE),
    ):
        if part in code:
            return meaning
    return _NOT_ALLOWED if status in _REFUSED else _WRONG


def error_of(refusal: Refusal, *, asked: str) -> ProviderError:
    """The error to raise.

    Args:
        refusal: What EC2 answered.
        asked: What was asked and where: ``RunInstances g5.xlarge spot in us-east-1a``.
    """
    meaning = meaning_of(refusal.code, refusal.status)
    request = f" [request {refusal.request_id}]" if refusal.request_id else ""
    words = refusal.words.strip().rstrip(".")
    said = f"{refusal.code}: {words}" if words else refusal.code
    return meaning.error(
        f"{asked} was refused: {said}{request}; {meaning.advice}",
        code=refusal.code,
        extent=meaning.extent,
    )


def ended_by(reason_code: str) -> str:
    """Why an instance ended by itself; empty where we ended it, or where nothing is said."""
    return ENDED.get(reason_code, "failed") if reason_code else ""
