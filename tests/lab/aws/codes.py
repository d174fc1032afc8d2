"""AWS's refusals: each code with its HTTP status and its sentence (`cloud_facts.csv`)."""

from __future__ import annotations

from typing import Any

from tests.lab.cloud_facts import rows
from tests.lab.faults import Fault

_KNOWN = rows("aws", "call")

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
    row = _KNOWN[code]
    return Fault(**{"code": code, "status": row.value, "message": row.text, **other})


DROPPED = Fault(drop=True)
LOST = Fault(drop=True, after=True)
GATEWAY_PAGE = Fault(
    status=500,
    body="<!doctype html>\n<html><title>500 Internal Server Error</title></html>",
)
FREE_PLAN = aws_fault(
    "InvalidParameterCombination",
    message="The specified instance type is not eligible for Free Tier. For a list of Free Tier "
    "instance types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'.",
)
"""What an account of the free plan, the usual one since July 2025, is told of a GPU."""
