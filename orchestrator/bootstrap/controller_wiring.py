"""Wiring of a controller: its stores, providers, engine and applications."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from orchestrator.adapters.clock import CronsimCron, SystemClock, new_id
from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.blobs import FileBlobs, sync_folder
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.adapters.files.home_folder import (
    TEMPORARY,
    HomeCaches,
    temporary_folder,
    write_report_tree,
)
from orchestrator.adapters.files.ingest_upload import FileUploadUnpacker
from orchestrator.adapters.files.pip import anywhere, guarded
from orchestrator.adapters.files.tar_stream import unpack_bundle
from orchestrator.adapters.files.wheels import Wheelhouse
from orchestrator.adapters.lazy_statistics import FuzzySimilarity, LazyDetector, LazyStatistics
from orchestrator.adapters.notification_sender import HttpSender
from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.adapters.result_parsers.reported_failure import read_self_report
from orchestrator.adapters.signing import DsseSigner
from orchestrator.adapters.ssh_key_pairs import new_login
from orchestrator.adapters.wakeups import Wakeups
from orchestrator.application.cell.flow import run_cell
from orchestrator.application.cell.flow_context import FlowDeps, Identity, Timings
from orchestrator.application.context import (
    TOKENS_ALONE,
    Context,
    GatePorts,
    RetentionPorts,
    SignInPorts,
)
from orchestrator.application.emergency_stop import EmergencyStop
from orchestrator.application.end_run import publish_report
from orchestrator.application.janitor import Janitor
from orchestrator.application.ports.archives import PayloadArchives
from orchestrator.application.ports.blobs import Blobs, file_chunks
from orchestrator.application.ports.clock import Clock
from orchestrator.application.ports.engine import Durable, NotServedError
from orchestrator.application.ports.wheels import Subjects
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.assets import asset_dir
from orchestrator.bootstrap.local_job_policy import AS_OURSELVES, LocalJobs, subjects_of
from orchestrator.config import Settings
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.machine import (
    ConfigError,
    Endpoint,
    LocalEndpoint,
    Login,
    Provider,
    ProviderTraits,
    Shell,
    UnreachableError,
)
from orchestrator.domain.manifest import StoredPayload
from orchestrator.domain.retention import RetentionPolicy
from orchestrator.domain.run_record import Evidence
from orchestrator.store.blobs import PayloadStore
from orchestrator.store.database import Database, check_file, open_database
from orchestrator.store.errors import StoreUnusableError, UnknownIdError
from runners import registry as provider_registry
from runners.fake import MemoryHostStore
from runners.provider_context import ProviderContext
from runners.shell import open_shell
from runners.shell.local_account import account_of
from runners.workspace import ShellWorkspace

if TYPE_CHECKING:
    from orchestrator.adapters.dbos_engine import DbosEngine

logger = logging.getLogger(__name__)
_STORE_RETRY_S = 1.0
CONTROLLER_ID = "controller.id"
"""File of the home with the controller's id."""


class EndingWorkspace(ShellWorkspace):
    """A workspace for collecting and ending an attempt; it starts no jobs."""

    def __init__(
        self,
        shell: Shell,
        refusal: str,
        *,
        base: str,
        candidates: Sequence[str],
        wakeups: Wakeups | None,
    ) -> None:
        """Store the reason, for a person, why no jobs may start."""
        super().__init__(shell, base=base, candidates=candidates, wakeups=wakeups)
        self._refusal = refusal

    def probe(self, candidates: Sequence[str] = ()) -> dict[str, object]:
        """Raise ConfigError, because a probe would run interpreters that the payload names."""
        raise ConfigError(self._refusal)

    def start(
        self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str] | None = None
    ) -> None:
        """Raise ConfigError."""
        raise ConfigError(self._refusal)


