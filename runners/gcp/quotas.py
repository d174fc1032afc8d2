"""Whether the project may have so many machines at once: limit and usage, per region and in all."""

from __future__ import annotations

from collections.abc import Iterable

from google.cloud import compute_v1

from orchestrator.domain.machine import Place, ProviderError
from orchestrator.domain.quota import Demand, Quota, QuotaLevel
from runners.gcp.clients import ComputeClients
from runners.gcp.machines import KNOWN
from runners.gcp.platform_config import PlatformConfig
from runners.gcp.prices import PROVIDER
from runners.google.responses import READ_TIMEOUT_S, NotThereError, limit_of, read

_GPUS_ALL, _CPUS_ALL = "GPUS_ALL_REGIONS", "CPUS_ALL_REGIONS"
_OWN_SPOT_CPUS = "PREEMPTIBLE_CPUS"
_ABSENT = (
    "{code} is not among the quotas that Compute Engine tells of {scope}; newer quotas are only in "
    "the console (IAM and admin, Quotas)"
)
_NO_SPOT_CPUS = (
    "the project was given no PREEMPTIBLE_CPUS, so that spot machines take CPUS like all others"
)


class QuotaReader:
    """Answers `level`."""

    def __init__(self, clients: ComputeClients) -> None:
        self._clients = clients

    def level(self, quota: Quota) -> QuotaLevel:
        """Limit and usage now; unknown, with the reason, where the cloud does not tell."""
        try:
            found = self._quotas(quota)
        except (ProviderError, NotThereError) as error:
            return QuotaLevel(None, None, str(error))
        for each in found:
            if each.metric == quota.code:
                if quota.code == _OWN_SPOT_CPUS and not each.limit:
                    return QuotaLevel(None, None, _NO_SPOT_CPUS)
                return QuotaLevel(limit_of(each.limit), int(each.usage))
        return QuotaLevel(None, None, _ABSENT.format(code=quota.code, scope=quota.scope))

    def _quotas(self, quota: Quota) -> Iterable[compute_v1.Quota]:
        what = f"reading the quotas of {quota.scope}"
        if quota.code in (_GPUS_ALL, _CPUS_ALL):
            return read(
                what,
                lambda: self._clients.projects.get(
                    project=self._clients.project, retry=None, timeout=READ_TIMEOUT_S
                ),
            ).quotas
        return read(
            what,
            lambda: self._clients.regions.get(
                project=self._clients.project,
                region=quota.scope,
                retry=None,
                timeout=READ_TIMEOUT_S,
            ),
        ).quotas


def demands(config: PlatformConfig, place: Place, *, project: str) -> tuple[Demand, ...]:
    """What one machine there takes.

    Args:
        config: The platform's configuration.
        place: Where, in which market.
        project: The cloud's project, which is the scope of what holds everywhere.
    """
    shape = KNOWN.get(place.instance_type)
    spot = "PREEMPTIBLE_" if place.market == "spot" else ""
    found = [(place.region, "SSD_TOTAL_GB", "SSD disks", "GB", config.disk_gb)]
    if config.is_public:
        found.append((place.region, "IN_USE_ADDRESSES", "addresses in use", "addresses", 1))
    if shape is not None:
        gpu = shape.accelerator.removeprefix("nvidia-").upper()
        found += [
            (place.region, f"{spot}{shape.quota}", f"{gpu} {place.market}", "GPU", shape.count),
            (place.region, f"{spot}CPUS", f"CPUs {place.market}", "vCPU", shape.cpus),
            (project, _GPUS_ALL, "GPUs in all regions", "GPU", shape.count),
            (project, _CPUS_ALL, "CPUs in all regions", "vCPU", shape.cpus),
        ]
    return tuple(
        Demand(Quota(PROVIDER, scope, code, name, unit), amount)
        for scope, code, name, unit, amount in found
    )
