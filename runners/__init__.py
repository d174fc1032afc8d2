"""Everything that touches a machine: providers, the workspace on it, shells, and the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.domain.machine import MachineBook


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What every provider is built from; its only argument."""

    book: MachineBook
    """Where a provider without a cloud of its own remembers its machines."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Names and endpoints that the controller's settings hold for providers."""