class WorkspacePool:
    """Creates workspaces; `disconnect` of one closes its connection."""

    def __init__(
        self,
        *,
        keys: Path,
        local_base: Path,
        login: Callable[[str], Login | None],
        local: LocalJobs = AS_OURSELVES,
        wakeups: Wakeups | None = None,
    ) -> None:
        """Store the settings.

        Args:
            keys: The folder with the private keys of users.
            local_base: The work folder of jobs that run as the controller's own user.
            login: Returns the keys of a lease by its id; None without any.
            local: Who runs jobs on this computer.
            wakeups: Ends the wait between two pulls early if a machine has new evidence.
        """
        self._wakeups = wakeups
        self._keys = keys
        self._local = local
        self._login = login
        self._local_base = local_base
        self._open: dict[Endpoint, Workspace] = {}
        self._lock = threading.Lock()

    def open(self, endpoint: Endpoint) -> Workspace:
        """Return the workspace of a machine, which connects at its first call.

        Raises ShellError if this controller can never reach the machine.
        """
        with self._lock:
            if endpoint not in self._open:
                self._open[endpoint] = self._made(endpoint)
            return self._open[endpoint]

    def _made(self, endpoint: Endpoint) -> Workspace:
        shell = open_shell(
            endpoint,
            keys_dir=self._keys,
            private_key=self._private_key,
            local_umask=self._local.umask,
        )
        if isinstance(endpoint, LocalEndpoint):
            return self._here(endpoint, shell)
        return ShellWorkspace(shell, wakeups=self._wakeups)

    def _here(self, endpoint: LocalEndpoint, shell: Shell) -> Workspace:
        """Return the local workspace, for the account that the attempt began with."""
        if endpoint.hostname != socket.gethostname():
            here = socket.gethostname()
            raise UnreachableError(f"the machine is the computer {endpoint.hostname}, not {here}")
        base = account_of(endpoint.account).work if endpoint.account else str(self._local_base)
        refusal = self._local.refusal_as(endpoint.account)
        if refusal:
            return EndingWorkspace(
                shell, refusal, base=base, candidates=(sys.executable,), wakeups=self._wakeups
            )
        return ShellWorkspace(shell, base=base, candidates=(sys.executable,), wakeups=self._wakeups)

    def _private_key(self, lease_id: str) -> str | None:
        login = self._login(lease_id)
        return login.private_key if login else None


@dataclass(frozen=True, slots=True)
class Parts:
    """The components of a controller."""

    identity: str
    database: Database
    context: Context
    deps: FlowDeps
    engine: DbosEngine | None
    flows: CellFlows
    wakeups: Wakeups


class CellFlows:
    """Runs the flows of cells, each with the dependencies of its project."""

    def __init__(self, first: FlowDeps) -> None:
        self.projects = [first]

    async def run(self, durable: Durable, cell_id: str) -> None:
        """Run the flow of a cell.

        Raises NotServedError if this process does not serve its project.
        """
        await run_cell(await self._project_of(cell_id), durable, cell_id)

    async def _project_of(self, cell_id: str) -> FlowDeps:
        """Return the dependencies of the cell's project, after waiting for its database.

        Raises NotServedError.
        """
        while True:
            try:
                return await asyncio.to_thread(self._find, cell_id)
            except StoreUnusableError as error:
                logger.warning("cell %s waits for the store: %s", cell_id, error)
                await asyncio.sleep(_STORE_RETRY_S)

    def _find(self, cell_id: str) -> FlowDeps:
        unusable: StoreUnusableError | None = None
        for deps in self.projects:
            try:
                deps.stores.cells.run_id(cell_id)
            except UnknownIdError:
                continue
            except StoreUnusableError as error:
                unusable = unusable or error
            else:
                return deps
        raise unusable or NotServedError(cell_id)


def is_embedded(settings: Settings) -> bool:
    """Whether the databases are files of the home."""
    return settings.database_url is None


def app_url(settings: Settings) -> str:
    """Return the URL of the application's database."""
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    return f"sqlite:///{settings.home / 'app.db'}"


def shown_url(url: str) -> str:
    """Return the URL without its password."""
    parts = urlsplit(url)
    if not parts.password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{host}"))


def build(
    settings: Settings,
    *,
    runs_cells: bool,
    local: LocalJobs = AS_OURSELVES,
    sign_in: SignInPorts | None = None,
    first: Parts | None = None,
) -> Parts:
    """Open the stores and create all components; nothing runs yet.

    Args:
        settings: The project's settings.
        runs_cells: Whether to create an engine.
        local: Who runs jobs on this computer.
        sign_in: How people sign in; None: only with tokens.
        first: Components of the process's first project, whose engine a further project shares.
    """
    if is_embedded(settings):
        check_file(settings.home / "app.db")
    database = open_database(app_url(settings), migrate=True)
    wakeups = first.wakeups if first else Wakeups()
    deps = _deps(settings, database, local, controller_id(settings.home), wakeups)
    if first:
        executor, engine, flows = first.identity, first.engine, first.flows
        flows.projects.append(deps)
    else:
        executor = "local" if is_embedded(settings) else new_id()
        flows = CellFlows(deps)
        engine = _engine(settings, executor, flows, wakeups) if runs_cells else None
    sign_in = sign_in or SignInPorts(mark=settings.mark)
    scratch = temporary_folder(settings.home)
    gate = _gate_ports(settings, subjects_of(settings, local, scratch))
    wake = engine.start if engine else _leave_it
    ports = _Ports(_janitor(deps, settings), _retention(settings, engine), gate, wake, sign_in)
    context = _context(deps, scratch, ports)
    return Parts(executor, database, context, deps, engine, flows, wakeups)


