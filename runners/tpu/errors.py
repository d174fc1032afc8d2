"""Maps the answers of Google APIs to provider errors.

The code alone is ambiguous: RESOURCE_EXHAUSTED is a stockout, a quota or a throttle. The message
and the types of the details are matched as well, and the first matching row decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.provider_context import plain_words

CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""Names of gRPC's status codes, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class ApiRefusal:
    """Why a Google API refused a call: status, message and details."""

    code: str
    """Name of the gRPC status."""
    words: str
    details: tuple[str, ...] = ()
    """Kinds of its details, and their reasons: ``QuotaFailure``, ``RATE_LIMIT_EXCEEDED``."""
    late: bool = False
    """Whether the API accepted the call and refused it later, in the operation or the queue."""


@dataclass(frozen=True, slots=True)
class TpuRefusal:
    """Properties of the provider error for a refusal, and of the refused machine."""

    kind: type[ProviderError]
    ended: str
    """`Machine.ended` of a refused machine: capacity, quota, preempted or failed."""
    extent: Extent = Extent.PLACE
    advice: str = ""


@dataclass(frozen=True, slots=True)
class _ErrorRow:
    codes: tuple[str, ...]
    pattern: str
    refusal: TpuRefusal
    late: bool | None = None

    def fits(self, answer: ApiRefusal) -> bool:
        if self.codes and answer.code not in self.codes:
            return False
        if self.late is not None and self.late is not answer.late:
            return False
        said = " ".join((answer.words, *answer.details))
        return re.search(self.pattern, said, re.IGNORECASE | re.DOTALL) is not None


_CAPACITY = TpuRefusal(CapacityError, "capacity")
_NO_ZONE = TpuRefusal(
    CapacityError, "capacity", Extent.ZONE, "the zone cannot be used from this project"
)
_PREEMPTED = TpuRefusal(CapacityError, "preempted")
_LATER = TpuRefusal(ProviderUnavailableError, "failed")
_STRANGER = TpuRefusal(
    CredentialsError,
    "failed",
    Extent.PROJECT,
    "sign in again: `gcloud auth application-default login`, or check the service account's key",
)
_FORBIDDEN = TpuRefusal(
    CredentialsError,
    "failed",
    Extent.PROJECT,
    "give the caller the role roles/tpu.admin on the project (and roles/iam.serviceAccountUser)",
)
_POLICY = TpuRefusal(
    ConfigError,
    "failed",
    Extent.PROJECT,
    "an organisation policy forbids it: ask who owns the policy, or write `connect: private` where "
    "it forbids public addresses",
)
_API_OFF = TpuRefusal(
    CredentialsError,
    "failed",
    Extent.PROJECT,
    "enable the API: `gcloud services enable tpu.googleapis.com`",
)
_WRONG = TpuRefusal(ConfigError, "failed", advice="correct the platform in the matrix")
# A TPU quota is one number per zone, generation and market. So the other market of the same zone
# may still have room: the refusal reaches the place alone, or the region's places of its market.
_QUOTA_ZONE = TpuRefusal(QuotaError, "quota", advice="ask for more of that quota")
_QUOTA_REGION = TpuRefusal(QuotaError, "quota", Extent.MARKET, "ask for more of that quota")
_QUOTA_PROJECT = TpuRefusal(QuotaError, "quota", Extent.PROJECT, "ask for more of that quota")

_EXHAUSTED = ("RESOURCE_EXHAUSTED",)
_ROWS = (
    # UNAVAILABLE is also gRPC's code for credentials that could not be refreshed
    _ErrorRow(
        ("UNAVAILABLE", "UNAUTHENTICATED"),
        r"metadata from plugin failed.*(Refresh|Reauth|invalid_grant|DefaultCredentials)",
        _STRANGER,
    ),
    _ErrorRow(
        (),
        r"SERVICE_DISABLED|accessNotConfigured|has not been used in project|API .*is disabled",
        _API_OFF,
    ),
    _ErrorRow(
        ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED"),
        r"RATE_LIMIT_EXCEEDED|rateLimitExceeded|per (second|minute|day)\b|rate limit",
        _LATER,
    ),
    _ErrorRow(
        ("NOT_FOUND", "PERMISSION_DENIED", "INVALID_ARGUMENT"),
        r"location \S+ is not found|access is unauthorized|invalid location|unknown zone",
        _NO_ZONE,
    ),
    _ErrorRow(
        ("PERMISSION_DENIED",),
        r"not have permission to submit requests for accelerator type",
        _CAPACITY,
    ),
    _ErrorRow(("PERMISSION_DENIED",), r"Permission denied on '?locations/", _NO_ZONE),
    _ErrorRow((), r"constraints?/\S+ violated|violates constraint", _POLICY),
    _ErrorRow(("INVALID_ARGUMENT", "NOT_FOUND"), r"was not found in (the )?zone", _CAPACITY),
    _ErrorRow((), r"while in state PREEMPTED|\bwas preempted|has been preempted", _PREEMPTED),
    _ErrorRow(_EXHAUSTED, r"(?=.*quota)(?=.*(all regions|ALL_REGIONS|globally))", _QUOTA_PROJECT),
    _ErrorRow(
        _EXHAUSTED, r"(?=.*(QuotaFailure|QUOTA_EXCEEDED|quota limit))(?=.*in region)", _QUOTA_REGION
    ),
    _ErrorRow(_EXHAUSTED, r"QuotaFailure|QUOTA_EXCEEDED|quota limit", _QUOTA_ZONE),
    _ErrorRow(
        (),
        r"no more capacity|not enough (resources|capacity)|stock-?out|out of capacity"
        r"|insufficient (reserved )?capacity|RESOURCE_POOL_EXHAUSTED|resource pool exhausted",
        _CAPACITY,
    ),
    _ErrorRow(_EXHAUSTED, r"(?=.*quota)(?=.*in region)", _QUOTA_REGION),
    _ErrorRow(_EXHAUSTED, r"quota", _QUOTA_ZONE),
    _ErrorRow(_EXHAUSTED, r"", _CAPACITY),
    _ErrorRow(("FAILED_PRECONDITION",), r"billing", _FORBIDDEN),
    # In an operation 9 is "insufficient reserved capacity", unless its message differs.
    _ErrorRow(("FAILED_PRECONDITION", "OUT_OF_RANGE"), r"", _CAPACITY, late=True),
    _ErrorRow(("PERMISSION_DENIED",), r"", _FORBIDDEN),
    _ErrorRow(("UNAUTHENTICATED",), r"", _STRANGER),
    _ErrorRow(
        (
            "INVALID_ARGUMENT",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "FAILED_PRECONDITION",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
        ),
        r"",
        _WRONG,
    ),
)


def classify(answer: ApiRefusal) -> TpuRefusal:
    """Return the refusal of an answer; an unknown one leaves the outcome open, for a retry."""
    return next((row.refusal for row in _ROWS if row.fits(answer)), _LATER)


def refused(answer: ApiRefusal, what: str) -> ProviderError:
    """Return the error to raise.

    Args:
        answer: The API's answer.
        what: The request and its target: ``create queued resource us-west4-a/x``.
    """
    refusal = classify(answer)
    words = plain_words(answer.words) or "no words"
    advice = f"; {refusal.advice}" if refusal.advice else ""
    return refusal.kind(
        f"{what}: Google answered {answer.code}: {words}{advice}",
        code=answer.code,
        extent=refusal.extent,
    )


def code_name(number: int) -> str:
    """Return the name of a gRPC status number."""
    return CODES[number] if 0 <= number < len(CODES) else "UNKNOWN"
