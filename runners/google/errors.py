"""Maps Compute Engine's error codes to provider errors with their extent.

Pure functions: `runners.google.responses` reads the client library's exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    ErrorRule,
    Extent,
    NotOfferedError,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)


def ended_by(error: ProviderError) -> str:
    """Return `Machine.ended` of a machine that this refusal ended: capacity, quota or failed."""
    if isinstance(error, CapacityError):
        return "capacity"
    return "quota" if isinstance(error, QuotaError) else "failed"


_NO_MACHINE = ErrorRule(CapacityError, Extent.PLACE, "try another zone, or the other market")
_AGAIN = ErrorRule(ProviderUnavailableError, Extent.PLACE, "repeat it a little later")
_SLOWER = ErrorRule(ProviderUnavailableError, Extent.PROJECT, "repeat it more slowly")
_WRONG = ErrorRule(ConfigError, Extent.PLACE, "change what the platform asks for")
_STRANGER = ErrorRule(
    CredentialsError,
    Extent.PROJECT,
    "check GOOGLE_APPLICATION_CREDENTIALS, or sign in by `gcloud auth application-default login`",
)
_NO_ROLE = ErrorRule(
    CredentialsError,
    Extent.PROJECT,
    "give the account the permission that Google names: `seatrial doctor gcp` prints the command "
    "(roles/compute.instanceAdmin.v1 and roles/compute.securityAdmin have those for machines)",
)
_NO_API = ErrorRule(
    ConfigError,
    Extent.PROJECT,
    "enable the API that Google names (`gcloud services enable`), and billing for the project",
)
_POLICY = ErrorRule(
    ConfigError, Extent.PROJECT, "an organisation policy forbids it: ask who owns the policy"
)
_QUOTA = ErrorRule(QuotaError, Extent.REGION, "ask for more of that quota, or use another region")

TABLE: Mapping[str, ErrorRule] = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": _NO_MACHINE,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": _NO_MACHINE,
    "insufficientCapacity": _NO_MACHINE,
    "resourceAvailability": _NO_MACHINE,
    "stockout": _NO_MACHINE,
    "UNSUPPORTED_OPERATION": _NO_MACHINE,  # a spot machine preempted while it was made
    "RESOURCE_NOT_FOUND": _NO_MACHINE,  # in an operation: its resource was taken in the meantime
    "QUOTA_EXCEEDED": _QUOTA,
    "quotaExceeded": _QUOTA,
    "limitExceeded": _QUOTA,
    "rateLimitExceeded": _SLOWER,
    "userRateLimitExceeded": _SLOWER,
    "dailyLimitExceeded": _SLOWER,
    "tooManyRequests": _SLOWER,
    "RATE_LIMIT_EXCEEDED": _SLOWER,
    "RESOURCE_EXHAUSTED": _SLOWER,
    "RESOURCE_OPERATION_RATE_EXCEEDED": _AGAIN,
    "operationRateExceeded": _AGAIN,
    "RESOURCE_NOT_READY": _AGAIN,
    "OPERATION_CANCELED_BY_USER": _AGAIN,
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": _AGAIN,
    "backendError": _AGAIN,
    "internalError": _AGAIN,
    "INTERNAL": _AGAIN,
    "serviceUnavailable": _AGAIN,
    "UNAVAILABLE": _AGAIN,
    "DEADLINE_EXCEEDED": _AGAIN,
    "badGateway": _AGAIN,
    "authError": _STRANGER,
    "required": _STRANGER,  # "Login Required"
    "UNAUTHENTICATED": _STRANGER,
    "CREDENTIALS_MISSING": _STRANGER,
    "ACCESS_TOKEN_EXPIRED": _STRANGER,
    "ACCOUNT_STATE_INVALID": _STRANGER,
    "IAM_PERMISSION_DENIED": _NO_ROLE,
    "PERMISSION_DENIED": _NO_ROLE,
    "PERMISSIONS_ERROR": _NO_ROLE,
    "forbidden": _NO_ROLE,
    "insufficientPermissions": _NO_ROLE,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _NO_ROLE,
    "accessNotConfigured": _NO_API,
    "SERVICE_DISABLED": _NO_API,
    "BILLING_DISABLED": _NO_API,
    "VPC_NOT_FOUND": ErrorRule(
        ConfigError, Extent.PROJECT, "create the network `default`, or give the project one"
    ),
    "SUBNET_NOT_FOUND_FOR_VPC": ErrorRule(
        ConfigError, Extent.REGION, "create a subnet of the network `default` in that region"
    ),
    "conditionNotMet": _POLICY,
    "alreadyExists": ErrorRule(
        ConfigError, Extent.PLACE, "somebody else owns a resource of that name: delete it"
    ),
    "RESOURCE_ALREADY_EXISTS": ErrorRule(
        ConfigError, Extent.PLACE, "somebody else owns a resource of that name: delete it"
    ),
    "notFound": _WRONG,
    "invalid": _WRONG,
    "badRequest": _WRONG,
    "invalidUsage": _WRONG,
    "INVALID_ARGUMENT": _WRONG,
    "INVALID_FIELD_VALUE": _WRONG,
    "invalidParameter": _WRONG,
    "FAILED_PRECONDITION": _WRONG,
}
"""Rules of all known codes, in the spelling of HTTP answers or of operations."""

_BY_WORDS: tuple[tuple[re.Pattern[str], ErrorRule], ...] = (
    (
        re.compile(
            r"Location .* is not found or access is unauthorized|Permission denied on '?locations/",
            re.IGNORECASE | re.DOTALL,
        ),
        ErrorRule(NotOfferedError, Extent.ZONE, "take this zone out of `locations`"),
    ),
    (re.compile(r"constraints?/\S+ violated|violates constraint", re.IGNORECASE), _POLICY),
    (
        re.compile(r"zones/[\w-]+' was not found", re.IGNORECASE),
        ErrorRule(NotOfferedError, Extent.ZONE, "take this zone out of `locations`"),
    ),
    (
        re.compile(r"Requested disk size cannot be smaller than the image size", re.IGNORECASE),
        ErrorRule(ConfigError, Extent.PROJECT, "enlarge disk_gb"),
    ),
    (
        re.compile(
            r"machine ?types?\b.*(not found|does not exist|was not found)",
            re.IGNORECASE | re.DOTALL,
        ),
        ErrorRule(NotOfferedError, Extent.PLACE, "this zone does not sell it; use another one"),
    ),
    (
        re.compile(
            r"/images/.*was not found|image.* (not found|does not exist)", re.IGNORECASE | re.DOTALL
        ),
        ErrorRule(ConfigError, Extent.PROJECT, "the image is gone: name another one by `image:`"),
    ),
    (
        re.compile(r"network resource cannot be found", re.IGNORECASE),
        ErrorRule(ConfigError, Extent.PROJECT, "create the network `default`"),
    ),
    (
        re.compile(
            r"not have enough resources available|stock ?out|no more capacity", re.IGNORECASE
        ),
        _NO_MACHINE,
    ),
)
"""Refusals with ambiguous codes; their messages are matched before the code."""

_BY_STATUS: Mapping[int, ErrorRule] = {
    400: _WRONG,
    401: _STRANGER,
    403: _NO_ROLE,
    404: _WRONG,
    408: _AGAIN,
    409: _WRONG,
    412: _WRONG,
    429: _SLOWER,
}


def error_rule(code: str, message: str = "", *, status: int = 0) -> ErrorRule:
    """Return the rule of a refusal.

    Args:
        code: The provider's reason or code, in either spelling; may be empty.
        message: Its message.
        status: The HTTP status; 0 without one. For 5xx and unknown errors the outcome is open.
    """
    known = _FOLDED.get(_fold(code))
    if known is _QUOTA:
        return _quota(message)
    for words, told in _BY_WORDS:
        if words.search(message):
            return told
    if known is not None:
        return known
    if "quota" in message.lower() and "exceeded" in message.lower():
        return _quota(message)
    return _BY_STATUS.get(status, _AGAIN)


def _quota(message: str) -> ErrorRule:
    if "ALL_REGIONS" in message:
        return ErrorRule(QuotaError, Extent.PROJECT, "ask for more of that quota: no region helps")
    # Each market has separate GPU quotas: PREEMPTIBLE_NVIDIA_L4_GPUS and NVIDIA_L4_GPUS.
    if "PREEMPTIBLE" in message or re.search(r"NVIDIA_\w+_GPUS", message):
        return ErrorRule(QuotaError, Extent.MARKET, _QUOTA.advice)
    return _QUOTA


def _fold(code: str) -> str:
    return code.replace("_", "").lower()


_FOLDED: Mapping[str, ErrorRule] = {_fold(code): told for code, told in TABLE.items()}
