"""What every provider is constructed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.domain.machine import StaticHosts
    from orchestrator.domain.prices import PriceBook


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """The only constructor argument of every provider."""

    book: StaticHosts
    """Stores the machines of a provider that has no cloud to list them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``project, ingress_cidr, gcp_project`` and the endpoints that the settings override."""
    prices: PriceBook | None = None
    """Prices refreshed since the shipped tables; None for none."""
    now: Callable[[], datetime] = lambda: datetime.fromtimestamp(0, UTC)
    """The clock."""
    templates: Path = Path("templates")
    """The folder with ``cloud_init/``."""
