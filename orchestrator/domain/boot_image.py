"""The image that a machine would boot, before it is launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Platform


@dataclass(frozen=True, slots=True)
class BootImage:
    """The image that a provider would boot now."""

    id: str
    """Image id as in the facts of machines; empty if it does not determine the machine."""
    simulated: bool = False
    """Whether the provider is an emulation."""
    name: str = ""
    """The publisher's name; empty without one."""


@runtime_checkable
class Images(Protocol):
    """A provider that knows its boot image without booting it."""

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image for a launch there. Raises ProviderError."""
        ...
