"""Maps EC2's error codes to provider errors with their extent.

The message of an error is for people and may change: it is read only for codes in `_BY_WORDS`,
which have two meanings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    ErrorRule,
    Extent,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.provider_context import plain_words


@dataclass(frozen=True, slots=True)
class Ec2Refusal:
    """An error answer of EC2."""

    code: str
    words: str
    request_id: str = ""
    status: int = 400


_NO_CAPACITY = ErrorRule(CapacityError, Extent.PLACE, "the next place is tried")
_UNSUPPORTED = ErrorRule(
    CapacityError, Extent.PLACE, "the zone does not offer this type in this form"
)
_SPOT_PRICE_TOO_LOW = ErrorRule(
    CapacityError, Extent.PLACE, "the spot price is above the on-demand price"
)
_NO_FREE_ADDRESS = ErrorRule(
    QuotaError, Extent.ZONE, "the subnet has no free address: use another zone"
)
_VCPU_LIMIT = ErrorRule(
    QuotaError, Extent.MARKET, "`seatrial plan` shows the limit; ask Service Quotas for more"
)
_RESOURCE_LIMIT = ErrorRule(
    QuotaError, Extent.REGION, "delete what is not needed there, or ask Service Quotas for more"
)
_TRANSIENT = ErrorRule(ProviderUnavailableError, Extent.PLACE, "the same call is made again later")
_BAD_CREDENTIALS = ErrorRule(
    CredentialsError,
    Extent.PROJECT,
    "check the credentials (`aws sts get-caller-identity`) and this computer's clock",
)
_NO_PERMISSION = ErrorRule(
    CredentialsError, Extent.PROJECT, "the credentials lack a permission: see docs/how-to/clouds.md"
)
# A policy of the organisation may deny some regions and leave others.
_NO_PERMISSION_IN_REGION = ErrorRule(
    CredentialsError,
    Extent.REGION,
    "the credentials lack a permission, or a policy denies the region; `aws sts "
    "decode-authorization-message` says which",
)
_NO_SPOT_ROLE = ErrorRule(
    CredentialsError,
    Extent.MARKET,
    "make the role of spot instances once, with an administrator's credentials: `aws iam "
    "create-service-linked-role --aws-service-name spot.amazonaws.com`",
)
_FREE_PLAN = ErrorRule(
    CredentialsError,
    Extent.PROJECT,
    "upgrade the account to the paid plan: its free plan has no GPU instances",
)
_REGION_NOT_ENABLED = ErrorRule(
    CredentialsError,
    Extent.REGION,
    "the region may not be enabled for the account, or this computer's clock is wrong",
)
_ACCOUNT_BLOCKED = ErrorRule(
    CredentialsError, Extent.PROJECT, "AWS Support decides about the account"
)
_INVALID_REQUEST = ErrorRule(ConfigError, Extent.PLACE, "correct the platform's keys in the matrix")
_INVALID_IMAGE = ErrorRule(ConfigError, Extent.REGION, "correct the platform's image")

DENIED = "UnauthorizedOperation"
"""EC2's code for a missing permission, or a policy that denies the region."""
_RULES: tuple[tuple[ErrorRule, str], ...] = (
    (
        _NO_CAPACITY,
        (
            "InsufficientInstanceCapacity InsufficientHostCapacity UnfulfillableCapacity"
            " InsufficientReservedInstanceCapacity InsufficientCapacity ReservationCapacityExceeded"
        ),
    ),
    (_UNSUPPORTED, "Unsupported"),
    (_SPOT_PRICE_TOO_LOW, "SpotMaxPriceTooLow"),
    (_NO_FREE_ADDRESS, "InsufficientFreeAddressesInSubnet"),
    (_VCPU_LIMIT, "MaxSpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded"),
    (
        _RESOURCE_LIMIT,
        (
            "VolumeLimitExceeded MaxIOPSLimitExceeded AddressLimitExceeded"
            " SecurityGroupLimitExceeded VpcLimitExceeded"
        ),
    ),
    (
        _TRANSIENT,
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
        _BAD_CREDENTIALS,
        (
            "InvalidClientTokenId UnrecognizedClientException ExpiredToken ExpiredTokenException"
            " RequestExpired SignatureDoesNotMatch InvalidAccessKeyId MissingAuthenticationToken"
            " IncompleteSignature"
        ),
    ),
    (_NO_PERMISSION, "AccessDenied AccessDeniedException"),
    (_NO_PERMISSION_IN_REGION, DENIED),
    (_NO_SPOT_ROLE, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
    (_REGION_NOT_ENABLED, "AuthFailure OptInRequired PendingVerification"),
    (_ACCOUNT_BLOCKED, "Blocked"),
    (_INVALID_IMAGE, "InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidAMIID.Malformed"),
    (
        _INVALID_REQUEST,
        (
            "InvalidParameterValue InvalidParameterCombination InvalidSubnetID.NotFound"
            " InvalidGroup.NotFound InvalidKeyPair.NotFound InvalidInstanceType MissingParameter"
            " IdempotentParameterMismatch IdempotentInstanceTerminated"
        ),
    ),
)
_BY_WORDS = (
    (
        "InvalidParameterCombination",
        re.compile("not eligible for free tier", re.IGNORECASE),
        _FREE_PLAN,
    ),
)
"""Rows of code, words in the message, and the rule for both."""
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
TABLE: Mapping[str, ErrorRule] = {code: rule for rule, codes in _RULES for code in codes.split()}

BY_GUEST = "Client.InstanceInitiatedShutdown"
ENDED: Mapping[str, str] = {
    "Server.SpotInstanceTermination": "preempted",
    "Server.SpotInstanceShutdown": "preempted",
    "Server.InsufficientInstanceCapacity": "capacity",
    "Client.VolumeLimitExceeded": "quota",
    BY_GUEST: "deadline",
    "Client.UserInitiatedShutdown": "",
}
"""Causes of an instance's end, by its state reason; every other reason is ``failed``."""


def error_rule(code: str, status: int = HTTPStatus.BAD_REQUEST, words: str = "") -> ErrorRule:
    """Return the rule of a code and message; parts and status classify an unknown code."""
    for spoken, pattern, rule in _BY_WORDS:
        if code == spoken and pattern.search(words):
            return rule
    known = TABLE.get(code)
    if known is not None:
        return known
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return _TRANSIENT
    for part, rule in (
        ("Throttl", _TRANSIENT),
        ("Capacity", _NO_CAPACITY),
        ("LimitExceeded", _RESOURCE_LIMIT),
        ("AccessDenied", _NO_PERMISSION),
        ("AMIID", _INVALID_IMAGE),
    ):
        if part in code:
            return rule
    return _NO_PERMISSION if status in _REFUSED else _INVALID_REQUEST


def error_of(refusal: Ec2Refusal, *, requested: str) -> ProviderError:
    """Return the error to raise.

    Args:
        refusal: EC2's answer.
        requested: The request and its place: ``RunInstances g5.xlarge spot in us-east-1a``.
    """
    rule = error_rule(refusal.code, refusal.status, refusal.words)
    request = f" [request {refusal.request_id}]" if refusal.request_id else ""
    words = plain_words(refusal.words).rstrip(".")
    said = f"{refusal.code}: {words}" if words else refusal.code
    return rule.error(
        f"{requested} was refused: {said}{request}; {rule.advice}",
        code=refusal.code,
        extent=rule.extent,
    )


def ended_by(reason_code: str) -> str:
    """Return why an instance ended by itself; empty if Seatrial ended it, or without a reason."""
    return ENDED.get(reason_code, "failed") if reason_code else ""
