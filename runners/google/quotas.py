"""Quotas of Compute Engine, of a region and of the whole project; TPU machines use some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.cloud import compute_v1

from orchestrator.domain.machine import ProviderError
from orchestrator.domain.quota import Demand, Quota, QuotaLevel
from runners.google.clients import Clients
from runners.google.responses import READ_TIMEOUT_S, NotThereError, limit_of, read

GPUS_ALL, CPUS_ALL = "GPUS_ALL_REGIONS", "CPUS_ALL_REGIONS"
ADDRESSES = "IN_USE_ADDRESSES"
_SPOT = "PREEMPTIBLE_"
_ABSENT = (
    "{code} is not among the quotas that Compute Engine tells of {scope}; newer quotas are only in "
    "the console (IAM and admin, Quotas)"
)
_NO_SPOT = "the project was given no {code}, so that spot machines take {standard} like all others"


def address_demand(region: str) -> Demand:
    """Return the demand for an external address, a quota that all Google providers share."""
    return Demand(Quota("gcp", region, ADDRESSES, "external addresses", "IP"), 1)


class ComputeQuotaReader:
    """Reads limits and usage from Compute Engine."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def level(self, quota: Quota) -> QuotaLevel:
        """Return limit and usage; unknown, with the reason, if the cloud does not report them."""
        try:
            told = {each.metric: each for each in self._quotas(quota)}
        except (ProviderError, NotThereError) as error:
            return QuotaLevel(None, None, str(error))
        found = told.get(quota.code)
        if found is None:
            return QuotaLevel(None, None, _ABSENT.format(code=quota.code, scope=quota.scope))
        if quota.code.startswith(_SPOT) and not found.limit:
            return _without_spot(quota.code, told)
        return QuotaLevel(limit_of(found.limit), int(found.usage))

    def _quotas(self, quota: Quota) -> Iterable[compute_v1.Quota]:
        what = f"reading the quotas of {quota.scope}"
        if quota.code in (GPUS_ALL, CPUS_ALL):
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


def _without_spot(code: str, quotas: Mapping[str, compute_v1.Quota]) -> QuotaLevel:
    """Return the level of a spot quota of 0, which is replaced by the standard quota.

    Its free part is unknown, because standard machines use the same quota.
    """
    standard = code.removeprefix(_SPOT)
    there = quotas.get(standard)
    if there is not None and not there.limit:
        return QuotaLevel(0, int(there.usage))
    return QuotaLevel(None, None, _NO_SPOT.format(code=code, standard=standard))
