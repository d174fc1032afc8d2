"""Which image a machine would boot from, asked before there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Platform


@dataclass(frozen=True, slots=True)
class BootImage:
    """The image that a provider would boot now."""

    id: str
    """As its machines' facts have it; empty where it does not fix what the machine will be."""
    simulated: bool = False
    """The provider is an emulation."""
    name: str = ""
    """As its publisher calls it; empty where it has no name."""


@runtime_checkable
class Images(Protocol):
    """A provider that can name the image it would boot, without booting it."""

    def image(self, platform: Platform, place: Place) -> BootImage:
        """The image of a machine that was launched there now. Raises ProviderError."""
        ...
