"""What Compute Engine's refusals mean: every code of the fact sheet, in both spellings."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import compute_v1
from google.protobuf import json_format
from requests import exceptions as http

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    NotOfferedError,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.google.errors import TABLE, ended_by, error_rule
from runners.google.responses import (
    AlreadyThereError,
    NotThereError,
    create,
    of_exception,
    of_operation,
    read,
)

PLACE, ZONE, MARKET = Extent.PLACE, Extent.ZONE, Extent.MARKET
REGION, PROJECT = Extent.REGION, Extent.PROJECT
AGAIN = ProviderUnavailableError
L4 = "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1."
SPOT_L4 = "Quota 'PREEMPTIBLE_NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1."
CPUS = "Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1."
GLOBAL = "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."
NO_ZONE = "Location us-moon1-a is not found or access is unauthorized."
NO_LOCATION = "Permission denied on 'locations/us-central1-a' (or it may not exist)."
NO_INSTANCE = "Required 'compute.instances.create' permission for 'projects/p/zones/z/instances/x'"
POLICY = "Constraint constraints/compute.vmExternalIpAccess violated for project p."
SMALL_DISK = "Requested disk size cannot be smaller than the image size (50 GB)"
IMAGE = "The resource 'projects/p/global/images/pytorch-x' was not found"
TYPE = "The resource 'projects/p/zones/us-west4-b/machineTypes/g2-standard-4' was not found"
TYPE_ALSO = "Machine type with name 'g2-standard-4' does not exist in zone 'us-west4-b'."


@pytest.mark.parametrize(
    ("code", "message", "status", "kind", "extent"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", 503, CapacityError, PLACE),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", 503, CapacityError, PLACE),
        ("zoneResourcePoolExhausted", "", 503, CapacityError, PLACE),
        ("insufficientCapacity", "", 503, CapacityError, PLACE),
        ("resourceAvailability", "", 503, CapacityError, PLACE),
        ("", "The zone does not have enough resources available", 503, CapacityError, PLACE),
        ("backendError", "It does not have enough resources available", 503, CapacityError, PLACE),
        ("UNSUPPORTED_OPERATION", "Instance was preempted", 400, CapacityError, PLACE),
        ("RESOURCE_NOT_FOUND", "The resource was not found", 404, CapacityError, PLACE),
        ("QUOTA_EXCEEDED", GLOBAL, 403, QuotaError, PROJECT),
        ("quotaExceeded", GLOBAL, 403, QuotaError, PROJECT),
        ("QUOTA_EXCEEDED", L4, 403, QuotaError, MARKET),
        ("quotaExceeded", SPOT_L4, 403, QuotaError, MARKET),
        ("QUOTA_EXCEEDED", CPUS, 403, QuotaError, REGION),
        ("quotaExceeded", "", 403, QuotaError, REGION),
        ("", CPUS, 403, QuotaError, REGION),
        ("rateLimitExceeded", "Rate Limit Exceeded", 403, AGAIN, PROJECT),
        ("userRateLimitExceeded", "Quota exceeded for queries", 403, AGAIN, PROJECT),
        ("RATE_LIMIT_EXCEEDED", "", 403, AGAIN, PROJECT),
        ("", "Too Many Requests", 429, AGAIN, PROJECT),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", "", 403, AGAIN, PLACE),
        ("RESOURCE_NOT_READY", "", 400, AGAIN, PLACE),
        ("resourceNotReady", "", 400, AGAIN, PLACE),
        ("IAM_PERMISSION_DENIED", "", 403, CredentialsError, PROJECT),
        ("forbidden", "Required 'compute.instances.create'", 403, CredentialsError, PROJECT),
        ("", "", 403, CredentialsError, PROJECT),
        ("authError", "", 401, CredentialsError, PROJECT),
        ("", "", 401, CredentialsError, PROJECT),
        ("accessNotConfigured", "", 403, ConfigError, PROJECT),
        ("SERVICE_DISABLED", "", 403, ConfigError, PROJECT),
        ("", NO_ZONE, 403, NotOfferedError, ZONE),
        ("forbidden", NO_ZONE, 403, NotOfferedError, ZONE),
        ("forbidden", NO_LOCATION, 403, NotOfferedError, ZONE),
        ("IAM_PERMISSION_DENIED", NO_LOCATION, 403, NotOfferedError, ZONE),
        ("forbidden", NO_INSTANCE, 403, CredentialsError, PROJECT),
        ("", POLICY, 412, ConfigError, PROJECT),
        ("invalid", POLICY, 400, ConfigError, PROJECT),
        ("notFound", "'projects/p/zones/us-moon1-a' was not found", 404, NotOfferedError, ZONE),
        ("notFound", TYPE, 404, NotOfferedError, PLACE),
        ("invalid", TYPE_ALSO, 400, NotOfferedError, PLACE),
        ("notFound", IMAGE, 404, ConfigError, PROJECT),
        ("RESOURCE_NOT_FOUND", IMAGE, 404, ConfigError, PROJECT),
        ("VPC_NOT_FOUND", "", 400, ConfigError, PROJECT),
        ("SUBNET_NOT_FOUND_FOR_VPC", "", 400, ConfigError, REGION),
        ("invalid", SMALL_DISK, 400, ConfigError, PROJECT),
        ("conditionNotMet", "Constraint violated", 412, ConfigError, PROJECT),
        ("CONDITION_NOT_MET", "Constraint violated", 412, ConfigError, PROJECT),
        ("backendError", "", 503, AGAIN, PLACE),
        ("internalError", "", 500, AGAIN, PLACE),
        ("INTERNAL_ERROR", "", 500, AGAIN, PLACE),
        ("", "", 502, AGAIN, PLACE),
        ("", "", 504, AGAIN, PLACE),
        ("somethingNew", "", 500, AGAIN, PLACE),
        ("somethingNew", "", 400, ConfigError, PLACE),
        ("SOMETHING_NEW", "", 0, AGAIN, PLACE),
    ],
)
def test_what_a_code_means(
    code: str, message: str, status: int, kind: type[ProviderError], extent: Extent
) -> None:
    told = error_rule(code, message, status=status)
    assert (told.error, told.extent) == (kind, extent)
    assert told.advice


def test_a_throttled_call_is_no_lack_of_quota() -> None:
    """Its words say `quota exceeded` too."""
    said = "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'"
    assert error_rule("rateLimitExceeded", said, status=403).error is AGAIN


def test_both_spellings_of_every_code_are_one() -> None:
    for code, told in TABLE.items():
        folded = code.replace("_", "").lower()
        assert error_rule(folded, status=403).error is told.error


def test_the_word_for_a_machine_that_never_ran() -> None:
    assert ended_by(CapacityError("")) == "capacity"
    assert ended_by(QuotaError("")) == "quota"
    assert ended_by(ConfigError("")) == "failed"


# the client library's shapes


def forbidden(reason: str, message: str = "no") -> api.Forbidden:
    return api.Forbidden(message, errors=[{"reason": reason, "message": message}])


def test_an_http_answer_carries_dicts() -> None:
    error = of_exception("launching here", forbidden("quotaExceeded", GLOBAL))
    assert isinstance(error, QuotaError)
    assert (error.code, error.extent) == ("quotaExceeded", PROJECT)
    assert str(error).startswith("launching here: Google answered quotaExceeded: Quota")


def test_an_exception_of_an_operation_carries_messages() -> None:
    entry = compute_v1.Errors(code="ZONE_RESOURCE_POOL_EXHAUSTED", message="none left")
    error = of_exception("launching", api.ServiceUnavailable("x", errors=[entry]))
    assert isinstance(error, CapacityError)
    assert error.code == "ZONE_RESOURCE_POOL_EXHAUSTED"


def test_an_operations_error_is_read_with_the_quota_it_names() -> None:
    info = compute_v1.QuotaExceededInfo(
        metric_name="GPUS_ALL_REGIONS", limit_name="GPUS-ALL-REGIONS-per-project", limit=0
    )
    entry = compute_v1.Errors(
        code="QUOTA_EXCEEDED",
        message="exceeded",
        error_details=[compute_v1.ErrorDetails(quota_info=info)],
    )
    operation = compute_v1.Operation(
        name="op-1", error=compute_v1.Error(errors=[entry]), http_error_status_code=403
    )
    error = of_operation("making x", operation)
    assert isinstance(error, QuotaError)
    assert error.extent is PROJECT
    assert "operation op-1" in str(error)
    assert "GPUS_ALL_REGIONS limit 0" in str(error)


def test_an_operation_without_an_error_is_none() -> None:
    assert of_operation("making x", compute_v1.Operation(name="op-1")) is None


@pytest.mark.parametrize(
    "raised",
    [
        http.ConnectionError("reset"),
        http.ReadTimeout("slow"),
        json_format.ParseError("<html>"),
        auth.TransportError("metadata server"),
        api.RetryError("gave up", None),
        ConnectionResetError("reset"),
    ],
)
def test_no_answer_is_an_unknown_outcome(raised: Exception) -> None:
    def call() -> None:
        raise raised

    with pytest.raises(ProviderUnavailableError, match="whether it was done is not known"):
        create("launching", call)


@pytest.mark.parametrize(
    "raised", [auth.DefaultCredentialsError("none"), auth.RefreshError("revoked")]
)
def test_missing_credentials_say_what_to_set(raised: Exception) -> None:
    error = of_exception("launching", raised)
    assert isinstance(error, CredentialsError)
    assert error.extent is PROJECT
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(error)
    assert "gcloud auth application-default login" in str(error)


def test_taken_and_missing_names_are_no_errors_yet() -> None:
    def taken() -> None:
        raise api.Conflict("exists", errors=[{"reason": "alreadyExists"}])

    def missing() -> None:
        raise api.NotFound("nowhere", errors=[{"reason": "notFound"}])

    with pytest.raises(AlreadyThereError):
        create("making", taken)
    with pytest.raises(NotThereError):
        read("looking", missing)


def test_a_bug_of_ours_is_not_taken_for_the_clouds() -> None:
    def broken() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        create("launching", broken)
