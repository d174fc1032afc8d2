"""AWS's refusals: each code with the HTTP status and the sentence it comes with.

The statuses follow the EC2 error reference (client errors 400, server errors 500 and 503). Where
the sentence is not known word for word it is near enough: clients must go by the code.
"""

from __future__ import annotations

from typing import Any

from tests.lab.faults import Fault

_CAPACITY = (
    "We currently do not have sufficient capacity in the Availability Zone you requested. "
    "Our system will be working on provisioning additional capacity."
)
_LIMIT = "You have reached the maximum of this resource for your account in this Region."
_VCPUS = (
    "You have requested more vCPU capacity than your current vCPU limit allows for the instance "
    "bucket that the specified instance type belongs to. Please visit "
    "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
)
_MISMATCH = (
    "Arguments on this idempotent request are inconsistent with arguments used in previous "
    "request(s)."
)
_NOT_ALLOWED = (
    "You are not authorized to perform this operation. Encoded authorization failure message: "
    "lab-encoded-message"
)
_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your "
    "AWS Secret Access Key and signing method."
)
_TERMINATED = (
    "The client token you have provided is associated with a terminated instance. Please use a "
    "different client token."
)
_NO_ROLE = (
    "The provided credentials do not have permission to create the service-linked role for EC2 "
    "Spot Instances."
)
_THROTTLED = "Request limit exceeded."
_BROKEN = "An internal error has occurred"
_AWAY = "The service is unavailable. Please try again shortly."

_KNOWN: dict[str, tuple[int, str]] = {
    "InsufficientInstanceCapacity": (500, _CAPACITY),
    "InsufficientHostCapacity": (500, _CAPACITY),
    "InsufficientReservedInstanceCapacity": (500, _CAPACITY),
    "UnfulfillableCapacity": (500, _CAPACITY),
    "InsufficientCapacity": (500, _CAPACITY),
    "Unsupported": (
        400,
        "Your requested instance type is not supported in your requested Availability Zone.",
    ),
    "SpotMaxPriceTooLow": (
        400,
        "Your Spot request price is lower than the minimum required fulfillment price.",
    ),
    "MaxSpotInstanceCountExceeded": (400, "Max spot instance count exceeded"),
    "VcpuLimitExceeded": (400, _VCPUS),
    "InstanceLimitExceeded": (400, _LIMIT),
    "VolumeLimitExceeded": (400, _LIMIT),
    "MaxIOPSLimitExceeded": (400, _LIMIT),
    "AddressLimitExceeded": (400, _LIMIT),
    "SecurityGroupLimitExceeded": (400, _LIMIT),
    "VpcLimitExceeded": (400, _LIMIT),
    "InsufficientFreeAddressesInSubnet": (
        400,
        "There are not enough free addresses in the subnet to satisfy the request.",
    ),
    "RequestLimitExceeded": (503, _THROTTLED),
    "Throttling": (400, "Rate exceeded"),
    "ThrottlingException": (400, "Rate exceeded"),
    "RequestThrottled": (503, _THROTTLED),
    "EC2ThrottledException": (503, _THROTTLED),
    "TooManyRequestsException": (429, "Too many requests"),
    "InternalError": (500, _BROKEN),
    "InternalFailure": (500, _BROKEN),
    "ServerInternal": (500, _BROKEN),
    "ServiceUnavailable": (503, _AWAY),
    "Unavailable": (503, _AWAY),
    "RequestTimeout": (408, "Your request has timed out."),
    "IdempotentParameterMismatch": (400, _MISMATCH),
    "IdempotentInstanceTerminated": (
        400,
        _TERMINATED,
    ),
    # cited in runs-on/runs-on#233: the first spot request of an account, under least privilege
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        403,
        _NO_ROLE,
    ),
    "AuthFailure": (401, "AWS was not able to validate the provided access credentials"),
    "UnauthorizedOperation": (403, _NOT_ALLOWED),
    "InvalidClientTokenId": (403, "The security token included in the request is invalid"),
    "UnrecognizedClientException": (
        400,
        "The security token included in the request is invalid.",
    ),
    "ExpiredToken": (403, "The security token included in the request is expired"),
    "ExpiredTokenException": (400, "The security token included in the request is expired"),
    "RequestExpired": (400, "Request has expired."),
    "SignatureDoesNotMatch": (403, _SIGNATURE),
    "OptInRequired": (401, "You are not subscribed to this service."),
    "Blocked": (403, "This account is currently blocked."),
    "PendingVerification": (
        400,
        "Your request for accessing resources in this region is being validated.",
    ),
    "AccessDenied": (403, "User is not authorized to perform this action"),
    "AccessDeniedException": (400, "User is not authorized to perform this action"),
    "InvalidAMIID.NotFound": (400, "The image id does not exist"),
    "InvalidAMIID.Unavailable": (400, "The specified AMI is not available"),
    "InvalidAMIID.Malformed": (400, "Invalid id for an image"),
    "InvalidParameterValue": (400, "A value for a parameter is not valid."),
    "InvalidParameterCombination": (400, "The parameters do not go together."),
    "InvalidSubnetID.NotFound": (400, "The subnet ID does not exist"),
    "InvalidGroup.NotFound": (400, "The security group does not exist"),
    "InvalidKeyPair.NotFound": (400, "The key pair does not exist"),
    "InvalidInstanceType": (400, "Invalid instance type"),
    "MissingParameter": (400, "The request must contain a parameter that is missing."),
    "InvalidInstanceID.NotFound": (400, "The instance ID does not exist"),
    "IncorrectInstanceState": (400, "The instance is not in a state for this operation."),
    "DependencyViolation": (400, "The resource has a dependent object"),
    "NoSuchResourceException": (400, "The request failed: the quota is not there."),
    "ParameterNotFound": (400, ""),
}

CODES = tuple(_KNOWN)
THROTTLES = ("RequestLimitExceeded", "RequestThrottled", "EC2ThrottledException", "Throttling")
"""With these a call was not looked at: its token is not remembered."""


def aws_fault(code: str, **other: Any) -> Fault:
    """A fault with the status and the sentence that AWS gives with this code.

    Args:
        code: One of ``CODES``.
        other: Further fields of ``Fault`` (``after``, ``delay_s``, another ``message``...).

    Raises:
        KeyError: Nobody told this table of the code.
    """
    status, message = _KNOWN[code]
    return Fault(**{"code": code, "status": status, "message": message, **other})


DROPPED = Fault(drop=True)
LOST = Fault(drop=True, after=True)
GATEWAY_PAGE = Fault(
    status=500,
    body="<!doctype html>\n<html><title>500 Internal Server Error</title></html>",
)
