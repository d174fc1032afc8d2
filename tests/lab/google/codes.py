"""The refusals of Google's clouds, as they spell them."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from tests.lab.faults import Fault

# reason -> (HTTP status, message), answered at the call
_AT_THE_CALL: Mapping[str, tuple[int, str]] = {
    "quotaExceeded": (403, "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region {where}."),
    "rateLimitExceeded": (403, "Rate Limit Exceeded"),
    "userRateLimitExceeded": (403, "User Rate Limit Exceeded"),
    "tooManyRequests": (429, "Too many requests."),
    "forbidden": (403, "Required 'compute.instances.create' permission for 'projects/lab'"),
    "accessNotConfigured": (
        403,
        "Compute Engine API has not been used in project lab before or it is disabled.",
    ),
    "authError": (401, "Request had invalid authentication credentials."),
    "alreadyExists": (409, "The resource already exists"),
    "notFound": (404, "The resource was not found"),
    "resourceNotReady": (400, "The resource is not ready"),
    "invalid": (400, "Invalid value for field"),
    "backendError": (503, "Backend Error"),
    "internalError": (500, "Internal Error"),
    "badGateway": (502, "Bad Gateway"),
}
# code -> (HTTP status, message), in the operation after a call that was accepted
_IN_OPERATION: Mapping[str, tuple[int, str]] = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": (
        503,
        "The zone does not have enough resources available to fulfill the request.",
    ),
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": (
        503,
        "The zone does not have enough resources available ('resource type:compute').",
    ),
    "QUOTA_EXCEEDED": (403, "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region."),
    "GPUS_ALL_REGIONS": (403, "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."),
    "RESOURCE_NOT_FOUND": (404, "The resource was not found"),
    "UNSUPPORTED_OPERATION": (
        400,
        "Instance was preempted during creation: operation is not supported.",
    ),
    "RESOURCE_NOT_READY": (400, "The resource is not ready"),
    "RESOURCE_OPERATION_RATE_EXCEEDED": (
        403,
        "Operation rate exceeded for resource. Too frequent operations from the source resource.",
    ),
    "IAM_PERMISSION_DENIED": (403, "IAM permission denied for service account."),
    "VPC_NOT_FOUND": (400, "The network was not found."),
    "SUBNET_NOT_FOUND_FOR_VPC": (400, "No subnetwork of the network is in this region."),
    "INTERNAL_ERROR": (500, "Internal error. Please try again or contact Google Support."),
    "CONDITION_NOT_MET": (412, "Constraint constraints/compute.requireOsLogin violated."),
}


def gce_fault(code: str, *, message: str = "", after: bool = False) -> Fault:
    """How Compute Engine refuses with this reason or operation error code.

    Args:
        code: A reason of `error.errors[]` or a code of `operation.error.errors[]`;
            "GPUS_ALL_REGIONS" is QUOTA_EXCEEDED for the whole project.
        message: Instead of the usual one.
        after: The call did succeed, and its answer is lost behind this error.
    """
    if code in _IN_OPERATION:
        status, usual = _IN_OPERATION[code]
        spelled = "QUOTA_EXCEEDED" if code == "GPUS_ALL_REGIONS" else code
        return Fault(spelled, message or usual, status, in_operation=True)
    status, usual = _AT_THE_CALL[code]
    return Fault(code, message or usual, status, after=after)


# code -> message, answered at the call
_TPU_AT_THE_CALL: Mapping[str, str] = {
    "RESOURCE_EXHAUSTED": "Quota limit 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' has been"
    " exceeded. Limit: 4 in zone us-central1-a.",
    "UNAVAILABLE": "The service is currently unavailable.",
    "INTERNAL": "Internal error encountered.",
    "DEADLINE_EXCEEDED": "Deadline exceeded.",
    "PERMISSION_DENIED": "Permission 'tpu.nodes.create' denied on 'projects/lab'.",
    "UNAUTHENTICATED": "Request had invalid authentication credentials.",
    "ALREADY_EXISTS": "Resource already exists.",
    "NOT_FOUND": "Location is not found or access is unauthorized.",
    "FAILED_PRECONDITION": "Cloud TPU API has not been used in project lab before.",
    "INVALID_ARGUMENT": "Invalid argument.",
}
# code -> message, in the long-running operation
_TPU_IN_OPERATION: Mapping[str, str] = {
    "RESOURCE_EXHAUSTED": "There is no more capacity in the zone; you can try in another zone",
    "FAILED_PRECONDITION": "Insufficient reserved capacity.",
    "INVALID_ARGUMENT": "Cloud TPU received a bad request. update is not supported while in state"
    " PREEMPTED",
    "INTERNAL": "Internal error encountered.",
}


def tpu_fault(
    code: str, *, in_operation: bool = False, message: str = "", after: bool = False
) -> Fault:
    """How Cloud TPU refuses with this gRPC code.

    Args:
        code: A canonical gRPC code's name. RESOURCE_EXHAUSTED at the call is the quota (with a
            QuotaFailure in its details), in the operation it is the zone's lack of capacity.
        in_operation: The call is accepted and its operation ends with this.
        message: Instead of the usual one.
        after: The call did succeed, and its answer is lost behind this error.
    """
    usual = (_TPU_IN_OPERATION if in_operation else _TPU_AT_THE_CALL)[code]
    details = {"quota": "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"}
    is_quota = code == "RESOURCE_EXHAUSTED" and not in_operation
    return Fault(
        code=code,
        message=message or usual,
        status=grpc.StatusCode[code].value[0],
        after=after,
        in_operation=in_operation,
        details=details if is_quota else {},
    )
