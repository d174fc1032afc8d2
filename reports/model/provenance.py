"""The origin of a cell's results, and the placement of its machine."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.cell import PlacementDecision
from reports.model.values import Absent


@dataclass(frozen=True, slots=True)
class AttestedDevice:
    """An accelerator as the machine's own tool names it."""

    name: str
    uuid: str | Absent
    compute_capability: str | Absent
    driver: str | Absent


@dataclass(frozen=True, slots=True)
class Attested:
    """The attested facts of provider and machine."""

    facts: tuple[tuple[str, str], ...]
    """The provider's: instance, image, zone, market."""
    devices: tuple[AttestedDevice, ...]
    torch: str | Absent
    mismatch: str
    """How it differs from what the matrix asked for; empty when it does not."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The place and the machine of a cell, and why it ran there."""

    simulated: bool
    """The machine is an emulation: no gate accepts its results."""
    attested: Attested | Absent
    decisions: tuple[PlacementDecision, ...]
    decisions_hidden: int
