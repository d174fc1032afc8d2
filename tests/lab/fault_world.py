"""A controller's whole world over an emulated cloud: real provider and client, no machine.

The cloud, the product and the machines go by one clock, which stands still between two looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

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
from orchestrator.application.janitor import ORPHAN_GRACE, Janitor
from orchestrator.application.ports.clock import Clock
from orchestrator.assets import asset_dir
from orchestrator.domain.cell import CellState, Lease, Run, RunSpec
from orchestrator.domain.machine import (
    LaunchRequest,
    Machine,
    Offers,
    Place,
    Provider,
    SshEndpoint,
    UnreachableError,
)
from orchestrator.domain.manifest import StoredPayload
from orchestrator.domain.matrix import (
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
    expand,
)
from orchestrator.domain.run_record import CellRecord
from orchestrator.store.database import Database, open_database
from orchestrator.store.stores import Stores
from runners import registry
from runners.fake import FakeComputer, FakeWorkspace
from runners.provider_context import ProviderContext
from tests.databases import make_database
from tests.integration.fake_world import SteppingClock, manifest
from tests.integration.memory_engine import MemoryEngine
from tests.lab.faults import Call, Faults
from tests.lab.machines import MachineSpec, NoMachines

PROJECT, CONTROLLER = "lab", "controller"
CIDR = "203.0.113.7/32"
RUN = "run"


class Cloud(Protocol):
    """What the three emulated clouds have in common."""

    faults: Faults
    clock: Callable[[], datetime]

    @property
    def calls(self) -> list[Call]: ...
    def alive(self) -> list[tuple[str, str]]: ...
    def billing(self) -> Sequence[Any]: ...
    def preempt(self, machine_id: str, *, notice_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Rig:
    """What is particular to one cloud."""

    provider: str
    platform: Platform
    creates: tuple[str, ...]
    """Names of the calls that make a machine."""
    deletes: tuple[str, ...]
    """Names of the calls that end one."""
    shared: frozenset[str]
    """Kinds of things that serve every machine of the project, and outlive each."""
    billed: str
    """How the cloud's own meter calls a machine."""


class HandMachines(NoMachines):
    """Machines in memory that take `boot_s` of the test's clock to boot."""

    def __init__(self, clock: SteppingClock) -> None:
        super().__init__()
        self._hand = clock
        self._booted_at: dict[str, datetime] = {}
        self.boot_s = 0.0

    def boot(self, spec: MachineSpec) -> None:
        super().boot(spec)
        self._booted_at[spec.id] = self._hand.now()

    def is_up(self, machine_id: str) -> bool:
        begun = self._booted_at.get(machine_id)
        late = begun is not None and self._hand.now() >= begun + timedelta(seconds=self.boot_s)
        return late and super().is_up(machine_id)

    def guest_attributes(self, machine_id: str) -> dict[str, str]:
        return super().guest_attributes(machine_id) if self.is_up(machine_id) else {}


