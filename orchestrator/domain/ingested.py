"""Ingested evidence: its artifacts and their reliability."""

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
    """Parsed, but the listed tests, the announced count and the summary disagree."""
    KEPT = "kept"
    """Stored and not used, because no dialect recognises it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An artifact with the result of parsing it."""

    __pydantic_config__ = STRICT

    name: str
    """Path in the uploaded folder or archive."""
    digest: str
    """sha256 of the uploaded bytes."""
    size_bytes: int
    state: SourceState = SourceState.KEPT
    dialect: str = ""
    """Name and version of the dialect, such as ``pytest-text 1``."""
    provenance: Provenance | None = None
    confidence: float = 0.0
    """Certainty that the dialect is the right one, from 0 to 1."""
    jobs: tuple[str, ...] = ()
    """Ids of the jobs that it has results of."""
    announced: int | None = None
    """Number of tests that the artifact announces."""
    named: int | None = None
    """Number of tests that the artifact names."""
    summed: int | None = None
    """Number of tests in the artifact's summary."""
    stamps: tuple[str, ...] = ()
    """Names and versions of the tested software in the artifact, such as ``KernelPyTorch 0.4.5``.
    """
    remarks: tuple[str, ...] = ()
    """Remarks about the artifact for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A test with different outcomes in two artifacts; it counts once, with the worst outcome."""

    __pydantic_config__ = STRICT

    job: str
    nodeid: str
    sources: tuple[tuple[str, str], ...]
    """(artifact, outcome) of each artifact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMachine:
    """A machine as stated by a person; it has no lease."""

    __pydantic_config__ = STRICT

    place: str = ""
    """The region or zone."""
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
    """The sources and times of an ingested cell."""

    __pydantic_config__ = STRICT

    fingerprint: str
    """sha256 of the whole upload; an identical upload becomes the same cell."""
    ingested_at: datetime
    """Time of the upload."""
    dated_at: datetime
    """Stated time of the results; by default equal to `ingested_at`."""
    is_dated: bool = False
    """Whether a person or an artifact states the time of the results."""
    sources: tuple[Source, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    repeated: int = 0
    """Number of tests in more than one artifact; each counts once."""
    machine: StatedMachine | None = None

    @property
    def provenance(self) -> Provenance:
        """The least reliable provenance of the sources."""
        order = (Provenance.TRANSCRIBED, Provenance.PARSED_TEXT, Provenance.STRUCTURED)
        found = {source.provenance for source in self.sources}
        return next((p for p in order if p in found), Provenance.STRUCTURED)

    @property
    def origin(self) -> str:
        """The text that pages show beside the results: ``ingested (parsed text)``."""
        return f"ingested ({self.provenance.replace('_', ' ')})"

    @property
    def inconsistent(self) -> tuple[Source, ...]:
        """The artifacts whose figures contradict their tests."""
        return tuple(one for one in self.sources if one.state is SourceState.INCONSISTENT)


AnnotationKind = Literal["narrative", "fix", "recommendation", "known-issue", "note", "conclusion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnnotation:
    """An annotation of a run."""

    __pydantic_config__ = STRICT

    kind: AnnotationKind
    text: str
    """The text, in Markdown; not trusted."""
    author: str
    at: datetime
    title: str = ""
    cell: str = ""
    """Name of the cell that it refers to; empty for the whole run."""
    files: tuple[str, ...] = ()
    problem: str = ""
    """The problem that a fix solves."""
    before: str = ""
    """The code before a fix."""
    after: str = ""
    """The code after a fix."""
    commit: str = ""
