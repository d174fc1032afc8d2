"""Evidence that our agent did not produce: where it is from, and how far it can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from orchestrator.domain.parsed_results import Provenance

_STRICT = {"extra": "forbid", "use_attribute_docstrings": True}


class SourceState(StrEnum):
    """What became of an artifact."""

    READ = "read"
    INCONSISTENT = "inconsistent"
    """Read, but its lines, what it announced and what it summed up do not agree."""
    KEPT = "kept"
    """No dialect knows it: it is kept, and says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One artifact and what was made of it."""

    __pydantic_config__ = _STRICT

    name: str
    """Its path below the folder or archive that was handed in."""
    digest: str
    """sha256 of the bytes as they came."""
    size_bytes: int
    state: SourceState = SourceState.KEPT
    dialect: str = ""
    """``pytest-text 1``: name and version."""
    provenance: Provenance | None = None
    confidence: float = 0.0
    """From 0 to 1: how sure the dialect is that the artifact is its own."""
    jobs: tuple[str, ...] = ()
    """Ids of the jobs that it speaks of."""
    announced: int | None = None
    """Tests that it says were collected."""
    named: int | None = None
    """Tests that it names."""
    summed: int | None = None
    """Tests in its own sum."""
    stamps: tuple[str, ...] = ()
    """``KernelPyTorch 0.4.5``: what it says was under test."""
    remarks: tuple[str, ...] = ()
    """What a person must know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A test with different outcomes in two artifacts. It counts once, as the worst."""

    __pydantic_config__ = _STRICT

    job: str
    nodeid: str
    sources: tuple[tuple[str, str], ...]
    """(artifact, outcome's word)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMachine:
    """The machine as a person stated it; it was not leased by us and is in no ledger."""

    __pydantic_config__ = _STRICT

    place: str = ""
    """Region or zone."""
    instance_type: str = ""
    """As its provider calls it."""
    market: str = ""
    """``spot`` or ``on-demand``."""
    seconds: Decimal | None = None
    """How long it was held."""
    usd_per_hour: Decimal | None = None
    priced: str = ""
    """Where the price is from, and of when."""
    machine_id: str = ""
    """As its provider called it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What a cell that was ingested is made from."""

    __pydantic_config__ = _STRICT

    fingerprint: str
    """sha256 over everything that was handed in: the same again is the same cell."""
    ingested_at: datetime
    """When it was handed in."""
    dated_at: datetime
    """When it is said to have happened; the same as `ingested_at` where nobody says."""
    is_dated: bool = False
    """Whether somebody, or an artifact, says when it happened."""
    sources: tuple[Source, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    repeated: int = 0
    """Tests that stand in more than one artifact; each counts once."""
    machine: StatedMachine | None = None

    @property
    def provenance(self) -> Provenance:
        """The least reliable of its sources'."""
        order = (Provenance.TRANSCRIBED, Provenance.PARSED_TEXT, Provenance.STRUCTURED)
        found = {source.provenance for source in self.sources}
        return next((p for p in order if p in found), Provenance.STRUCTURED)


AnnotationKind = Literal["narrative", "fix", "recommendation", "known-issue", "note", "conclusion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnnotation:
    """Something that a person wrote for the reports: dated, signed, and checked against results."""

    __pydantic_config__ = _STRICT

    kind: AnnotationKind
    text: str
    """Markdown, not trusted."""
    author: str
    at: datetime
    title: str = ""
    cell: str = ""
    """The cell that it is about; empty: the whole run."""
    files: tuple[str, ...] = ()
    problem: str = ""
    """Of a fix: what was wrong."""
    before: str = ""
    """Of a fix: the code before."""
    after: str = ""
    """Of a fix: the code after."""
    commit: str = ""
