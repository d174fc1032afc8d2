"""How an ingested cell is told: where its evidence is from, and how far it can be believed."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from orchestrator.api.models import ResponseModel
from orchestrator.domain.cell import RunState
from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.parsed_results import Provenance


class SourceResponse(ResponseModel):
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


class ToldOtherwiseResponse(ResponseModel):
    """What one artifact says of a test."""

    source: str
    outcome: str


class DisagreementResponse(ResponseModel):
    """A test that artifacts tell differently; it counts once, as the worst."""

    job: str
    nodeid: str
    sources: list[ToldOtherwiseResponse]


class StatedMachineResponse(ResponseModel):
    """The machine as a person stated it."""

    place: str
    instance_type: str
    market: str
    seconds: Decimal | None
    usd_per_hour: Decimal | None
    priced: str
    machine_id: str


class IngestedResponse(ResponseModel):
    """What an ingested cell is made from."""

    provenance: Provenance
    """Of the least reliable source."""
    ingested_at: datetime
    dated_at: datetime
    is_dated: bool
    """Whether anybody says when it happened; else `dated_at` is when it was handed in."""
    sources: list[SourceResponse]
    disagreements: list[DisagreementResponse]
    repeated: int
    """Tests that stand in more than one artifact; each counts once."""
    machine: StatedMachineResponse | None


class IngestResponse(ResponseModel):
    """What became of what was handed in."""

    run: str
    """The run's id."""
    cell: str
    state: RunState
    outcome: Outcome | None
    """The cell's."""
    replayed: bool
    """The very same was handed in before."""
    ingested: IngestedResponse
