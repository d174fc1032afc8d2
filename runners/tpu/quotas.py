"""Quotas: chips per zone, one number for each generation and market."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from google.cloud.cloudquotas_v1 import ListQuotaInfosRequest, QuotaInfo

from orchestrator.domain.machine import ConfigError, Place, ProviderError
from orchestrator.domain.matrix import Platform
from orchestrator.domain.quota import Demand, Quota, QuotaLevel
from runners.google.clients import Clients
from runners.google.quotas import ADDRESSES, ComputeQuotaReader, address_demand
from runners.google.responses import limit_of
from runners.tpu.client import READ_TIMEOUT_S, TpuApi, guarded
from runners.tpu.names import location
from runners.tpu.places import PROVIDER
from runners.tpu.platform_config import accelerator, parse_platform
from runners.tpu.states import ListedTpu, market_of, spec_of
from runners.tpu.status import TpuStatusReader

SERVICE = "tpu.googleapis.com"
KEEP = timedelta(minutes=1)
# As Cloud Quotas names them. Types of one host (up to 8 chips) draw on the quota for serving, not
# on that for training. Where the names differ the level is unknown, never enough.
_CODES = {
    ("v5e", "on-demand"): "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI",
    ("v5e", "spot"): "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI",
}


class TpuQuotaReader:
    """Reads quotas and counts their usage."""

    def __init__(
        self,
        tpu_api: TpuApi,
        status: TpuStatusReader,
        clients: Clients,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._tpu_api = tpu_api
        self._status = status
        self._clients = clients
        self._now = now
        self._infos: tuple[datetime, list[QuotaInfo]] | None = None

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return the quotas of one machine: chips in its zone and market, and an address."""
        config = parse_platform(platform)
        kind = config.accelerator
        code = _CODES.get((kind.generation, place.market), f"{kind.generation} quota")
        name = f"TPU {kind.generation} chips, {place.market}"
        chips = Demand(Quota(PROVIDER, place.zone, code, name, "chip"), kind.chips)
        return (chips, address_demand(place.region)) if config.public else (chips,)

    def level(self, quota: Quota) -> QuotaLevel:
        """Return limit and usage; a value that cannot be read is unknown, with the reason."""
        if quota.code == ADDRESSES:
            return self._addresses(quota)
        try:
            limit, why = self._limit(quota)
            used = self._used(quota) if limit is not None else None
        except ProviderError as error:
            return QuotaLevel(None, None, str(error))
        return QuotaLevel(limit, used, why)

    def _addresses(self, quota: Quota) -> QuotaLevel:
        if self._clients.has_compute:
            return ComputeQuotaReader(self._clients).level(quota)
        why = "SEATRIAL_GCP_COMPUTE_ENDPOINT is not set, and the clouds are emulated"
        return QuotaLevel(None, None, f"{why}: the real Compute Engine is not asked")

    def _limit(self, quota: Quota) -> tuple[int | None, str]:
        if quota.code not in _CODES.values():
            return None, f"the quota of {quota.name} has no name here"
        if not self._clients.has_quotas:
            return None, (
                "SEATRIAL_GCP_QUOTAS_ENDPOINT is not set, and the clouds are emulated: the real "
                "Cloud Quotas is not asked"
            )
        for info in self._all_infos():
            if info.quota_id == quota.code:
                return _limit_in(info, quota.scope)
        return None, f"Cloud Quotas lists no {quota.code}"

    def _all_infos(self) -> list[QuotaInfo]:
        now = self._now()
        if self._infos is None or self._infos[0] <= now:
            found = guarded("read the quotas of the TPU API", self._list)
            self._infos = (now + KEEP, found)
        return self._infos[1]

    def _list(self) -> list[QuotaInfo]:
        parent = f"{location(self._tpu_api.project, 'global')}/services/{SERVICE}"
        request = ListQuotaInfosRequest(parent=parent, page_size=500)
        return list(self._clients.quotas.list_quota_infos(request, timeout=READ_TIMEOUT_S))

    def _used(self, quota: Quota) -> int:
        """Return the chips of all TPUs listed in the zone, of any owner and in any state."""
        return sum(_chips(seen, quota.code) for seen in self._status.in_zone(quota.scope))


def _limit_in(info: QuotaInfo, zone: str) -> tuple[int | None, str]:
    general: int | None = None
    for one in info.dimensions_infos:
        dimensions = dict(one.dimensions)
        if dimensions.get("zone") == zone or dimensions.get("location") == zone:
            return limit_of(one.details.value), ""
        if not dimensions and (not one.applicable_locations or zone in one.applicable_locations):
            general = limit_of(one.details.value)
    return general, "" if general is not None else f"{info.quota_id} says nothing of {zone}"


def _chips(seen: ListedTpu, code: str) -> int:
    spec = spec_of(seen)
    if spec is None:
        return 0
    try:
        kind = accelerator(spec.accelerator_type, spec.runtime_version or "any")
    except ConfigError:
        return 0  # several hosts, or nothing that the quotas above are about
    return kind.chips if _CODES.get((kind.generation, market_of(seen))) == code else 0
