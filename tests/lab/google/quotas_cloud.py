"""Cloud Quotas in the lab: the limits of the TPU API; the real CloudQuotasClient reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.cloud_facts import rows
from tests.lab.google.front import ApiError, Json, Request, RestFront, page, utc_now
from tests.lab.google.places import V5E_ZONES

TPU_SERVICE = "tpu.googleapis.com"
_USUAL = rows("tpu", "quota of a zone")
V5E_QUOTAS = {row.text: code for code, row in _USUAL.items()}
"""The quota of each market."""
_S = "/v1/projects/<project>/locations/<location>/services/<service>"
_ROUTES = {
    "quotaInfos.list": f"GET {_S}/quotaInfos",
    "quotaInfos.get": f"GET {_S}/quotaInfos/<quota>",
}


@dataclass(slots=True)
class TpuQuotas:
    """Chips by market and zone; what a test sets is what Cloud TPU enforces too.

    Four of each is what a project has that never asked for more.
    """

    usual: int = _USUAL[V5E_QUOTAS["on-demand"]].value
    _limits: dict[tuple[str, str], int] = field(default_factory=dict)

    def set(self, zone: str, chips: int, *, market: str = "on-demand") -> None:
        """The zone's limit."""
        self._limits[market, zone] = chips

    def limit(self, zone: str, market: str) -> int:
        """The zone's limit."""
        return self._limits.get((market, zone), self.usual)


class QuotasCloud(RestFront):
    """Cloud Quotas at `endpoint_url`; give it a `TpuCloud`'s quotas. It tells no usage."""

    def __init__(
        self, *, quotas: TpuQuotas | None = None, clock: Callable[[], datetime] = utc_now
    ) -> None:
        super().__init__(_ROUTES, clock)
        self.quotas = TpuQuotas() if quotas is None else quotas

    def answer(self, request: Request) -> Json:
        if request.path["service"] != TPU_SERVICE:
            raise ApiError("notFound", "Requested entity was not found.", 404)
        parent = "projects/{project}/locations/{location}/services/{service}"
        infos = {name: self._info(parent.format(**request.path), name, market)
                 for market, name in V5E_QUOTAS.items()}  # fmt: skip
        if request.name == "quotaInfos.list":
            kept, following = page(list(infos.values()), request.query)
            return {"quotaInfos": kept, "nextPageToken": following}
        if request.path["quota"] not in infos:
            raise ApiError("notFound", "Requested entity was not found.", 404)
        return infos[request.path["quota"]]

    def _info(self, parent: str, name: str, market: str) -> Json:
        by_zone: list[Json] = [
            {"dimensions": {"zone": zone}, "applicableLocations": [zone],
             "details": {"value": str(self.quotas.limit(zone, market))}}
            for zone in V5E_ZONES
        ]  # fmt: skip
        return {
            "name": f"{parent}/quotaInfos/{name}", "quotaId": name, "service": TPU_SERVICE,
            "metric": f"{TPU_SERVICE}/{market}", "containerType": "PROJECT", "isConcurrent": True,
            "dimensions": ["zone"], "dimensionsInfos": by_zone, "metricUnit": "1",
        }  # fmt: skip