def open_to_read(settings: Settings) -> tuple[Database, Context]:
    """Create the components that answer reads without a controller; writes nothing.

    Raises StoreError if there is no database, or one of another version.
    """
    database = open_database(app_url(settings), read_only=True)
    deps = _deps(settings, database, AS_OURSELVES, controller="", wakeups=None)
    scratch = settings.home / TEMPORARY  # the folder for uploads, which may not exist
    gate = _gate_ports(settings, subjects_of(settings, AS_OURSELVES, scratch))
    ports = _Ports(_janitor(deps, settings), _retention(settings, None), gate, _leave_it)
    return database, _context(deps, scratch, ports)


def _deps(
    settings: Settings,
    database: Database,
    local: LocalJobs,
    controller: str,
    wakeups: Wakeups | None,
) -> FlowDeps:
    home = settings.home
    blobs: Blobs = FileBlobs(home / "blobs") if is_embedded(settings) else database.blobs
    return FlowDeps(
        stores=database.stores,
        blobs=blobs,
        clock=SystemClock(),
        provider=_providers(database, settings, local),
        open_workspace=_workspaces(settings, database, local, wakeups).open,
        wheels=Wheelhouse(
            home / "wheels", clock=SystemClock(), outward=guarded if local.reached else anywhere
        ),
        secret=settings.job_secret if local.reached else settings.secret,
        unpack=unpack_bundle,
        self_report=read_self_report,
        read_metrics=JobMetrics(FileDialects()),
        publish=partial(
            publish_report,
            render=_render,
            draw=_draw,
            blobs=blobs,
            write_tree=partial(write_report_tree, home),
        ),
        identity=Identity(settings.project, controller),
        own_python=sys.executable,
        traits=provider_registry.traits,
        new_login=new_login,
        budgets=_budgets(settings),
        timings=Timings(contact_timeout_s=settings.contact_timeout_s),
    )


def _workspaces(
    settings: Settings, database: Database, local: LocalJobs, wakeups: Wakeups | None
) -> WorkspacePool:
    return WorkspacePool(
        keys=settings.home / "keys",
        local_base=settings.home / "work",
        login=database.stores.leases.login,
        local=local,
        wakeups=wakeups,
    )


def _budgets(settings: Settings) -> tuple[Budget, ...]:
    limits = {
        Period.DAY: settings.budget_day_usd,
        Period.MONTH: settings.budget_month_usd,
        Period.PROJECT: settings.budget_project_usd,
        Period.UNTRUSTED: settings.budget_untrusted_usd,
    }
    return tuple(Budget(period, limit) for period, limit in limits.items() if limit is not None)


@dataclass(frozen=True, slots=True)
class _Ports:
    """Ports of operations that flows do not need."""

    janitor: Janitor
    retention: RetentionPorts
    gate: GatePorts
    wake: Callable[[str], None]
    sign_in: SignInPorts = TOKENS_ALONE


def _context(deps: FlowDeps, scratch: Path, ports: _Ports) -> Context:
    documents = FileDocuments()
    archives = FilePayloadArchives(documents)
    return Context(
        stores=deps.stores,
        blobs=deps.blobs,
        clock=deps.clock,
        new_id=new_id,
        documents=documents,
        traits=_traits(),
        provider=deps.provider,
        read_payload=archives.read_file,
        pack_payload=lambda folder, into: archives.pack(folder, into=into),
        render=_render,
        draw=_draw,
        report_kinds=lambda: _reports().kinds(),
        export=lambda name, evidence, cell: _reports().export(name, evidence, cell),
        export_media=lambda: _reports().export_media(),
        lint=lambda documents, evidence: _reports().lint_documents(documents, evidence),
        doubt=lambda annotation, evidence: _reports().doubts_of(annotation, evidence),
        builtin_payload=BuiltinPayload(
            asset_dir("payload"), archives, deps.stores.payloads, deps.blobs, deps.clock
        ),
        secret=deps.secret,
        project=ports.janitor.project,
        janitor=ports.janitor,
        dialects=FileDialects(),
        intake=FileUploadUnpacker(scratch=scratch),
        scratch=scratch,
        publish=deps.publish,
        similarity=FuzzySimilarity(),
        gate=ports.gate,
        retention=ports.retention,
        open_workspace=deps.open_workspace,
        wheels=deps.wheels,
        wake=ports.wake,
        sign_in=ports.sign_in,
        budgets=deps.budgets,
        locks=deps.locks,
    )


def _gate_ports(settings: Settings, subjects: Subjects) -> GatePorts:
    return GatePorts(
        statistics=LazyStatistics(),
        signer=DsseSigner(settings.home / "keys" / "signing", settings.signing_key_file),
        cron=CronsimCron(),
        subjects=subjects,
        sender=HttpSender(secret=settings.secret, keys=settings.home / "keys"),
        detector=LazyDetector(),
        public_url=settings.public_url or "",
    )


