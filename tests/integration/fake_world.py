"""A controller's whole world over a cloud in memory: real stores, no waiting, no machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType

from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.adapters.files.tar_stream import unpack_bundle
from orchestrator.adapters.files.wheels import Wheelhouse
from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.adapters.result_parsers.reported_failure import read_self_report
from orchestrator.adapters.ssh_key_pairs import new_login
from orchestrator.application.cell.flow import run_cell
from orchestrator.application.cell.flow_context import FlowDeps, Identity, Timings
from orchestrator.application.describe_run import describe_run
from orchestrator.domain.budget import Budget
from orchestrator.domain.cell import Run, RunSpec
from orchestrator.domain.machine import FakeEndpoint
from orchestrator.domain.manifest import Job, Manifest, StoredPayload
from orchestrator.domain.matrix import (
    Baseline,
    Host,
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
    expand,
)
from orchestrator.domain.retests import RetestOptions
from orchestrator.domain.run_record import Evidence, RunRecord
from orchestrator.store.database import Database, open_database
from runners import registry
from runners.fake import FakeCloud, FakeComputer, FakeProvider, FakeWorkspace
from runners.provider_context import ProviderContext
from tests.databases import make_database
from tests.integration.memory_engine import MemoryEngine

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class SteppingClock:
    """Stands still until it is told to go on."""

    time: datetime = BEGIN

    def now(self) -> datetime:
        return self.time

    def step(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def manifest(
    *jobs: str,
    metrics: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    demos: Collection[str] = (),
) -> Manifest:
    rows = tuple(
        Job(id=job, kind="demo", command=("run",))
        if job in demos
        else Job(id=job, kind="suite", pytest=(f"test_{job}.py",), metrics=metrics.get(job, ()))
        for job in jobs
    )
    return Manifest(name="steps", version="1", job=rows)


@dataclass(slots=True)
class FakeWorld:
    """Everything a test of the flow needs to look at and to turn."""

    folder: Path
    clock: SteppingClock = field(default_factory=SteppingClock)
    cloud: FakeCloud = field(default_factory=FakeCloud)
    jobs: tuple[str, ...] = ("one", "two")
    metrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Where jobs have their figures, by job."""
    demos: tuple[str, ...] = ()
    """Which jobs are demos."""
    published: list[Evidence] = field(default_factory=list)
    platforms: tuple[str, ...] = ("cloudy",)
    locations: tuple[str, ...] = ("north", "south")
    limits: Limits = field(default_factory=lambda: Limits(max_usd=Decimal(10)))
    retests: RetestOptions | None = None
    baseline: Baseline | None = None
    budgets: tuple[Budget, ...] = ()
    bastion: Host | None = None
    provider: str = "fake"
    """How its platform calls it: a gate looks past what is simulated."""
    database: Database = field(init=False)
    world: FlowDeps = field(init=False)
    engine: MemoryEngine = field(init=False)
    on_tick: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = open_database(make_database(self.folder))
        self.world = self._world()
        self.engine = MemoryEngine(partial(run_cell, self.world), tick=self._tick)

    def _tick(self, seconds: float) -> None:
        self.clock.step(max(seconds, 1.0))
        for act in list(self.on_tick):
            act(self)

    def _world(self) -> FlowDeps:
        provider = FakeProvider(ProviderContext(self.database.stores.static_hosts), self.cloud)

        def publish(evidence: Evidence) -> Path:
            self.published.append(evidence)
            return self.folder

        return FlowDeps(
            stores=self.database.stores,
            blobs=FileBlobs(self.folder / "blobs"),
            clock=self.clock,
            provider=lambda name: provider,
            open_workspace=self._workspace,
            wheels=Wheelhouse(self.folder / "wheels", clock=self.clock),
            secret=lambda name: None,
            unpack=unpack_bundle,
            self_report=read_self_report,
            read_metrics=JobMetrics(FileDialects()),
            publish=publish,
            identity=Identity("test", "controller"),
            own_python="/usr/bin/python3",
            traits=registry.traits,
            new_login=new_login,
            budgets=self.budgets,
            timings=Timings(never_made_after_s=5),
        )

    def _workspace(self, endpoint: object) -> FakeWorkspace:
        assert isinstance(endpoint, FakeEndpoint)
        return FakeWorkspace(self.cloud.computer(endpoint.machine_id))

    def launch(self, run_id: str = "run", *, untrusted: bool = False) -> list[str]:
        """Store a run of one cell a platform; return the ids of its cells."""
        stores = self.database.stores
        digest, size = self.world.blobs.put([b"payload"])
        payload = manifest(*self.jobs, metrics=self.metrics, demos=self.demos)
        stores.payloads.put(StoredPayload(digest, size, payload), at=self.clock.now())
        matrix = Matrix(
            metadata=Metadata(name="steps"),
            subject=Subject(name="steps", version="1"),
            platforms=tuple(
                Platform(
                    id=one, provider=self.provider, locations=self.locations, bastion=self.bastion
                )
                for one in self.platforms
            ),
            jobs=(JobSelection(select="*"),),
            limits=self.limits,
            baseline=self.baseline,
        )
        cells = [(f"{run_id}-{n}", p) for n, p in enumerate(expand(matrix, payload))]
        run = Run(run_id, "steps", "steps", "1", digest, self.clock.now())
        spec = RunSpec(
            matrix, payload.as_untrusted() if untrusted else payload, retests=self.retests
        )
        stores.runs.create(run, spec, cells, key=None)
        return [cell_id for cell_id, _ in cells]

    def record(self, run_id: str = "run") -> RunRecord:
        return describe_run(self.database.stores, run_id, at=self.clock.now())

    def computers(self) -> list[FakeComputer]:
        return [self.cloud.computer(machine.id) for machine in self.cloud.live()]

    def close(self) -> None:
        self.database.close()
