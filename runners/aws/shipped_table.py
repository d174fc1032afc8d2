"""The shipped, dated table: what the usual instance types are, and what they cost where."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import cast

from orchestrator.domain.prices import Price

DEFAULT_REGIONS = 3
MARKETS = ("on-demand", "spot")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What an instance of a type has."""

    name: str
    vcpus: int
    architecture: str
    """``x86_64`` or ``arm64``."""
    vendor: str = ""
    """Of its GPUs, in lower case; empty where it has none."""
    gpu: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Everything that is shipped."""

    as_of: datetime
    types: Mapping[str, InstanceType]
    prices: tuple[Price, ...]
    regions: tuple[str, ...]
    """Those with an on-demand price, the usual ones first."""
    disk_usd_per_gb_hour: Decimal
    address_usd_per_hour: Decimal

    @property
    def default_regions(self) -> tuple[str, ...]:
        """Where to look for a platform that names no location."""
        return self.regions[:DEFAULT_REGIONS]


@cache
def shipped() -> Table:
    """Read the table that lies beside this module."""
    text = Path(__file__).with_name("prices.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    as_of = datetime.combine(cast("date", read["as_of"]), datetime.min.time(), UTC)
    return Table(
        as_of=as_of,
        types={name: InstanceType(name=name, **facts) for name, facts in read["types"].items()},
        prices=tuple(
            Price("aws", item, region, market, Decimal(usd), as_of, "table")
            for market in MARKETS
            for region, items in read[market].items()
            for item, usd in items.items()
        ),
        regions=tuple(read["on-demand"]),
        disk_usd_per_gb_hour=Decimal(read["disk_usd_per_gb_month"]) / read["hours_per_month"],
        address_usd_per_hour=Decimal(read["address_usd_per_hour"]),
    )
