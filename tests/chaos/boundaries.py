"""Kills and pauses of a controller at random boundaries, over a matrix on each cloud.

The controller is in this process, with the product's providers, stores and flow; the clouds are the
lab's emulations and the cloud in memory, and their clock is the controller's. What is read at the
end are the clouds' own books.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.application.describe_run import evidence_of
from orchestrator.assets import asset_dir
from orchestrator.domain.run_record import Evidence
from reports import registry
from runners.fake import FakeComputer
from tests.integration.fake_world import FakeWorld
from tests.integration.memory_engine import MemoryEngine, SimulatedCrashError
from tests.lab import test_fault_table_aws as aws
from tests.lab import test_fault_table_gcp as gcp
from tests.lab import test_fault_table_tpu as tpu
from tests.lab.fault_table import check_nothing_left
from tests.lab.fault_world import RUN

CELLS = ("north-cell", "south-cell", "west-cell")
MOST_BLOWS = 6
"""In one run."""
_PAUSE_S = 90.0
_OF_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?: UTC|Z)?)?"
    r"|(?:&lt;)?\$\d+(?:\.\d+)?|\b(?:\d+h )?(?:\d+m )?\d+(?:\.\d+)? ?s\b|\b[0-9a-f]{64}\b"
)
"""Times, amounts, durations and digests of files with times: they differ from run to run."""


class Blow(Enum):
    """What happens to the controller."""

    BEFORE_A_STEP = "killed before a step"
    AFTER_A_STEP = "killed after a step that it had not recorded"
    WHILE_IT_WAITS = "killed while it waited"
    PAUSED = "stopped for up to 90 s, and continued"


class World(Protocol):
    """What the worlds of the fault tables and of the flow's tests have in common."""

    engine: MemoryEngine
    on_tick: list[Any]
    clock: Any
    database: Any
    world: Any


@dataclass(slots=True)
class Bench:
    """One world, and what its cloud's books say."""

    here: World
    cells: list[str]
    restart: Callable[[], None]
    """Makes what a new process has anew."""
    made: Callable[[], int]
    """Number of machines that the cloud ever made."""
    check_nothing_left: Callable[[], None]
    cell: str = ""
    """The cell that runs."""

    def evidence(self) -> Evidence:
        return evidence_of(self.here.database.stores, RUN, at=self.here.clock.now())

    def results(self) -> Counter[tuple[str, str, str, str]]:
        """How often each result is stored."""
        tests = self.evidence().tests
        return Counter(
            (cell, test.job, test.nodeid, str(test.outcome))
            for cell, found in tests.items()
            for test in found
        )

    def report(self) -> str:
        """The summary without its times, amounts and digests."""
        templates = asset_dir("templates") / "reports"
        return _OF_TIME.sub("…", registry.render("summary", self.evidence(), templates=templates))

    def steps(self) -> int:
        """Return the number of recorded steps of the longest flow."""
        return max((len(one.answers) for one in self.here.engine.step_logs.values()), default=0)

    def run(self, fall: Callable[[], None] = lambda: None) -> None:
        """Run every cell to its end; `fall` is called after each kill, in the new process."""
        for cell in self.cells:
            self.cell = cell
            while True:
                try:
                    self.here.engine.run(cell)
                    break
                except SimulatedCrashError:
                    journals = self.here.engine.step_logs
                    self.restart()
                    self.here.engine.step_logs = journals
                    fall()