class Unmasked:
    """A provider whose machines say that they are real."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    def places(self, platform: Platform) -> tuple[Place, ...]:
        return cast("Offers", self._inner).places(platform)

    def launch(self, request: LaunchRequest) -> Machine:
        return replace(self._inner.launch(request), simulated=False)

    def inspect(self, machine_id: str) -> Machine:
        return replace(self._inner.inspect(machine_id), simulated=False)

    def terminate(self, machine_id: str) -> None:
        self._inner.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        return [replace(one, simulated=False) for one in self._inner.inventory()]


def computer_at(
    endpoint: object,
    machines: HandMachines,
    computers: dict[str, FakeComputer],
    prepare: Callable[[FakeComputer], None],
) -> FakeComputer:
    """What is behind an address; the first time it is reached, it is made and prepared."""
    assert isinstance(endpoint, SshEndpoint)
    spec = [each for each in machines.booted if endpoint.address in each.addresses][-1]
    if spec.id not in computers:
        computers[spec.id] = FakeComputer()
        prepare(computers[spec.id])
    if spec.id not in machines.live():
        computers[spec.id].kill()
    return computers[spec.id]


def flow_deps(
    folder: Path,
    stores: Stores,
    clock: Clock,
    provider: Callable[[str], Provider],
    open_workspace: Callable[[object], FakeWorkspace],
) -> FlowDeps:
    """What cells of a controller of the lab run with; it keeps its files in the folder."""
    return FlowDeps(
        stores=stores,
        blobs=FileBlobs(folder / "blobs"),
        clock=clock,
        provider=provider,
        open_workspace=open_workspace,
        wheels=Wheelhouse(folder / "wheels", clock=clock),
        secret=lambda name: None,
        unpack=unpack_bundle,
        self_report=read_self_report,
        read_metrics=JobMetrics(FileDialects()),
        publish=lambda evidence: folder,
        identity=Identity(PROJECT, CONTROLLER),
        own_python="/usr/bin/python3",
        traits=registry.traits,
        new_login=new_login,
        timings=Timings(never_made_after_s=5, boot_s=120),
    )


class HeldWorkspace(FakeWorkspace):
    """A workspace whose files cannot be had while its world says so."""

    def __init__(self, computer: FakeComputer, here: FaultWorld) -> None:
        super().__init__(computer)
        self._here = here

    def bundle(self, attempt: str, *, limit_bytes: int = 1 << 20) -> bytes | None:
        if self._here.holds_files:
            raise UnreachableError("the connection broke")
        return super().bundle(attempt, limit_bytes=limit_bytes)


@dataclass(slots=True)
class FaultWorld:
    """Everything a row of the fault table needs to look at and to turn."""

    folder: Path
    rig: Rig
    cloud: Any
    machines: HandMachines
    clock: SteppingClock
    settings: Mapping[str, str]
    limits: Limits = field(default_factory=lambda: Limits(max_usd=Decimal(20), infra_retries=1))
    on_tick: list[Callable[[FaultWorld], None]] = field(default_factory=list)
    holds_files: bool = False
    prepare: Callable[[FakeComputer], None] = lambda _: None
    """What is done to every machine before it is first reached."""
    computers: dict[str, FakeComputer] = field(default_factory=dict)
    platform: Platform = field(init=False)
    database: Database = field(init=False)
    provider: Provider = field(init=False)
    world: FlowDeps = field(init=False)
    engine: MemoryEngine = field(init=False)

    def __post_init__(self) -> None:
        self.platform = self.rig.platform
        self.database = open_database(make_database(self.folder))
        self.provider = self.new_provider()
        self.world = self._world()
        self.renew_engine()

    def renew_engine(self) -> None:
        """After the world was changed."""
        self.engine = MemoryEngine(partial(run_cell, self.world), tick=self._tick)

    def new_provider(self) -> Provider:
        """One with a memory of its own, as another process would make it."""
        context = ProviderContext(
            book=self.database.stores.static_hosts,
            settings={"project": PROJECT, "ingress_cidr": CIDR, **self.settings},
            now=self.clock.now,
            templates=asset_dir("templates"),
        )
        return registry.load(self.rig.provider, context)

    def _world(self) -> FlowDeps:
        stores, provider = self.database.stores, lambda name: self.provider
        return flow_deps(self.folder, stores, self.clock, provider, self._workspace)

    def _workspace(self, endpoint: object) -> FakeWorkspace:
        computer = computer_at(endpoint, self.machines, self.computers, self.prepare)
        return HeldWorkspace(computer, self)

    def _tick(self, seconds: float) -> None:
        self.clock.step(max(seconds, 1.0))
        for act in list(self.on_tick):
            act(self)

    # turning

    def once_in(self, state: CellState, act: Callable[[FaultWorld], None]) -> None:
        """Do it at the first tick at which the cell is in that state and has a machine."""

        def at_tick(here: FaultWorld) -> None:
            if here.cell().state is state and here.machines.booted:
                here.on_tick.remove(at_tick)
                act(here)

        self.on_tick.append(at_tick)

    def take_away(self) -> None:
        """The cloud takes the newest machine, without any notice."""
        self.cloud.preempt(self.machines.booted[-1].id, notice_s=0)

    # going

    def go(self) -> CellRecord:
        """Run one cell to its end."""
        for cell_id in self.store_run():
            self.engine.run(cell_id)
        return self.cell()

    def store_run(self) -> list[str]:
        stores = self.database.stores
        digest, size = self.world.blobs.put([b"payload"])
        payload = manifest("one", "two")
        stores.payloads.put(StoredPayload(digest, size, payload), at=self.clock.now())
        matrix = Matrix(
            metadata=Metadata(name="faults"),
            subject=Subject(name="faults", version="1"),
            platforms=(self.platform,),
            jobs=(JobSelection(select="*"),),
            limits=self.limits,
        )
        cells = [(f"{RUN}-{n}", plan) for n, plan in enumerate(expand(matrix, payload))]
        run = Run(RUN, "faults", "faults", "1", digest, self.clock.now())
        stores.runs.create(run, RunSpec(matrix, payload), cells, key=None)
        return [cell_id for cell_id, _ in cells]

    # looking

    def cell(self) -> CellRecord:
        return describe_run(self.database.stores, RUN, at=self.clock.now()).cells[0]

    def leases(self) -> list[Lease]:
        found = self.database.stores.leases.of_run(RUN)
        return [lease for leases in found.values() for lease in leases]

    def log(self) -> list[str]:
        """The decision log, as `zone market verdict reason`."""
        return [
            " ".join((*_short(line.place), line.result.value, line.reason)).strip()
            for line in self.cell().decisions
        ]

    def answers(self, names: Iterable[str]) -> list[str]:
        """How each call of these names was answered; the lost answers are marked."""
        wanted = set(names)
        return [
            call.answer + ("+made" if call.details.get("answer lost") == "ok" else "")
            for call in self.cloud.calls
            if call.name in wanted
        ]

    def left(self) -> list[str]:
        """The kinds of what the cloud still has."""
        return sorted(kind for kind, _ in self.cloud.alive())

    def janitor(self, provider: Provider | None = None, controller: str = CONTROLLER) -> Janitor:
        name = self.rig.provider
        return Janitor(
            stores=self.database.stores,
            provider=lambda _: provider or self.provider,
            traits={name: registry.traits(name)},
            project=PROJECT,
            controller=controller,
            now=self.clock.now,
            settings=self.settings,
        )

    def sweep_shared(self) -> list[Machine]:
        """Sweep, and again after the grace; what was ended then. Some lists have gaps."""
        janitor = self.janitor()
        assert [janitor.sweep(known_only=True) for _ in range(2)] == [[], []]
        self.clock.step(ORPHAN_GRACE.total_seconds() + 1)
        swept = [janitor.sweep(known_only=True) for _ in range(2)]
        return [sight.machine for sights in swept for sight in sights]

    def check_money(self) -> None:
        """Every lease's cost by the formula, reckoned anew; no second of the cloud's unpaid."""
        paid_s = 0.0
        for lease in self.leases():
            assert lease.cost_usd == expected_cost(lease), lease
            assert lease.cost_usd is not None
            assert lease.cost_usd <= lease.reserved_usd
            if lease.cost_usd and lease.billed_from and lease.billed_until:
                paid_s += (lease.billed_until - lease.billed_from).total_seconds()
        lines = [line for line in self.cloud.billing() if line.kind == self.rig.billed]
        assert all(line.ended_at is not None for line in lines), lines
        metered_s = sum((line.ended_at - line.started_at).total_seconds() for line in lines)
        assert metered_s <= paid_s, (metered_s, paid_s)

    def close(self) -> None:
        shut = getattr(self.provider, "close", None)
        if shut is not None:
            shut()
        self.database.close()


def expected_cost(lease: Lease) -> Decimal:
    """What a lease must cost: seconds begun at the machine's price, at least a minute; the rest
    of what hangs on it by the microsecond."""
    if not lease.machine_id or not lease.billed_from or not lease.billed_until or not lease.offer:
        return Decimal(0)
    if lease.refusal.startswith(("capacity", "quota")):
        return Decimal(0)
    held = lease.billed_until - lease.billed_from
    seconds = max(60, -(-held // timedelta(seconds=1)))
    exact = Decimal(held // timedelta(microseconds=1)) / 1_000_000
    parts = (
        seconds * (lease.price_usd_per_hour or Decimal(0)),
        exact * lease.offer.disk_usd_per_hour,
        exact * lease.offer.address_usd_per_hour,
    )
    rounded = ((x / 3600).quantize(Decimal("0.0001"), ROUND_HALF_EVEN) for x in parts)
    return sum(rounded, Decimal(0))


def _short(place: str) -> tuple[str, ...]:
    zone, _, rest = place.partition("/")
    market = rest.rpartition("/")[2]
    return (zone, market) if market else (zone,)
