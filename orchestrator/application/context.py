"""Context of the application's operations: stores and ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Protocol

from orchestrator.application.cell.flow_context import Locks
from orchestrator.application.credentials import SignInLink
from orchestrator.application.janitor import Janitor
from orchestrator.application.ports.archives import PackedPayload
from orchestrator.application.ports.blobs import Blobs, HomeFiles
from orchestrator.application.ports.clock import Clock, Cron, NewId
from orchestrator.application.ports.documents import Documents
from orchestrator.application.ports.engine import FinishedFlows
from orchestrator.application.ports.identity_provider import IdentityProvider
from orchestrator.application.ports.result_parsers import Dialects
from orchestrator.application.ports.signer import Signer
from orchestrator.application.ports.statistics import Detector, TextSimilarity
from orchestrator.application.ports.uploads import UploadUnpacker
from orchestrator.application.ports.wheels import Subjects, Wheels
from orchestrator.application.ports.workspaces import OpenWorkspace
from orchestrator.application.read_log import LogIndexes
from orchestrator.domain.budget import Budget
from orchestrator.domain.caller_identity import Scope, SessionLimits
from orchestrator.domain.channel import NotificationSender
from orchestrator.domain.gate.performance import Statistics
from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.lint_findings import AnnotationConflict, DocumentFinding, ForeignDocument
from orchestrator.domain.machine import Provider, ProviderTraits
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.retention import RetentionPolicy
from orchestrator.domain.run_record import Evidence
from orchestrator.store.stores import Stores


@dataclass(frozen=True, slots=True)
class GatePorts:
    """Ports of gates and schedules."""

    statistics: Statistics
    """Tests on samples."""
    signer: Signer
    """Signs verdicts."""
    cron: Cron
    """Computes due times."""
    subjects: Subjects
    """Resolves a subject when a schedule fires."""
    sender: NotificationSender
    """Sends notifications."""
    detector: Detector
    """Detects change points."""
    public_url: str = ""
    """Public URL for links in notifications; empty if it is not configured."""


@dataclass(frozen=True, slots=True)
class RetentionPorts:
    """Ports of pruning."""

    policy: RetentionPolicy
    """How long each thing is kept."""
    home: HomeFiles
    """Files that this controller wrote into its home."""
    flows: FinishedFlows | None
    """Records of the engine; None in a process that runs no cells."""


@dataclass(frozen=True, slots=True)
class SignInPorts:
    """Ports and settings of signing in on the dashboard."""

    sessions: SessionLimits = SessionLimits()
    """How long a browser stays signed in."""
    issuer: IdentityProvider | None = None
    """Issuer at which people sign in; None if only tokens are accepted."""
    roles: tuple[tuple[str, Scope], ...] = ()
    """Groups of the issuer with the scope of their members; `*` is everybody."""
    public_url: str = ""
    """Public URL of the pages, to which the issuer sends browsers back."""
    link: SignInLink | None = None
    """The link that was printed at the start, if any."""
    project: str = ""
    """The project to sign in to, if the port serves several; else empty."""
    mark: str = ""
    """Prefix of the secrets of the project's tokens and sessions: see `Settings.mark`."""


TOKENS_ALONE = SignInPorts()


class Render(Protocol):
    """Renders reports."""

    def __call__(
        self, kind: str, evidence: Evidence, cell: str | None, form: str, *, alone: bool = False
    ) -> str:
        """Return a report as ``md``, ``html`` or ``json``.

        With `alone`, the report does not link to other files. Raises ReportRefusedError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The ports of a controller, used by REST, pages and operations."""

    stores: Stores
    blobs: Blobs
    clock: Clock
    new_id: NewId
    documents: Documents
    traits: Mapping[str, ProviderTraits]
    """Traits of every provider by name."""
    provider: Callable[[str], Provider]
    read_payload: Callable[[Path], Manifest]
    """Validates an uploaded archive and returns its manifest. Raises InvalidDocumentError."""
    pack_payload: Callable[[Path, Path], PackedPayload]
    """Packs a folder into an archive in another. Raises ArchiveError or InvalidDocumentError."""
    render: Render
    draw: Callable[[str, Evidence, str | None], Mapping[str, str]]
    """Draws the plots of (kind, evidence, cell): SVG by path."""
    report_kinds: Callable[[], Sequence[str]]
    """Returns the kinds of reports."""
    export: Callable[[str, Evidence, str | None], Iterator[str]]
    """Yields pieces of an export of (format, evidence, cell). Raises ReportRefusedError at once."""
    export_media: Callable[[], Mapping[str, str]]
    """Returns media types by export format."""
    lint: Callable[[Sequence[ForeignDocument], Evidence | None], tuple[DocumentFinding, ...]]
    """Lints foreign reports, alone and against a run's results."""
    doubt: Callable[[RunAnnotation, Evidence], tuple[AnnotationConflict, ...]]
    """Checks an annotation against the results."""
    builtin_payload: Callable[[], str]
    """Stores the built-in payload on the first call; returns its digest."""
    secret: Callable[[str], str | None]
    project: str
    """Name of the project, which its cloud resources have as a tag."""
    janitor: Janitor
    """Inventories the project's machines, and ends orphans."""
    similarity: TextSimilarity
    dialects: Dialects
    """Parsers of other programs' results."""
    intake: UploadUnpacker
    """Unpacks uploads."""
    scratch: Path
    """Folder for uploads in progress."""
    publish: Callable[[Evidence], Path]
    """Writes a run's reports."""
    wake: Callable[[str], None]
    """Notifies the engine of a new cell, where this process runs cells."""
    gate: GatePorts
    """Ports of gates and schedules."""
    retention: RetentionPorts
    """Ports of pruning."""
    open_workspace: OpenWorkspace
    wheels: Wheels
    """Resolves the interpreter and packages of an environment."""
    sign_in: SignInPorts = TOKENS_ALONE
    """Ports of signing in on the dashboard."""
    sole_launcher: str = ""
    """The only person who may have tokens that launch, because local jobs run as their user; empty
    if anybody may.
    """
    budgets: tuple[Budget, ...] = ()
    """Budgets across runs; the budget of a single run is in its matrix."""
    locks: Locks = field(default_factory=Locks)
    """Locks, so that one thread at a time finishes a run."""
    log_indexes: LogIndexes = field(default_factory=LogIndexes)
    """Line indexes of recently read logs."""


_OUTSIDE = frozenset(
    {
        *("blobs", "provider", "read_payload", "pack_payload", "builtin_payload", "secret"),
        *("janitor", "intake", "scratch", "publish", "wake", "retention", "open_workspace"),
        "wheels",
    }
)
"""Names of the ports that return data from outside of the database."""


@dataclass(slots=True)
class Sources:
    """Sources of the data of a response."""

    is_stored: bool = True
    """Whether all data came from the database."""


_SOURCES: ContextVar[Sources | None] = ContextVar("sources", default=None)


@contextmanager
def noting_sources() -> Iterator[Sources]:
    """Record whether the block, with its worker threads, uses ports beside the database."""
    sources = Sources()
    token = _SOURCES.set(sources)
    try:
        yield sources
    finally:
        _SOURCES.reset(token)


class NotedContext(Context):
    """A context that records the use of ports other than the database."""

    @classmethod
    def from_context(cls, context: Context) -> Context:
        """Return a recording context with the ports of `context`."""
        return cls(**{one.name: getattr(context, one.name) for one in fields(context)})

    def __getattribute__(self, name: str) -> object:
        if name in _OUTSIDE and (sources := _SOURCES.get()) is not None:
            sources.is_stored = False
        return super().__getattribute__(name)
