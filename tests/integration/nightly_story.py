"""One nightly after the other, over the same stores and the same cloud in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import sha256

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.application.ports.wheels import Choice, Resolution, WheelsError, WheelSizes
from orchestrator.domain.cell import CellState, Run, RunSpec, RunState
from orchestrator.domain.manifest import Environment, Job, Manifest, StoredPayload
from orchestrator.domain.matrix import (
    Baseline,
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
    expand,
)
from orchestrator.domain.reuse_inputs import Interpreter
from orchestrator.domain.run_record import CellRecord
from runners.fake import FakeCloud, passing
from tests.integration.fake_world import FakeWorld
from tests.integration.memory_engine import MemoryEngine

HOURS = 3600.0
LIMITS = Limits(max_usd=Decimal(10))


@dataclass(slots=True)
class ScriptedWheels:
    """Resolves to what a test says; the machine's own packages are those of the probe."""

    content: bytes = b"wheels"
    packages: dict[str, str] = field(default_factory=lambda: {"numpy": "2.4.5"})
    asked: int = 0
    broken: str = ""

    def choose(self, probe, manifest, environment):
        found = probe["interpreters"][0]
        packages, libc = dict(found["packages"]), tuple(probe["libc"])
        return Choice(
            Interpreter(
                found["path"],
                found["version"],
                "cpython",
                "x86",
                libc,
                packages,
                records=found["records"],
            )
        )

    def assume(self, manifest, environment, *, torch):
        return Interpreter("/usr/bin/python3", "3.11.2", "cpython", "x86_64", None, {})

    def sizes(self, interpreter, environment, *, subject, wheel=None, requires=()):
        return WheelSizes(self.packages, len(self.content), {})

    def resolve(self, interpreter, environment, *, subject, wheel=None, requires=(), limit_bytes):
        self.asked += 1
        if self.broken:
            raise WheelsError(self.broken)
        digest = sha256(self.content).hexdigest()
        return Resolution(("numpy",), (), digest, len(self.content), self.packages)

    def open(self, digest):
        return iter([self.content])


@dataclass(slots=True)
class Nights:
    """One nightly after the other, over the same stores and the same cloud."""

    world: FakeWorld
    wheels: ScriptedWheels
    payload: bytes = b"payload"
    version: str = "1"
    package: str | None = None
    platform: Platform = field(
        default_factory=lambda: Platform(id="cloudy", provider="fake", locations=("north",))
    )
    jobs: tuple[Job, ...] = tuple(
        Job(id=name, kind="suite", pytest=(f"test_{name}.py",)) for name in ("one", "two")
    )
    environments: tuple[str, ...] = ("image",)
    max_age_s: float | None = 36 * HOURS
    baseline: Baseline | None = None
    number: int = 0

    def begin(self) -> str:
        """Launch the next one; its cell."""
        self.number += 1
        stores, at = self.world.database.stores, self.world.clock.now()
        digest, size = self.world.world.blobs.put([self.payload])
        names = {name: Environment() for name in self.environments if name != "image"}
        manifest = Manifest(name="steps", version="1", job=self.jobs, env=names)
        stores.payloads.put(StoredPayload(digest, size, manifest), at=at)
        matrix = Matrix(
            metadata=Metadata(name="nightly"),
            subject=Subject(name="lib", version=self.version, package=self.package),
            platforms=(self.platform,),
            jobs=(JobSelection(select="*"),),
            limits=LIMITS,
            environments=self.environments,
            baseline=self.baseline,
        )
        run = Run(self.run, "nightly", "lib", self.version, digest, at)
        plans = expand(matrix, manifest)
        cells = [(f"{self.run}-{n}", plan) for n, plan in enumerate(plans)]
        spec = RunSpec(matrix, manifest, reuse_max_age_s=self.max_age_s)
        stores.runs.create(run, spec, cells, key=None)
        return cells[0][0]

    @property
    def run(self) -> str:
        return f"run-{self.number}"

    def night(self) -> CellRecord:
        """Live through the next one."""
        self.world.engine.run(self.begin())
        return self.told()

    def told(self) -> CellRecord:
        record = self.world.record(self.run)
        assert record.run.state is RunState.FINISHED
        [cell] = record.cells
        assert cell.state is CellState.DONE
        assert self.world.cloud.live() == ()
        assert self.world.database.stores.leases.open() == []
        return cell


@pytest.fixture
def nights(tmp_path):
    world = FakeWorld(tmp_path, cloud=FakeCloud(boot_looks=1))
    wheels = ScriptedWheels()
    world.world = replace(world.world, wheels=wheels)
    world.engine = MemoryEngine(lambda do, cell: run_cell(world.world, do, cell), tick=world._tick)
    yield Nights(world, wheels)
    world.close()


def whys(cell: CellRecord) -> set[str]:
    return {job.reuse for job in cell.jobs}


def reused(cell: CellRecord) -> list[str]:
    return [job.id for job in cell.jobs if job.reused_from]


def with_driver(version: str):
    """The machines of the world have a device with such a driver."""
    device = {"vendor": "nvidia", "name": "L4", "driver": version}

    def equip(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.probe["devices"] = [device]

    return equip


def failing_one(plan):
    for event in passing(plan):
        said = dict(event["data"])
        if event["job"] == "one" and said.get("when") == "call":
            said |= {"outcome": "failed", "longrepr": "boom"}
        yield {**event, "data": said}


def degraded_one(plan):
    yield {"kind": "check", "job": "one", "data": {"degraded": "no kernel"}}
    yield from passing(plan)


def script(of):
    def install(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.script = of

    return install
