"""One history of a lease: a run, the processes of its controllers, and a clumsy cloud.

`History.live` plays a `Plot` to its end and raises `LeakError` as soon as something happens that
must not, or is found to have happened.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import groupby
from pathlib import Path

from orchestrator.application.cell.flow import run_cell
from orchestrator.application.cell.flow_context import FlowDeps, Identity, billed_minutes
from orchestrator.application.janitor import EXPIRED_GRACE, Janitor
from orchestrator.application.ports.result_parsers import SelfReport
from orchestrator.domain.cell import Lease, LeaseState, Run, RunSpec, RunState
from orchestrator.domain.machine import FakeEndpoint, Machine, MachineState
from orchestrator.domain.manifest import StoredPayload
from orchestrator.domain.matrix import expand
from orchestrator.domain.money import machine_seconds
from orchestrator.store.leases import Reservation, Reserved
from orchestrator.store.stores import Stores
from runners.fake import FakeComputer, FakeWorkspace
from tests.integration.faulty_cloud import ClumsyCloud
from tests.integration.faulty_connection import Line
from tests.integration.faulty_script import BEGIN, HandClock, Thing
from tests.integration.leak_plot import (
    AT_HOME,
    CELL,
    CENT_OF_CENT,
    LOGIN,
    LONGEST_CALL_S,
    PATIENCE_S,
    SOUND,
    SPEC,
    SWEEP_EVERY_S,
    TIMINGS,
    TRAITS,
    WRITES,
    Crash,
    Fused,
    JanitorsLine,
    LeakError,
    NoWheels,
    Plant,
    Plot,
    Shelf,
    check_ids,
    check_refused,
    work,
)
from tests.integration.memory_engine import MemoryEngine, SimulatedCrashError
from tests.integration.memory_stores import memory_stores


@dataclass(slots=True)
class History:
    """A plot, and how far it has come."""

    plot: Plot
    stores: Stores = field(default_factory=memory_stores)
    """Of the home; they survive every crash."""
    plant: Plant = SOUND
    is_punctual: bool = True
    """Its cloud shows everything within a minute, as they say that they do."""
    clock: HandClock = field(default_factory=HandClock)
    cloud: ClumsyCloud = field(init=False)
    points: Counter[str] = field(default_factory=Counter)
    """Where processes died."""
    passed: int = 0
    """Points that were passed, by all processes together."""
    _spec: RunSpec = field(init=False)
    _engine: MemoryEngine = field(init=False)
    _janitor: Janitor = field(init=False)
    _neighbour: Janitor = field(init=False)
    _crashes: list[Crash] = field(init=False)
    _left: int | None = None
    _computers: dict[str, FakeComputer] = field(default_factory=dict)
    _swept_at: dict[str, float] = field(default_factory=dict)
    _is_sweeping: bool = False
    _down_s: float = 0.0
    _first_wrong: str = ""
    _told_gone: dict[str, float] = field(default_factory=dict)
    _told_ordered: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cloud = ClumsyCloud(self.plot.cloud, self.clock)
        limits = replace(
            SPEC.matrix.limits, max_usd=self.plot.max_usd, infra_retries=self.plot.retries
        )
        self._spec = replace(SPEC, matrix=replace(SPEC.matrix, limits=limits))
        self._crashes = list(self.plot.crashes)
        self._neighbour = self._sweeper(memory_stores(), "neighbour", lambda point: False)
        self._begin()

    def live(self) -> History:
        """Play it to its end; raises LeakError."""
        self._come_up({})
        forsaken = self._run()
        over_at = self.clock.seconds - self._down_s
        while not self._is_settled(forsaken):
            if self.clock.seconds - self._down_s - over_at > PATIENCE_S:
                left = [f"{thing.kind} {thing.id}" for thing in self.cloud.left()]
                open_ = [] if forsaken else [lease.id for lease in self.stores.leases.open()]
                raise LeakError(f"left: {left}, and in the ledger: {open_}")
            self.clock.step(SWEEP_EVERY_S)
            forsaken |= self._outlive(partial(self._sweep, forsaken))
        self._check(forsaken)
        return self

    def shape(self) -> tuple[tuple[str, ...], ...]:
        """What the flow asked, in order and without repetitions, and where it died."""
        asked = [call[:2] for call in self.cloud.calls if call[0] != "neighbour"]
        return (*(one for one, _ in groupby(asked)), tuple(sorted(self.points)))

    def ledger(self) -> list[Lease]:
        """Every lease, as it was left."""
        return [x for found in self.stores.leases.of_run("run").values() for x in found]

    def _is_settled(self, forsaken: bool) -> bool:
        if self.cloud._in_flight or self.cloud.left():
            return False
        return forsaken or not self.stores.leases.open()

    def _begin(self) -> None:
        manifest, digest = self._spec.manifest, hashlib.sha256(b"").hexdigest()
        if hasattr(self.stores.payloads, "put"):
            self.stores.payloads.put(StoredPayload(digest, 1, manifest), at=BEGIN)
        run = Run("run", "leaks", "steps", "1", digest, BEGIN)
        [plan] = expand(self._spec.matrix, manifest)
        self.stores.runs.create(run, self._spec, [(CELL, plan)], key=None)

    def _run(self) -> bool:
        """The flow, process after process; True when the home is forsaken."""
        while not self._engine.step_logs.get(CELL) or not self._engine.step_logs[CELL].finished:
            if self._outlive(lambda: self._engine.run(CELL)):
                return True
        run = self.stores.runs.get("run")
        if run is None or run.state is not RunState.FINISHED:
            raise LeakError("the flow ended, and the run did not")
        return False

    def _outlive(self, act: Callable[[], object]) -> bool:
        """Act; where the process dies of it, another comes up, unless there is none: True."""
        try:
            act()
        except SimulatedCrashError as crash:
            self.points[str(crash)] += 1
            self._is_sweeping = False
            died = self._crashes.pop(0)
            if not self._crashes and self.plot.is_forsaken:
                return True
            self._wait(died.down_s)
            self._come_up(self._engine.step_logs)
        return False

    def _wait(self, seconds: float) -> None:
        """Nobody is at home; the neighbour may sweep."""
        self._down_s += seconds
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            self.clock.step(min(SWEEP_EVERY_S, until - self.clock.seconds))
            self._act_beside(at_home=False)

    def _come_up(self, journals: dict[str, object]) -> None:
        """A new process over the same home: nothing of its memory is left."""
        self._left = self._crashes[0].after_points if self._crashes else None
        for machine in self.cloud.machines:
            machine.shown_to -= AT_HOME
        self._told_gone.clear()
        stores = self.plant.stores(self._fused())
        heard = {"passes": self._pass, "told": self._hear}
        line = Line(cloud=self.cloud, trips=self._trips, who="flow", **heard)
        provider = self.plant.provider(line)
        world = FlowDeps(
            stores=stores,
            blobs=Shelf(),
            clock=self.clock,
            provider=lambda name: provider,
            open_workspace=self._workspace,
            wheels=NoWheels(),
            secret=lambda name: None,
            unpack=lambda chunks: iter(()),
            self_report=lambda output: SelfReport(),
            read_metrics=lambda name, chunks: ((), ()),
            publish=lambda evidence: Path(),
            identity=Identity("test", "controller"),
            own_python="/usr/bin/python3",
            traits=lambda name: TRAITS,
            new_login=lambda: LOGIN,
            timings=TIMINGS,
        )
        self._engine = MemoryEngine(partial(run_cell, world), tick=self._tick)
        self._engine.step_logs.update(journals)
        self._janitor = self._sweeper(stores, "controller", self._trips)

    def _fused(self) -> Stores:
        fused = {
            name: Fused(getattr(self.stores, name), writes, self._trips, self._look_at)
            for name, writes in WRITES.items()
        }
        return replace(self.stores, **fused)

    def _sweeper(self, stores: Stores, who: str, trips: Callable[[str], bool]) -> Janitor:
        line = JanitorsLine(
            cloud=self.cloud, trips=trips, passes=self._pass, told=self._hear, who=who
        )
        line.ends = partial(self._ends, who)
        provider = self.plant.janitors_provider(line)
        return Janitor(
            stores=stores,
            provider=lambda name: provider,
            traits={"clumsy": TRAITS},
            project="test",
            controller=who,
            now=self.clock.now,
            settings={},
        )

    def _trips(self, point: str) -> bool:
        self.passed += 1
        if self._left is None:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self._left = None
        return True

    def _tick(self, seconds: float) -> None:
        self._raise_wrong()
        self._pass(max(seconds, self.plot.pace_s))

    def _pass(self, seconds: float) -> None:
        if seconds > 0:
            self.clock.step(seconds)
            self._act_beside(at_home=True)

    def _act_beside(self, *, at_home: bool) -> None:
        """What others do meanwhile: a person who cancels, the janitors."""
        at = self.plot.cancel_at_s
        if at is not None and self.clock.seconds >= at:
            self.stores.runs.request_cancel("run", at=self.clock.now())
        if not self._is_sweeping:
            self._is_sweeping = True
            if at_home:
                self._sweep_if_due(self._janitor)
            if self.plot.has_neighbour:
                self._sweep_if_due(self._neighbour)
            self._is_sweeping = False

    def _sweep_if_due(self, janitor: Janitor) -> None:
        last_at = self._swept_at.setdefault(janitor.controller, 0.0)
        if self.clock.seconds - last_at >= SWEEP_EVERY_S:
            self._swept_at[janitor.controller] = self.clock.seconds
            janitor.sweep()

    def _sweep(self, forsaken: bool) -> None:
        if forsaken or self.plot.has_neighbour:
            self._neighbour.sweep()
        if not forsaken:
            self._janitor.sweep()

    def _workspace(self, endpoint: object) -> FakeWorkspace:
        assert isinstance(endpoint, FakeEndpoint)
        computer = self._computers.get(endpoint.machine_id)
        if computer is None:
            works = self.plot.works_for
            computer = FakeComputer(script=lambda plan: work(works), lines_per_look=1)
            self._computers[endpoint.machine_id] = computer
        state, _ = self.cloud.things[endpoint.machine_id].state(self.clock.seconds)
        if state is not MachineState.READY:
            computer.kill()
        return FakeWorkspace(computer)

    def _hear(self, machine: Machine) -> None:
        """Keep when a controller was first told the truth."""
        thing = self.cloud.things.get(machine.id)
        lease = thing and self._lease_of(thing)
        if thing is None or lease is None:
            return
        if machine.state is MachineState.REQUESTED:
            self._told_ordered[lease.id] = self.clock.seconds
        is_true = self.clock.seconds >= thing.gone_at()
        if (
            machine.state is MachineState.TERMINATED
            and is_true
            and lease.state is LeaseState.RELEASING
        ):
            self._told_gone.setdefault(lease.id, self.clock.seconds)

    def _lease_of(self, thing: Thing) -> Lease | None:
        leases = self.ledger()
        held = [lease for lease in leases if lease.machine_id == thing.id]
        return next(iter(held or [lease for lease in leases if lease.id == thing.token]), None)

    def _wrong(self, what: str) -> None:
        """Keep the first thing that is wrong; a look that raised it would only be repeated."""
        self._first_wrong = self._first_wrong or what

    def _raise_wrong(self) -> None:
        if self._first_wrong:
            raise LeakError(self._first_wrong)

    def _ends(self, who: str, machine_id: str) -> None:
        """A janitor is about to end something."""
        thing = self.cloud.things.get(machine_id)
        if thing is None or not thing.token:
            return
        self.cloud.marks[f"janitor of the {who} ends a {thing.kind}"] += 1
        expires = float(thing.tags["seatrial-expires-at"]) - BEGIN.timestamp()
        if who != "controller":
            if self.clock.seconds < expires + EXPIRED_GRACE.total_seconds():
                self._wrong(f"janitor: {machine_id} of another controller is in its time")
            return
        lease = self._lease_of(thing)
        if lease is None or lease.state is LeaseState.GONE:
            return
        if not self.is_punctual and lease.state is LeaseState.RELEASING:
            return  # the janitor itself has just opened it again
        is_over = self.stores.cells.attempt(lease.attempt_id).closed_at is not None
        if not is_over and lease.machine_id in ("", machine_id):
            self._wrong(f"janitor: {machine_id} has an open lease, {lease.id}")

    def _look_at(self, name: str, arguments: tuple[object, ...], answer: object) -> None:
        """After a write of the ledger: is the money within its bounds?"""
        if name == "reserve" and answer == Reserved(Reservation.RESERVED):
            self._check_budget()
        if name == "reopen":
            self._check_budget()
        if name == "gone":
            self._check_settled(self.stores.leases.get(str(arguments[0])))

    def _check_budget(self) -> None:
        leases = self.ledger()
        spent = sum(x.reserved_usd if x.cost_usd is None else x.cost_usd for x in leases)
        if spent > self.plot.max_usd:
            self._wrong(f"budget: {spent} of {self.plot.max_usd} USD are committed")

    def _check_settled(self, lease: Lease) -> None:
        if not self.is_punctual:
            return
        gone_by_cloud_s = self._told_gone.get(lease.id)
        if lease.gone_at is None or lease.cost_usd is None:
            self._wrong(f"{lease.id} is gone, and not settled")
        if gone_by_cloud_s is None or lease.billed_from is None:
            if lease.cost_usd > 0:
                self._wrong(f"unverified: {lease.id} is closed, its cloud never said so")
            return
        late_s = (lease.gone_at - BEGIN).total_seconds() - gone_by_cloud_s
        allowed_s = LONGEST_CALL_S + TIMINGS.visible_after_s + self.plot.pace_s
        if late_s > allowed_s:
            self._wrong(f"overpaid: {lease.id} for {late_s} s after it was told to be gone")
        reserved_until = lease.billed_from + timedelta(minutes=billed_minutes(self._spec))
        told = BEGIN + timedelta(seconds=gone_by_cloud_s)
        if lease.cost_usd > lease.reserved_usd and told <= reserved_until:
            self._wrong(f"budget: {lease.id} cost {lease.cost_usd} of {lease.reserved_usd} USD")

    def _check(self, forsaken: bool) -> None:
        """Everything is over: what was made, and who paid for it?"""
        self._raise_wrong()
        made = Counter(machine.token for machine in self.cloud.machines)
        twice = [token for token, count in made.items() if count > 1]
        if twice:
            raise LeakError(f"launched twice: {twice}")
        if forsaken:
            return
        leases = self.ledger()
        check_ids(leases)
        for machine in self.cloud.machines:
            self._check_paid(machine, [x for x in leases if x.machine_id == machine.id])
        for lease in leases:
            check_refused(lease)

    def _check_paid(self, machine: Thing, leases: list[Lease]) -> None:
        billed_s = machine.billed_s(self.clock.seconds)
        if billed_s <= 0 or not (leases or machine.shown_to & AT_HOME):
            return  # what ended before anybody at home was shown it, nobody there can know of
        if not self.is_punctual and machine.ends_at <= machine.terminated_at:
            return  # nor of what ended by itself before it was shown for so long as is waited
        if len(leases) != 1:
            raise LeakError(f"unpaid: {machine.id} ran for {billed_s} s, and no lease has it")
        paid_s = machine_seconds(leases[0], self.clock.now())
        if paid_s < billed_s - 1e-3:
            raise LeakError(f"unpaid: {machine.id} ran for {billed_s} s, {paid_s} are paid")
        price = machine.place.usd_per_hour or Decimal(0)
        least = Decimal(billed_s) * price / 3600 - 2 * CENT_OF_CENT
        if (leases[0].cost_usd or 0) < least:
            raise LeakError(f"unpaid: {machine.id} cost {least} USD, {leases[0].cost_usd} are paid")
        ordered_at = self._told_ordered.get(machine.token)
        if ordered_at is None or self._down_s or leases[0].billed_from is None:
            return
        early_s = ordered_at - (leases[0].billed_from - BEGIN).total_seconds()
        if early_s > TIMINGS.note_every_s + LONGEST_CALL_S + self.plot.pace_s:
            raise LeakError(f"overpaid: {machine.id} for {early_s} s before it was granted")
