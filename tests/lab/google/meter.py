"""Google's own metering in the lab, which the product's bill is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Metered:
    """One billable thing; `ended_at` None while it still costs.

    Attributes:
        resource_id: Instance id, disk name, node name, or the external address itself.
        kind: "instance", "disk", "address" or "node".
        item: Machine or accelerator type, "pd-balanced:100" (type and GB) or "external-ipv4".
        market: "on-demand" or "spot"; "on-demand" for disks.
        zone: Where it is.
    """

    resource_id: str
    kind: str
    item: str
    market: str
    zone: str
    started_at: datetime
    ended_at: datetime | None = None


class Meter:
    """Opens and closes one line per thing."""

    def __init__(self) -> None:
        self._closed: list[Metered] = []
        self._open: dict[tuple[str, str], Metered] = {}

    def open(self, line: Metered) -> None:
        """From now on it costs; a line that is open already stays as it is."""
        self._open.setdefault((line.kind, line.resource_id), line)

    def close(self, kind: str, resource_id: str, at: datetime) -> None:
        """It costs no longer; what never did is no error."""
        line = self._open.pop((kind, resource_id), None)
        if line is not None:
            self._closed.append(replace(line, ended_at=at))

    def lines(self) -> list[Metered]:
        """All of it, in the order it began."""
        return sorted((*self._closed, *self._open.values()), key=lambda line: line.started_at)
