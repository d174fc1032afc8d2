"""A controller's REST interface over a real SQLite database, with machines that do not exist."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import shutil
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sqlalchemy import event
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from orchestrator.adapters.clock import CronsimCron, new_id
from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.adapters.files.home_folder import HomeCaches, temporary_folder, write_report_tree
from orchestrator.adapters.files.ingest_upload import FileUploadUnpacker
from orchestrator.adapters.files.wheels import Wheelhouse
from orchestrator.adapters.lazy_statistics import FuzzySimilarity
from orchestrator.adapters.notification_sender import HttpSender
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.adapters.signing import DsseSigner
from orchestrator.adapters.statistics import PairedStatistics, StepDetector
from orchestrator.adapters.subject_resolver import GitAndPipSubjects
from orchestrator.api.app import create_app
from orchestrator.api.security import token_guard
from orchestrator.application.context import Context, GatePorts, RetentionPorts, SignInPorts
from orchestrator.application.end_run import ReportRefusedError, publish_report
from orchestrator.application.janitor import Janitor
from orchestrator.application.tokens import create_token
from orchestrator.assets import asset_dir
from orchestrator.bootstrap.controller_wiring import WorkspacePool
from orchestrator.bootstrap.http_server import HttpServer
from orchestrator.domain.caller_identity import Scope, SessionLimits
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.machine import Provider
from orchestrator.domain.manifest import StoredPayload
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retention import RetentionPolicy
from orchestrator.domain.run_record import Evidence
from orchestrator.store.blobs import DbBlobs
from orchestrator.store.database import Database, open_database
from orchestrator.store.sessions import Sessions
from orchestrator.store.stores import Stores
from reports import registry as report_registry
from reports.document_lint.linter import lint_documents
from reports.exports import registry as export_registry
from reports.rules.authored import doubts_of
from runners import registry as provider_registry
from runners.provider_context import ProviderContext
from tests.databases import Agent
from tests.waiting import until

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALL_DAY = SessionLimits(life=timedelta(days=1), idle=timedelta(days=1))
"""Sessions of a desk outlive the hours that its clock is moved by."""
MANIFEST = """\
schema = 1
name = "proof"
version = "1.10"
[[job]]
id = "unit"
kind = "suite"
pytest = ["tests"]
[[job]]
id = "demo"
kind = "demo"
command = ["{python}", "demo.py"]
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: nightly}
subject: {name: proof, version: "1.10"}
limits: {max_usd: "9.00"}
platforms:
  - {id: here, provider: fake}
  - {id: there, provider: fake, locations: [north, south]}
jobs:
  - {select: "*", on: all}
