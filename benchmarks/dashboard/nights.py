"""Writes the runs of all nights, each with its cells."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from benchmarks.dashboard.bulk_insert import Sink
from benchmarks.dashboard.cells import CellWriter, Fate
from benchmarks.dashboard.clock import id_at
from benchmarks.dashboard.life import Feed, Life, Numbers
from benchmarks.dashboard.plans import (
    MACHINES,
    MANIFEST,
    MEASURED,
    PRODUCT,
    SUBJECT,
    Machine,
    measuring,
    nightly,
)
from benchmarks.dashboard.series import Series
from benchmarks.dashboard.sizes import Size
from benchmarks.dashboard.suite import Suite
from benchmarks.dashboard.words import harmful
from orchestrator.domain.cell import RunSpec, RunState, run_outcome
from orchestrator.domain.matrix import CellPlan, Matrix, expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    CheckResultRow,
    LeaseRow,
    RunRow,
    RunSpecRow,
    TransitionRow,
)

_CYCLE = 14
"""Number of nights between two releases."""
_CANDIDATES = 3
_RENEWED = 20
"""Number of nights between two software revisions of the machines."""
_LOGGED_NIGHTS = 8
"""Number of newest nights whose cells have logs."""
_NUMBERED = (CellRow, AttemptRow, LeaseRow, TransitionRow, CheckResultRow)
"""Tables in the order of the fields of `Numbers`."""

_STAGED = {
    (1, "gcp-tpu-v5e"): Fate.IN_VAIN,
    (1, "aws-l4"): Fate.WELL,
    (2, "aws-graviton"): Fate.BROKEN,
    (2, "aws-l4"): Fate.PREEMPTED,
    (3, "aws-l4"): Fate.HUNG,
    (4, "gcp-a100.image"): Fate.LOST,
    (5, "aws-graviton"): Fate.FIXTURE,
}
"""Fates by age in nights and cell, so that each fate is among the newest nights of every size."""
_CALM = (6, 7, 8)


@dataclass(frozen=True, slots=True)
class Night:
    """A planned run."""

    at: datetime
    number: int
    is_measuring: bool


def version_of(night: int, at: datetime) -> str:
    """Return a night's version: a dated one, or a candidate at the end of each cycle."""
    minor, day = divmod(night, _CYCLE)
    left = _CYCLE - day
    if left <= _CANDIDATES:
        return f"2.{minor}.0rc{_CANDIDATES - left + 1}"
    return f"2.{minor}.0.dev{at:%Y%m%d}"


def nights(size: Size, now: datetime) -> list[Night]:
    """Return all planned runs, the oldest first; the newest ended some hours ago."""
    last = (now - timedelta(hours=7)).replace(minute=0, second=0, microsecond=0)
    tested = [
        Night(last - timedelta(days=size.nights - 1 - n), n, is_measuring=False)
        for n in range(size.nights)
    ]
    measured = [
        Night(last - timedelta(days=size.measured_nights - 1 - n, hours=2), n, is_measuring=True)
        for n in range(size.measured_nights)
    ]
    return sorted([*tested, *measured], key=lambda night: night.at)


