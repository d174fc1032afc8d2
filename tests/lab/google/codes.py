"""The refusals of Google's clouds, as they spell them (`cloud_facts.csv`)."""

from __future__ import annotations

from tests.lab.cloud_facts import rows
from tests.lab.faults import Fault

_AT_THE_CALL, _IN_OPERATION = rows("gcp", "call"), rows("gcp", "operation")


def gce_fault(code: str, *, message: str = "", after: bool = False) -> Fault:
    """How Compute Engine refuses with this reason or operation error code.

    Args:
        code: A reason of `error.errors[]` or a code of `operation.error.errors[]`;
            "GPUS_ALL_REGIONS" is QUOTA_EXCEEDED for the whole project.
        message: Instead of the usual one.
        after: The call did succeed, and its answer is lost behind this error.
    """
    if code in _IN_OPERATION:
        row = _IN_OPERATION[code]
        spelled = "QUOTA_EXCEEDED" if code == "GPUS_ALL_REGIONS" else code
        return Fault(spelled, message or row.text, row.value, in_operation=True)
    row = _AT_THE_CALL[code]
    return Fault(code, message or row.text, row.value, after=after)


_TPU_AT_THE_CALL, _TPU_IN_OPERATION = rows("tpu", "call"), rows("tpu", "operation")


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
    row = (_TPU_IN_OPERATION if in_operation else _TPU_AT_THE_CALL)[code]
    details = {"quota": "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"}
    is_quota = code == "RESOURCE_EXHAUSTED" and not in_operation
    return Fault(
        code=code,
        message=message or row.text,
        status=row.value,
        after=after,
        in_operation=in_operation,
        details=details if is_quota else {},
    )
