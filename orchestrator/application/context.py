"""What the operations that faces call are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.clock import Clock, NewId
from orchestrator.application.ports.documents import Documents
from orchestrator.application.ports.stores import Stores
from orchestrator.application.sweep_leaks import Janitor
from orchestrator.domain.machine import Provider, ProviderTraits
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.record import Evidence


@dataclass(frozen=True, slots=True)
class Context:
    """The ports of a controller, as its faces and operations use them."""

    stores: Stores
    blobs: Blobs
    clock: Clock
    new_id: NewId
    documents: Documents
    traits: Mapping[str, ProviderTraits]
    """Every provider by name."""
    provider: Callable[[str], Provider]
    read_payload: Callable[[Path], Manifest]
    """Checks an uploaded archive and reads its manifest. Raises InvalidDocumentError."""
    render: Callable[[str, Evidence, str | None, str], str]
    """Renders (kind, evidence, cell, format: md, html or json)."""
    draw: Callable[[str, Evidence, str | None], Mapping[str, str]]
    """The plots that the Markdown of (kind, evidence, cell) links: SVG by path."""
    report_kinds: tuple[str, ...]
    builtin_payload: Callable[[], str]
    """Digest of the payload that comes with Seatrial; stored on the first call."""
    secret: Callable[[str], str | None]
    janitor: Janitor
    """Looks over the project's machines, and ends what nobody owns."""
    wake: Callable[[str], None]
    """Tells the engine of a new cell, where this process runs cells."""
