"""Ingested evidence: the artifacts it comes from, and their reliability."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.parsed_results import Provenance

UPLOAD_LIMIT_BYTES = 2 * 1024**3
"""Maximum size of an upload of artifacts, in bytes."""


class SourceState(StrEnum):
    """State of an artifact."""

    READ = "read"
    INCONSISTENT = "inconsistent"
    """Parsed, but its lines, announced and summed counts disagree."""
    KEPT = "kept"
    """No dialect recognises it: it is stored, and not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An artifact and its parse result."""

    __pydantic_config__ = STRICT

    name: str
    """Path below the uploaded folder or archive."""
    digest: str
    """sha256 of the bytes as they came."""
    size_bytes: int
    state: SourceState = SourceState.KEPT
    dialect: str = ""
    """``pytest-text 1``: name and version."""
    provenance: Provenance | None = None
    confidence: float = 0.0
    """From 0 to 1: how certain the dialect is."""
    jobs: tuple[str, ...] = ()
    """Ids of its jobs."""
    announced: int | None = None
    """Number of tests that it announces."""
    named: int | None = None
    """Number of tests that it names."""
    summed: int | None = None
    """Number of tests in its summary."""
    stamps: tuple[str, ...] = ()
    """The tested software that it prints: ``KernelPyTorch 0.4.5``."""
    remarks: tuple[str, ...] = ()
    """Remarks for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A test with different outcomes in two artifacts. It counts once, as the worst."""

    __pydantic_config__ = STRICT

    job: str
    nodeid: str
    sources: tuple[tuple[str, str], ...]
    """(artifact, outcome's word)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMachine:
    """A machine as stated by a person; it has no lease."""

    __pydantic_config__ = STRICT

    place: str = ""
    """Region or zone."""
    instance_type: str = ""
    """The provider's instance type."""
    market: str = ""
    """``spot`` or ``on-demand``."""
    seconds: Decimal | None = None
    """Seconds for which the machine was held."""
    usd_per_hour: Decimal | None = None
    priced: str = ""
    """Source and date of the price."""
    machine_id: str = ""
    """The provider's machine id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Provenance of an ingested cell."""

    __pydantic_config__ = STRICT

    fingerprint: str
    """sha256 of the whole upload: an identical upload is the same cell."""
    ingested_at: datetime
    """Time of the upload."""
    dated_at: datetime
    """Stated time of the results; the same as `ingested_at` by default."""
    is_dated: bool = False
    """Whether a person or an artifact states the time."""
    sources: tuple[Source, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    repeated: int = 0
    """Tests that occur in more than one artifact; each counts once."""
    machine: StatedMachine | None = None

    @property
    def provenance(self) -> Provenance:
        """Return the least reliable provenance of its sources."""
        order = (Provenance.TRANSCRIBED, Provenance.PARSED_TEXT, Provenance.STRUCTURED)
        found = {source.provenance for source in self.sources}
        return next((p for p in order if p in found), Provenance.STRUCTURED)

    @property
    def origin(self) -> str:
        """``ingested (parsed text)``: what pages say beside the results."""
        return f"ingested ({self.provenance.replace('_', ' ')})"

    @property
    def inconsistent(self) -> tuple[Source, ...]:
        """Return the artifacts whose figures contradict their tests."""
        return tuple(one for one in self.sources if one.state is SourceState.INCONSISTENT)


AnnotationKind = Literal["narrative", "fix", "recommendation", "known-issue", "note", "conclusion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnnotation:
    """An annotation of a run: dated, signed, and checked against results."""

    __pydantic_config__ = STRICT

    kind: AnnotationKind
    text: str
    """Markdown, not trusted."""
    author: str
    at: datetime
    title: str = ""
    cell: str = ""
    """The cell that it refers to; empty for the whole run."""
    files: tuple[str, ...] = ()
    problem: str = ""
    """The problem that a fix solves."""
    before: str = ""
    """The code before a fix."""
    after: str = ""
    """The code after a fix."""
    commit: str = ""