"""


@dataclass(slots=True)
class HandClock:
    """Stands still until it is moved."""

    time: datetime = BEGIN

    def now(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        self.time += timedelta(**by)


def archive(manifest: str = MANIFEST, **files: str) -> bytes:
    """A payload's .tar.gz."""
    out = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, text in {"payload.toml": manifest, **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Desk:
    """The interface, and everything behind it that a test looks at or turns."""

    context: Context
    database: Database
    clock: HandClock
    app: FastAPI
    guarded: FastAPI
    woken: list[str] = field(default_factory=list)
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def speak(self, app: ASGIApp, *, base: str = "http://localhost", **more: Any) -> TestClient:
        """A client of an application: one event loop for all of its requests, until the end."""
        client = TestClient(app, base_url=base, raise_server_exceptions=False, **more)
        return self.closing.enter_context(client)

    @cached_property
    def client(self) -> TestClient:
        """Speaks to the socket's application, which needs no token."""
        return self.speak(self.app)

    def with_token(self, scope: str | None, *, name: str = "") -> TestClient:
        """Speaks to a port's application, with a token of the scope, or with none."""
        headers = {}
        if scope is not None:
            _, secret = create_token(self.context, name or f"a {scope}", Scope(scope), days=1)
            headers = {"Authorization": f"Bearer {secret}"}
        return self.speak(self.guarded, headers=headers)

    def launch(self, key: str = "key-1", **body: object) -> dict[str, object]:
        """A new run, as it is shown."""
        answer = self.client.post(
            "/api/v1/runs", json={"matrix": MATRIX, **body}, headers={"Idempotency-Key": key}
        )
        assert answer.status_code == 202, answer.text
        shown: dict[str, object] = answer.json()
        return shown

    def begin(self, run_id: str, cell: str) -> Agent:
        """Bring a cell to RUNNING."""
        cells = self.database.stores.cells
        cell_id = self.cell_id(run_id, cell)
        attempt_id = f"{cell_id}-1"
        assert cells.admit(cell_id, attempt_id, max_parallel=9, at=self.clock.now())
        for state in (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING):
            cells.enter(cell_id, state, at=self.clock.now())
        return Agent(self.database.stores, attempt_id)

    def finish(self, run_id: str, *cells: str, outcome: Outcome = Outcome.PASSED) -> None:
        """Bring running cells to DONE, and then the run to its end."""
        stores, at = self.database.stores, self.clock.now()
        for cell in cells:
            cell_id = self.cell_id(run_id, cell)
            for state in (CellState.COLLECTING, CellState.RELEASING):
                stores.cells.enter(cell_id, state, at=at)
            stores.evidence.settle(cell_id, [])
            stores.cells.conclude(cell_id, Cause(outcome, ""), at=at)
        assert stores.runs.finish(run_id, outcome, at=at)

    def cell_id(self, run_id: str, cell: str) -> str:
        found = self.database.stores.cells.of_run(run_id)
        return next(one.id for one in found if one.name == cell)


@dataclass
class Slots:
    """SQLite databases that are used one after the other.

    An open engine keeps the statements that it has compiled; a copied file is empty again.
    """

    template: Path
    folder: Path
    idle: list[tuple[Path, Database]] = field(default_factory=list)
    made: int = 0

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Database]:
        """An empty database that nobody else uses."""
        path, database = self.idle.pop() if self.idle else self._made()
        shutil.copyfile(self.template, path)
        try:
            yield _anew(database)
        finally:
            database.close()
            for rest in path.parent.glob(f"{path.name}-*"):
                rest.unlink()
            self.idle.append((path, database))

    def _made(self) -> tuple[Path, Database]:
        self.made += 1
        path = self.folder / f"slot-{self.made}.db"
        shutil.copyfile(self.template, path)
        return path, _opened(f"sqlite:///{path}")


def _anew(database: Database) -> Database:
    """The same engine under stores that remember nothing."""
    sessions, stores = Sessions(database.sessions.engine), database.stores
    fresh = {one.name: type(getattr(stores, one.name))(sessions) for one in fields(stores)}
    return Database(sessions, Stores(**fresh), DbBlobs(sessions))


def _opened(url: str) -> Database:
    """Open a database; SQLite need not wait for the disk, as Postgres does not in tests."""
    database = open_database(url)
    engine = database.sessions.engine
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
        engine.dispose()
    return database


@contextlib.contextmanager
def desk(home: Path, where: str | Database, sessions: SessionLimits = ALL_DAY) -> Iterator[Desk]:
    """Open everything, and close it again; `where` is the URL of a database, or an open one."""
    database = _opened(where) if isinstance(where, str) else where
    woken: list[str] = []
    context = make_context(home, database, HandClock(), woken.append)
    context = replace(context, sign_in=SignInPorts(sessions))
    clock = context.clock
    assert isinstance(clock, HandClock)
    app = create_app(context, guard=None, revision=database.ready)
    guarded = create_app(context, guard=token_guard(context), allowed_hosts=("trials.example",))
    opened = Desk(context, database, clock, app, guarded, woken)
    try:
        with opened.closing:
            yield opened
    finally:
        if isinstance(where, str):
            database.close()