@dataclass
class Writer:
    """Writes all runs with their cells."""

    sink: Sink
    size: Size
    suite: Suite
    series: Series
    chance: random.Random
    now: datetime
    payload: str
    """Digest of the product's payload."""
    hostile: bool = False
    numbers: Numbers = field(init=False)
    runs: list[str] = field(default_factory=list)
    """Ids of the runs with tests, the oldest first."""

    def __post_init__(self) -> None:
        first = self.sink.first
        self.numbers = Numbers(*(first(table) for table in _NUMBERED))
        self.machines = MACHINES[: self.size.platforms]
        self.measured = tuple(m for m in self.machines if m.id in MEASURED)
        self.cells = CellWriter(self.sink, self.suite, self.chance)

    def write(self, told: Callable[[int, int], None] = lambda _n, _all: None) -> None:
        """Write every night; `told` is called with the number of the run and of all runs."""
        planned = nights(self.size, self.now)
        for number, night in enumerate(planned):
            if night.is_measuring:
                self._measure(night)
            else:
                self._test(night)
            self.sink.flush_when_full()
            told(number, len(planned))
        self.sink.flush()

    def _test(self, night: Night) -> None:
        version = version_of(night.number, night.at)
        matrix = nightly(version, self.machines)
        run_id = id_at(night.at, self.chance)
        self.runs.append(run_id)
        newest = self.size.nights - night.number <= _LOGGED_NIGHTS

        def live(life: Life) -> Outcome:
            if newest:
                longest = night.number == self.size.nights - 1 and life.position == 0
                life.log = self.size.log_lines if longest else self.chance.randrange(40, 900)
            ago = self.size.nights - night.number
            staged = Fate.CALM if ago in _CALM else _STAGED.get((ago, life.plan.id))
            return self.cells.live(life, night.number, staged or self.cells.fate(life.machine))

        self._run(run_id, night, matrix, live)

    def _measure(self, night: Night) -> None:
        version = version_of(
            max(night.number - self.size.measured_nights + self.size.nights, 0), night.at
        )
        matrix = measuring(version, self.measured)

        def measure(life: Life) -> Outcome:
            outcome = self.cells.measure(life)
            rows = self.series.of_night(night.number, life.machine, life.attempt_pk)
            self.sink.add_metrics(list(rows))
            return outcome

        self._run(id_at(night.at, self.chance), night, matrix, measure)

    def _run(
        self, run_id: str, night: Night, matrix: Matrix, live: Callable[[Life], Outcome]
    ) -> None:
        feed = Feed(self.sink, run_id)
        told: list[tuple[Outcome, bool]] = []
        ends = [night.at]
        for life in self._lives(run_id, night, matrix, feed):
            told.append((live(life), life.plan.platform.optional))
            ends.append(life.at)
        outcome = run_outcome(told)
        feed.tell("run", "", state=RunState.FINISHED.value, outcome=outcome.value)
        self.write_run(run_id, matrix, night.at, feed, outcome, max(ends) + timedelta(seconds=4))

    def _lives(self, run_id: str, night: Night, matrix: Matrix, feed: Feed) -> Iterator[Life]:
        by_id = {machine.id: machine for machine in self.machines}
        for position, plan in enumerate(expand(matrix, MANIFEST)):
            yield self.life(run_id, position, plan, by_id[plan.platform.id], night, feed)

    def life(
        self, run_id: str, position: int, plan: CellPlan, machine: Machine, night: Night, feed: Feed
    ) -> Life:
        """Return a cell at its beginning."""
        since_first = (night.at - self.now).days + 730
        return Life(
            sink=self.sink,
            numbers=self.numbers,
            chance=self.chance,
            machine=machine,
            plan=plan,
            run_id=run_id,
            position=position,
            feed=feed,
            at=night.at,
            revision=max(since_first, 0) // _RENEWED,
            trap=f" {harmful(position + night.number)}" if self.hostile else "",
            hostile=self.hostile,
        )

    def write_run(
        self,
        run_id: str,
        matrix: Matrix,
        at: datetime,
        feed: Feed,
        outcome: Outcome | None,
        finished_at: datetime | None,
    ) -> None:
        """Write the run's row and its launch document."""
        self.sink.add(
            RunRow,
            id=run_id,
            matrix_name=matrix.metadata.name,
            subject_name=SUBJECT,
            subject_version=matrix.subject.version,
            payload_digest=self.payload,
            product=PRODUCT,
            build=sha256(f"{matrix.subject.version} {self.payload}".encode()).hexdigest(),
            created_at=at,
            state=RunState.FINISHED if outcome else RunState.RUNNING,
            outcome=outcome,
            finished_at=finished_at,
        )
        self.sink.add(RunSpecRow, run_id=run_id, spec=RunSpec(matrix, MANIFEST))