class Blows:
    """Plans one blow after the other, each at a random boundary of what is left."""

    def __init__(self, bench: Bench, chance: random.Random, expected: Undisturbed) -> None:
        self.fallen: Counter[Blow] = Counter()
        self._bench, self._chance, self._expected = bench, chance, expected
        self._left = chance.randint(1, MOST_BLOWS)
        self._looks_left = 0
        self._next: Blow | None = None
        bench.here.on_tick.append(self._tick)
        self._plan()

    def fell(self) -> None:
        """Count the planned one, and plan the next."""
        if self._next is not None:
            self.fallen[self._next] += 1
        self._plan()

    def _plan(self) -> None:
        self._next = None
        if self._left == 0:
            return
        self._left -= 1
        self._next = self._chance.choice(list(Blow))
        engine = self._bench.here.engine
        journal = engine.step_logs.get(self._bench.cell)
        done = len(journal.answers) if journal is not None else 0
        step = self._chance.randrange(done, max(done + 1, self._expected.steps))
        if self._next is Blow.BEFORE_A_STEP:
            engine.crash_before = step
        elif self._next is Blow.AFTER_A_STEP:
            engine.crash_after = step
        else:
            self._looks_left = self._chance.randint(1, self._expected.looks)

    def _tick(self, _: object) -> None:
        if self._next not in (Blow.WHILE_IT_WAITS, Blow.PAUSED):
            return
        self._looks_left -= 1
        if self._looks_left > 0:
            return
        if self._next is Blow.WHILE_IT_WAITS:
            raise SimulatedCrashError("killed while it waited")
        self._bench.here.clock.step(self._chance.uniform(1, _PAUSE_S))
        self.fell()


@contextmanager
def _in_cloud(table: Any, folder: Path) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch, table.a_world(folder, patch) as here:
        here.prepare = _slowly

        def restart() -> None:
            here.provider = here.new_provider()
            here.renew_engine()

        def check() -> None:
            check_nothing_left(here)
            here.check_money()

        yield Bench(here, here.store_run(), restart, lambda: len(here.machines.booted), check)


def _slowly(one: FakeComputer) -> None:
    one.lines_per_look = 1


@contextmanager
def _in_memory(folder: Path) -> Iterator[Bench]:
    folder.mkdir()
    here = FakeWorld(folder, platforms=CELLS)
    here.on_tick.append(lambda _: [_slowly(one) for one in here.computers()])

    def restart() -> None:
        here.engine = MemoryEngine(partial(run_cell, here.world), tick=here.engine._tick)

    def check() -> None:
        assert here.cloud.live() == (), f"left: {here.cloud.live()}"
        leases = here.database.stores.leases.open()
        assert leases == [], f"open leases: {leases}"

    try:
        yield Bench(here, here.launch(RUN), restart, lambda: here.cloud.made, check)
    finally:
        here.close()


CLOUDS: Mapping[str, Callable[[Path], Any]] = {
    "fake": _in_memory,
    "aws": partial(_in_cloud, aws),
    "gcp": partial(_in_cloud, gcp),
    "tpu": partial(_in_cloud, tpu),
}


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What a run on a cloud comes to when nothing happens to it."""

    results: Counter[tuple[str, str, str, str]]
    report: str
    made: int
    steps: int
    looks: int
    """Looks at something that was waited for."""

    @classmethod
    def on(cls, cloud: str, folder: Path) -> Undisturbed:
        """Run once."""
        looks: list[object] = []
        with CLOUDS[cloud](folder) as bench:
            bench.here.on_tick.append(looks.append)
            bench.run()
            bench.check_nothing_left()
            made, steps = bench.made(), bench.steps()
            return cls(bench.results(), bench.report(), made, steps, len(looks))

    def check(self, bench: Bench) -> None:
        """Raise AssertionError where a run came to something else, or left something."""
        bench.check_nothing_left()
        found = bench.results()
        assert not self.results - found, f"lost: {self.results - found}"
        assert not found - self.results, f"doubled: {found - self.results}"
        assert bench.made() == self.made, f"{bench.made()} machines, not {self.made}"
        changes = unified_diff(self.report.splitlines(), bench.report().splitlines(), n=0)
        assert not (told := list(changes)), "\n".join(told)


def disturbed(
    cloud: str, folder: Path, expected: Undisturbed, chance: random.Random
) -> Counter[Blow]:
    """Run with blows at random boundaries; return them. Raises AssertionError for a difference."""
    with CLOUDS[cloud](folder) as bench:
        blows = Blows(bench, chance, expected)
        bench.run(blows.fell)
        expected.check(bench)
        return blows.fallen
