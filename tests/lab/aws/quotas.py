"""Service quotas: how many vCPUs of a class an account may run, per region and market."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.lab.aws.wire import ApiError, Reply, Request, json_reply
from tests.lab.cloud_facts import rows

_QUOTAS = rows("aws", "quota")
"""What a new account gets, by code."""
_ON_DEMAND = {"g": "L-DB2E81BA", "p": "L-417A185B", "std": "L-1216C47A", "dl": "L-6E869C2A"}
_SPOT = {"g": "L-3819A6DF", "p": "L-7212CCBC", "std": "L-34B43A08", "dl": "L-85EED4F7"}
_CLASSES = {"g": "g", "gr": "g", "vt": "g", "p": "p", "dl": "dl"}
_STANDARD = frozenset("acdhimrtz") | {"im", "is"}
ENOUGH = 512


def quota_of(instance_type: str, market: str) -> str | None:
    """The quota that a launch counts against; None where the lab keeps no account of it."""
    family = re.match(r"([a-z]+)(\d*)", instance_type)
    if family is None:
        return None
    letters, generation = family.groups()
    kind = "std" if letters in _STANDARD else _CLASSES.get(letters)
    if kind is None:
        return None
    if kind == "p" and market == "spot" and generation == "5":
        return "L-C4BD4855"
    return (_SPOT if market == "spot" else _ON_DEMAND)[kind]


class Quotas(dict[tuple[str, str], float | None]):
    """`quotas[region, code] = value`; None: no value applied, so that the default counts.

    What nobody set is plenty: most tests are about something else.
    """

    def applied(self, region: str, code: str) -> float | None:
        """The account's own value, or None where the service has no such resource."""
        return self.get((region, code), ENOUGH)

    def in_force(self, region: str, code: str) -> float:
        """What a launch is measured against."""
        applied = self.applied(region, code)
        return _QUOTAS[code].value if applied is None else applied

    def check(
        self, region: str, instance_type: str, market: str, *, wanted: int, used: int
    ) -> None:
        """Refuse a launch that would go over the quota.

        Raises:
            ApiError: VcpuLimitExceeded or MaxSpotInstanceCountExceeded.
        """
        code = quota_of(instance_type, market)
        if code is None or used + wanted <= self.in_force(region, code):
            return
        if market == "spot":
            raise ApiError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        limit = int(self.in_force(region, code))
        raise ApiError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit} "
            "allows for the instance bucket that the specified instance type belongs to. Please "
            "visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this "
            "limit.",
        )

    def answer(self, request: Request) -> Reply:
        """The calls of the Service Quotas API.

        Raises:
            ApiError: As the service refuses.
        """
        asked = _ANSWERS.get(request.name)
        if asked is None:
            raise ApiError("InvalidAction", f"the lab does not know {request.name}")
        if request.data.get("ServiceCode") != "ec2":
            raise ApiError("NoSuchResourceException", "The request failed: no such service.")
        return asked(self, request)

    def _one(self, request: Request) -> Reply:
        code, region = _known(request.data["QuotaCode"]), request.region
        value = self.applied(region, code)
        if value is None:
            raise ApiError("NoSuchResourceException", "The request failed: no applied value.")
        return json_reply({"Quota": _as_quota(code, region, value)})

    def _default(self, request: Request) -> Reply:
        code = _known(request.data["QuotaCode"])
        return json_reply({"Quota": _as_quota(code, request.region, _QUOTAS[code].value)})

    def _all(self, request: Request) -> Reply:
        values = {code: self.applied(request.region, code) for code in _QUOTAS}
        return _page(request, {c: v for c, v in values.items() if v is not None}.items())

    def _defaults(self, request: Request) -> Reply:
        return _page(request, [(code, row.value) for code, row in _QUOTAS.items()])


_ANSWERS = {
    "GetServiceQuota": Quotas._one,
    "GetAWSDefaultServiceQuota": Quotas._default,
    "ListServiceQuotas": Quotas._all,
    "ListAWSDefaultServiceQuotas": Quotas._defaults,
}


def _known(code: str) -> str:
    if code not in _QUOTAS:
        raise ApiError("NoSuchResourceException", "The request failed: no such quota.")
    return code


def _page(request: Request, values: Iterable[tuple[str, float]]) -> Reply:
    rows = [_as_quota(code, request.region, value) for code, value in values]
    start = int(request.data.get("NextToken") or 0)
    end = start + int(request.data.get("MaxResults") or 100)
    more: Mapping[str, Any] = {"NextToken": str(end)} if end < len(rows) else {}
    return json_reply({"Quotas": rows[start:end], **more})


def _as_quota(code: str, region: str, value: float) -> dict[str, Any]:
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": _QUOTAS[code].text,
        "Value": float(value),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
