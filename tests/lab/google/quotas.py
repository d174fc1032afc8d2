"""Compute Engine's quotas: limits that a test sets, usage that the instances make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.lab.cloud_facts import rows
from tests.lab.faults import Fault
from tests.lab.google.front import Json
from tests.lab.google.orders import Order

REGIONAL = {code: float(row.value) for code, row in rows("gcp", "quota of a region").items()}
GLOBAL = {code: float(row.value) for code, row in rows("gcp", "quota of the project").items()}
_GPU_METRICS = {"nvidia-l4": "NVIDIA_L4_GPUS", "nvidia-h100-80gb": "NVIDIA_H100_GPUS"}


@dataclass(slots=True)
class ComputeQuotas:
    """Limits by (region, metric), region "" for the whole project; None is no such metric there."""

    _limits: dict[tuple[str, str], float | None] = field(default_factory=dict)
    _strangers: dict[tuple[str, str], float] = field(default_factory=dict)

    def set(self, metric: str, limit: float, *, region: str = "") -> None:
        """This is the limit; without a region the project's, or every region's."""
        self._limits[region, metric] = limit

    def forget(self, metric: str, *, region: str = "") -> None:
        """The answer no longer has the metric: unknown."""
        self._limits[region, metric] = None

    def use(self, metric: str, amount: float, *, region: str = "") -> None:
        """So much is in use by others of the project."""
        self._strangers[region, metric] = amount

    def answer(self, region: str, orders: Iterable[Order]) -> list[Json]:
        """`quotas[]` of a region, or of the project for ""."""
        usage = self._usage(region, orders)
        rows = []
        for metric in GLOBAL if region == "" else REGIONAL:
            limit = self._limit(region, metric)
            if limit is not None:
                rows.append({"metric": metric, "limit": limit, "usage": usage.get(metric, 0.0)})
        return rows

    def refusal(self, order: Order, orders: Iterable[Order]) -> Fault | None:
        """Why this order cannot be, beside those that are."""
        orders = list(orders)
        for region in (order.region, ""):
            usage = self._usage(region, orders)
            for metric, amount in self._need(order, region).items():
                limit = self._limit(region, metric)
                if limit is not None and usage.get(metric, 0.0) + amount > limit:
                    return _exceeded(metric, limit, region)
        return None

    def _limit(self, region: str, metric: str) -> float | None:
        usual = (GLOBAL if region == "" else REGIONAL).get(metric)
        everywhere = self._limits.get(("", metric), usual)
        return self._limits.get((region, metric), everywhere)

    def _usage(self, region: str, orders: Iterable[Order]) -> Mapping[str, float]:
        usage = {metric: used for (where, metric), used in self._strangers.items()
                 if where == region}  # fmt: skip
        for order in orders:
            if region in ("", order.region):
                for metric, amount in self._need(order, region).items():
                    usage[metric] = usage.get(metric, 0.0) + amount
        return usage

    def _need(self, order: Order, region: str) -> Mapping[str, float]:
        kind = order.machine_type
        gpus = float(kind.accelerators)
        if region == "":
            whole = {"CPUS_ALL_REGIONS": float(kind.cpus)}
            return whole | ({"GPUS_ALL_REGIONS": gpus} if gpus else {})
        # Spot draws on quotas of its own only where the project was given some.
        own_cpus = order.spot and self._limit(region, "PREEMPTIBLE_CPUS")
        need = {"PREEMPTIBLE_CPUS" if own_cpus else "CPUS": float(kind.cpus), "INSTANCES": 1.0}
        need["SSD_TOTAL_GB"] = float(sum(disk.size_gb for disk in order.disks if disk.is_ssd))
        need["IN_USE_ADDRESSES"] = 1.0 if order.external else 0.0
        if gpus:
            metric = _GPU_METRICS[kind.accelerator]
            own_gpus = order.spot and self._limit(region, f"PREEMPTIBLE_{metric}")
            need[f"PREEMPTIBLE_{metric}" if own_gpus else metric] = gpus
        return need


def _exceeded(metric: str, limit: float, region: str) -> Fault:
    where = f"in region {region}" if region else "globally"
    return Fault(
        code="QUOTA_EXCEEDED",
        message=f"Quota '{metric}' exceeded.  Limit: {limit} {where}.",
        status=403,
        in_operation=True,
        details={"metricName": metric, "limitName": f"{metric}-per-project", "limit": str(limit)},
    )