def make_context(
    home: Path, database: Database, clock: HandClock, wake: Callable[[str], None]
) -> Context:
    documents = FileDocuments()
    archives = FilePayloadArchives(documents)
    blobs = FileBlobs(home / "blobs")
    places = ProviderContext(book=database.stores.static_hosts)
    providers = {name: provider_registry.load(name, places) for name in provider_registry.names()}
    return Context(
        stores=database.stores,
        blobs=blobs,
        clock=clock,
        new_id=new_id,
        documents=documents,
        traits={name: provider_registry.traits(name) for name in providers},
        provider=providers.__getitem__,
        read_payload=archives.read_file,
        pack_payload=lambda folder, into: archives.pack(folder, into=into),
        render=_render,
        draw=_draw,
        dialects=FileDialects(),
        intake=FileUploadUnpacker(scratch=temporary_folder(home)),
        scratch=temporary_folder(home),
        publish=_publisher(home, blobs),
        report_kinds=lambda: tuple(report_registry.KINDS),
        export=lambda name, evidence, cell: export_registry.export(name, evidence, cell=cell),
        export_media=lambda: {n: form.media for n, form in export_registry.FORMATS.items()},
        lint=lint_documents,
        doubt=doubts_of,
        builtin_payload=partial(_builtin, documents, database, blobs, clock),
        secret={"HF_TOKEN": "hunter2"}.get,
        project="seatrial",
        janitor=_janitor(database, clock, providers),
        similarity=FuzzySimilarity(),
        gate=_gate_ports(home),
        retention=RetentionPorts(RetentionPolicy(), HomeCaches(home), None),
        open_workspace=_workspaces(home, database).open,
        wheels=Wheelhouse(home / "wheels", clock=clock),
        wake=wake,
    )


def _gate_ports(home: Path) -> GatePorts:
    return GatePorts(
        statistics=PairedStatistics(),
        signer=DsseSigner(home / "keys" / "signing"),
        cron=CronsimCron(),
        subjects=GitAndPipSubjects(None),
        sender=HttpSender(),
        detector=StepDetector(),
    )


def _workspaces(home: Path, database: Database) -> WorkspacePool:
    login = database.stores.leases.login
    return WorkspacePool(keys=home / "keys", local_base=home / "work", login=login)


def _builtin(
    documents: FileDocuments, database: Database, blobs: FileBlobs, clock: HandClock
) -> str:
    digest, size = blobs.put([archive()])
    manifest = documents.read_manifest(MANIFEST, "payload.toml")
    database.stores.payloads.put(StoredPayload(digest, size, manifest), at=clock.now())
    return digest


def _publisher(home: Path, blobs: FileBlobs) -> Callable[..., None]:
    tree = partial(write_report_tree, home)
    return partial(publish_report, render=_render, draw=_draw, blobs=blobs, write_tree=tree)


def _janitor(database: Database, clock: HandClock, providers: Mapping[str, Provider]) -> Janitor:
    return Janitor(
        stores=database.stores,
        provider=providers.__getitem__,
        traits={name: provider_registry.traits(name) for name in providers},
        project="seatrial",
        controller="me",
        now=clock.now,
        settings={},
    )


def _draw(kind: str, evidence: Evidence, cell: str | None) -> Mapping[str, str]:
    return {plot.path: plot.svg for plot in report_registry.draw(kind, evidence, cell=cell)}


def _render(
    kind: str, evidence: Evidence, cell: str | None, form: str, *, alone: bool = False
) -> str:
    templates = asset_dir("templates") / "reports"
    try:
        return report_registry.render(
            kind, evidence, cell=cell, format=form, alone=alone, templates=templates
        )
    except report_registry.ReportError as error:
        raise ReportRefusedError(str(error)) from error


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[int]:
    """A real server on a loopback port, in a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = HttpServer(app)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        until(lambda: server.started)
        try:
            yield int(listening.getsockname()[1])
        finally:
            app.state.streams.close()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
