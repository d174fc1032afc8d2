"""EC2's quotas: vCPUs by family of types, market and region."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.domain.machine import Place, ProviderError
from orchestrator.domain.quota import Demand, Quota, QuotaLevel
from runners.aws.catalogue import InstanceCatalogue
from runners.aws.sdk import Answer, AwsAccount

SERVICE = "ec2"
_STANDARD = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")
# Name and code by class; None for an unknown code.
CODES: dict[tuple[str, str], tuple[str, str]] = {
    ("g", "on-demand"): ("G/VT on-demand", "L-DB2E81BA"),
    ("g", "spot"): ("G/VT spot", "L-3819A6DF"),
    ("p", "on-demand"): ("P on-demand", "L-417A185B"),
    ("p", "spot"): ("P2/P3/P4 spot", "L-7212CCBC"),
    ("p5", "on-demand"): ("P on-demand", "L-417A185B"),
    ("p5", "spot"): ("P5 spot", "L-C4BD4855"),
    ("standard", "on-demand"): ("standard on-demand", "L-1216C47A"),
    ("standard", "spot"): ("standard spot", "L-34B43A08"),
    ("dl", "on-demand"): ("DL on-demand", "L-6E869C2A"),
    ("dl", "spot"): ("DL spot", "L-85EED4F7"),
}


def class_of(instance_type: str) -> str:
    """Return the quota class of a type: ``g``, ``p``, ``p5``, ``standard``, ``dl``, or none."""
    family = _FAMILY.match(instance_type)
    letters = family["letters"] if family else ""
    if letters in ("g", "gr", "vt"):
        return "g"
    if letters == "p" and family:
        return {"2": "p", "3": "p", "4": "p", "5": "p5"}.get(family["generation"], "")
    if letters in _STANDARD:
        return "standard"
    return "dl" if letters == "dl" else ""


def quota_of(instance_type: str, region: str, market: str) -> Quota:
    """Return the quota of an instance type, with an empty code for an unknown quota."""
    name, code = CODES.get((class_of(instance_type), market), ("", ""))
    family = instance_type.partition(".")[0]
    return Quota("aws", region, code, name or f"{family} {market}", "vCPU")


@dataclass(frozen=True, slots=True)
class Ec2QuotaReader:
    """Reads limits and their usage."""

    account: AwsAccount
    catalogue: InstanceCatalogue

    def demands(self, place: Place) -> tuple[Demand, ...]:
        """Return the vCPUs of one machine at the place. Raises ProviderError."""
        quota = quota_of(place.instance_type, place.region, place.market)
        return (
            Demand(quota, self.catalogue.instance_type(place.instance_type, place.region).vcpus),
        )

    def level(self, quota: Quota) -> QuotaLevel:
        """Return limit and usage of a quota; an unreadable value is unknown, with the reason."""
        if not quota.code:
            return QuotaLevel(None, None, f"which limit {quota.name} counts against is not known")
        try:
            limit = self._limit(quota)
        except ProviderError as error:
            return QuotaLevel(None, None, str(error))
        try:
            return QuotaLevel(limit, self._used(quota))
        except ProviderError as error:
            return QuotaLevel(limit, None, str(error))

    def _limit(self, quota: Quota) -> int:
        asked = {"ServiceCode": SERVICE, "QuotaCode": quota.code}
        try:
            answer = self.account.read(
                "service-quotas", quota.scope, "get_service_quota", what=quota.code, **asked
            )
        except ProviderError as error:
            if error.code != "NoSuchResourceException":
                raise
            # The service lists no quota for an account whose limit was never changed.
            answer = self.account.read(
                "service-quotas",
                quota.scope,
                "get_aws_default_service_quota",
                what=quota.code,
                **asked,
            )
        return int(answer["Quota"]["Value"])

    def _used(self, quota: Quota) -> int:
        running = self.account.pages(
            "ec2",
            quota.scope,
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}],
        )
        found = (one for reservation in running for one in reservation["Instances"])
        return sum(self._vcpus(one, quota) for one in found)

    def _vcpus(self, instance: Answer, quota: Quota) -> int:
        market = "spot" if instance.get("InstanceLifecycle") == "spot" else "on-demand"
        name = str(instance["InstanceType"])
        if quota_of(name, quota.scope, market).code != quota.code:
            return 0
        cpus = instance.get("CpuOptions") or {}
        if cpus.get("CoreCount") and cpus.get("ThreadsPerCore"):
            return int(cpus["CoreCount"]) * int(cpus["ThreadsPerCore"])
        return self.catalogue.instance_type(name, quota.scope).vcpus
