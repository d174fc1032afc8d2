"""How an ingested cell is told: where its evidence is from, and how far it can be believed."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from orchestrator.api.response_base import Shape
from orchestrator.domain.cell import RunState
from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.parsed_results import Provenance


class SourceShape(Shape):
    """One artifact, and what was made of it."""

    name: str
    """Its path below the folder or archive."""
    sha256: str
    size_bytes: int
    state: SourceState
    """``inconsistent``: its lines, what it announced and what it summed up do not agree."""
    dialect: str
    """Name and version; empty where none knows it."""
    provenance: Provenance | None
    confidence: float
    """From 0 to 1."""
    jobs: list[str]
    announced: int | None
    """Tests that it says were collected."""
    named: int | None
    """Tests that it names, or counts."""
    summed: int | None
    """Tests in its own sum."""
    stamps: list[str]
    """What it says was under test."""
    remarks: list[str]


class ToldOtherwiseShape(Shape):
    """What one artifact says of a test."""

    source: str
    outcome: str


class DisagreementShape(Shape):
    """A test that artifacts tell differently; it counts once, as the worst."""

    job: str
    nodeid: str
    sources: list[ToldOtherwiseShape]


class StatedMachineShape(Shape):
    """The machine as a person stated it."""

    place: str
    instance_type: str
    market: str
    seconds: Decimal | None
    usd_per_hour: Decimal | None
    priced: str
    machine_id: str


class IngestedShape(Shape):
    """What an ingested cell is made from."""

    provenance: Provenance
    """Of the least reliable source."""
    ingested_at: datetime
    dated_at: datetime
    is_dated: bool
    """Whether anybody says when it happened; else `dated_at` is when it was handed in."""
    sources: list[SourceShape]
    disagreements: list[DisagreementShape]
    repeated: int
    """Tests that stand in more than one artifact; each counts once."""
    machine: StatedMachineShape | None


class IngestAnswerShape(Shape):
    """What became of what was handed in."""

    run: str
    """The run's id."""
    cell: str
    state: RunState
    outcome: Outcome | None
    """The cell's."""
    replayed: bool
    """The very same was handed in before."""
    ingested: IngestedShape
