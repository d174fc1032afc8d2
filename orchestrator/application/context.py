"""What the operations that faces call are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.application.janitor import Janitor
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.clock import Clock, Cron, NewId
from orchestrator.application.ports.documents import Documents
from orchestrator.application.ports.ingest_upload import Intake
from orchestrator.application.ports.notification_sender import Courier
from orchestrator.application.ports.result_parsers import Dialects
from orchestrator.application.ports.signer import Notary
from orchestrator.application.ports.subjects import Subjects
from orchestrator.application.ports.text_similarity import Likeness
from orchestrator.application.ports.trends import Detector
from orchestrator.application.process_locks import Locks
from orchestrator.application.read_log import LogIndexes
from orchestrator.domain.budget import Budget
from orchestrator.domain.gate.performance import Statistics
from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.lint_findings import DocumentFinding, Doubt, ForeignDocument
from orchestrator.domain.machine import Provider, ProviderTraits
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.run_record import Evidence
from orchestrator.store.stores import Stores


@dataclass(frozen=True, slots=True)
class GatePorts:
    """The ports of gates and schedules."""

    statistics: Statistics
    """Tests on samples."""
    notary: Notary
    """Signs verdicts."""
    cron: Cron
    """When schedules are due."""
    subjects: Subjects
    """What a branch means when a schedule fires."""
    courier: Courier
    """Tells people."""
    detector: Detector
    """Finds change points of benchmarks."""
    public_url: str = ""
    """Where people reach this controller, for links in messages; empty where nobody said."""


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
    export: Callable[[str, Evidence, str | None], Iterator[str]]
    """Pieces of a document of (format, evidence, cell). Raises ReportRefusedError at once."""
    export_media: Mapping[str, str]
    """The formats of exports, and their media types."""
    lint: Callable[[Sequence[ForeignDocument], Evidence | None], tuple[DocumentFinding, ...]]
    """What is wrong in reports that others wrote, by themselves and against a run's results."""
    doubt: Callable[[RunAnnotation, Evidence], tuple[Doubt, ...]]
    """What the results say against something that a person wrote."""
    builtin_payload: Callable[[], str]
    """Digest of the payload that comes with Seatrial; stored on the first call."""
    secret: Callable[[str], str | None]
    janitor: Janitor
    """Looks over the project's machines, and ends what nobody owns."""
    similarity: Likeness
    dialects: Dialects
    """How other programs write results down."""
    intake: Intake
    """Unpacks what somebody hands in."""
    scratch: Path
    """The folder for uploads while they come."""
    publish: Callable[[Evidence], Path]
    """Writes a run's reports down."""
    wake: Callable[[str], None]
    """Tells the engine of a new cell, where this process runs cells."""
    gate: GatePorts
    """What gates and schedules work with."""
    budgets: tuple[Budget, ...] = ()
    """Across runs; a run's own is in its matrix."""
    locks: Locks = field(default_factory=Locks)
    """So that one run is finished by one thread at a time."""
    log_indexes: LogIndexes = field(default_factory=LogIndexes)
    """Where the lines of logs begin, of those that were looked at."""
