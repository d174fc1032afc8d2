"""Which interpreter and which packages an attempt gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.application.ports.stores import RunSpec


class EnvironmentRefusedError(Exception):
    """No environment can be made as it was asked for; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """What the agent needs to build the overlay environment."""

    python: str
    """Absolute path of the chosen interpreter on the machine."""
    requirements: tuple[str, ...]
    """Those that the interpreter does not satisfy already."""
    constraints: tuple[str, ...]
    """Versions that must stay."""
    wheels_digest: str | None
    """sha256 of the wheelhouse's archive; None when nothing has to be installed."""
    wheels: Callable[[], Iterable[bytes]]
    """Opens that archive."""
    subject: Mapping[str, str] | None
    """Distribution, version and requirement of the subject, where it is installed."""


class PrepareEnvironment(Protocol):
    """Resolves packages for one machine; may take minutes and use the controller's index."""

    def __call__(
        self, probe: Mapping[str, object], spec: RunSpec, environment: str
    ) -> PreparedEnvironment:
        """Raises EnvironmentRefusedError."""
        ...