def _retention(settings: Settings, engine: DbosEngine | None) -> RetentionPorts:
    names = [one.name for one in fields(RetentionPolicy)]
    days = {name: getattr(settings, f"keep_{name}_days") for name in names}
    rules = {name: replace(getattr(RetentionPolicy(), name), days=days[name]) for name in names}
    return RetentionPorts(RetentionPolicy(**rules), HomeCaches(settings.home), engine)


def _traits() -> Mapping[str, ProviderTraits]:
    return {name: provider_registry.traits(name) for name in provider_registry.names()}


def _janitor(deps: FlowDeps, settings: Settings) -> Janitor:
    return Janitor(
        stores=deps.stores,
        provider=deps.provider,
        traits=_traits(),
        project=deps.identity.project,
        controller=deps.identity.controller,
        now=deps.clock.now,
        settings=settings.for_providers(),
    )


def _leave_it(cell_id: str) -> None:
    """Do nothing: a controller that runs cells finds new cells by itself."""


def _providers(
    database: Database | None, settings: Settings, local: LocalJobs
) -> Callable[[str], Provider]:
    """Return a loader of providers; without a database, no static hosts or new prices."""
    context = ProviderContext(
        book=database.stores.static_hosts if database else MemoryHostStore(),
        settings={**settings.for_providers(), **local.for_providers()},
        prices=database.stores.prices if database else None,
        now=SystemClock().now,
        templates=asset_dir("templates"),
    )

    @cache
    def load(name: str) -> Provider:
        return provider_registry.load(name, context)

    return load


def emergency_stop(settings: Settings) -> EmergencyStop:
    """Create the emergency stop, which opens no database and no file of the home."""
    return EmergencyStop(_providers(None, settings, AS_OURSELVES), _traits(), settings.project)


def _reports() -> ModuleType:
    # Few commands that read need reports, and importing their libraries takes a third of a second.
    from orchestrator.bootstrap import report_rendering  # noqa: PLC0415

    return report_rendering


def _render(
    kind: str, evidence: Evidence, cell: str | None, form: str, *, alone: bool = False
) -> str:
    text: str = _reports().render(kind, evidence, cell, form, alone=alone)
    return text


def _draw(kind: str, evidence: Evidence, cell: str | None) -> Mapping[str, str]:
    plots: Mapping[str, str] = _reports().draw(kind, evidence, cell)
    return plots


def _engine(settings: Settings, executor: str, flows: CellFlows, wakeups: Wakeups) -> DbosEngine:
    # A reader needs no engine, and importing its library takes a third of a second.
    from orchestrator.adapters.dbos_engine import DbosEngine  # noqa: PLC0415

    return DbosEngine(flows.run, url=_engine_url(settings), executor_id=executor, wakeups=wakeups)


def _engine_url(settings: Settings) -> str:
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    path = settings.home / "engine.db"
    # The engine does not set these modes itself, and the database file keeps both.
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    return f"sqlite:///{path}"


def controller_id(home: Path) -> str:
    """Return the controller's id, created once per home: the tag of its machines."""
    found = known_controller_id(home)
    if found is None:
        found = new_id()
        keep_controller_id(home, found)
    return found


def known_controller_id(home: Path) -> str | None:
    """Return the controller's id; None for a home that has none, or that does not exist."""
    try:
        return (home / CONTROLLER_ID).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def keep_controller_id(home: Path, controller: str) -> None:
    """Write the controller's id atomically, and flush it to the disk."""
    fresh = home / f"{CONTROLLER_ID}.new"
    with fresh.open("w", encoding="ascii") as file:
        file.write(controller)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(home / CONTROLLER_ID)
    sync_folder(home)


@dataclass(slots=True)
class BuiltinPayload:
    """Packs and stores the built-in payload at the first call."""

    folder: Path
    archives: PayloadArchives
    payloads: PayloadStore
    blobs: Blobs
    clock: Clock
    _digest: str = field(default="", init=False)

    def __call__(self) -> str:
        """Return the digest of the archive; store the archive again if it was pruned.

        Raises ArchiveError or InvalidDocumentError.
        """
        if not (self._digest and self.blobs.claim(self._digest)):
            with tempfile.TemporaryDirectory() as scratch:
                packed = self.archives.pack(self.folder, into=Path(scratch))
                self.blobs.put(file_chunks(packed.path), digest=packed.digest)
            stored = StoredPayload(packed.digest, packed.size_bytes, packed.manifest)
            self.payloads.put(stored, at=self.clock.now())
            self._digest = packed.digest
        return self._digest
