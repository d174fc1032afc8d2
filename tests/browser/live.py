"""A run that goes on while a browser looks, for as long as a test lets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from benchmarks.dashboard.logs import log_lines
from benchmarks.dashboard.plans import MACHINES, MANIFEST, nightly
from benchmarks.dashboard.surroundings import environment
from benchmarks.dashboard.words import harmful, nodeids
from orchestrator.adapters.clock import SystemClock, new_id
from orchestrator.domain.cell import Cause, CellState, Lease, LeaseState, Run, RunSpec
from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import expand
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Outcome
from orchestrator.store.database import Database, open_database
from tests.databases import Agent, write_log

LIVE_LINES = 400
_UNTIL_RUNNING = (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING)


@dataclass(frozen=True)
class Live:
    """A run that goes on, for as long as a test lets it."""

    url: str
    """Of the database."""
    run: str
    cell: str
    """Name of its running cell."""
    cell_id: str
    attempt_id: str

    def log(self, text: str) -> None:
        """The running cell's machine writes something."""
        with _opened(self.url) as database:
            assert write_log(database.stores, self.attempt_id, text.encode())

    def test(self, nodeid: str, outcome: str = "passed", **more: object) -> None:
        """It reports a test."""
        with _opened(self.url) as database:
            agent = _agent(database, self.attempt_id)
            assert agent.send(agent.test(nodeid, outcome, **more))

    def reach(self, cell: str, *states: CellState) -> None:
        """Another cell goes on."""
        with _opened(self.url) as database:
            found = database.stores.cells.of_run(self.run)
            cell_id = next(one.id for one in found if one.name == cell)
            for state in states:
                database.stores.cells.enter(cell_id, state, at=SystemClock().now())

    def finish(self, outcome: Outcome = Outcome.PASSED) -> None:
        """Everything comes to its end."""
        at = SystemClock().now()
        with _opened(self.url) as database:
            stores = database.stores
            for cell in stores.cells.of_run(self.run):
                if cell.state is not CellState.DONE:
                    _end(database, cell.id, Cause(outcome, ""), at)
            assert stores.runs.finish(self.run, outcome, at=at)


def launch(database: Database, payload: str, at: datetime) -> str:
    """A run whose cells all wait."""
    matrix = nightly("2.1.0.dev1", MACHINES[:4])
    subject = matrix.subject
    run = Run(new_id(), "nightly", subject.name, subject.version, payload, at)
    cells = [(f"{run.id}-{n}", plan) for n, plan in enumerate(expand(matrix, MANIFEST))]
    database.stores.runs.create(run, RunSpec(matrix, MANIFEST), cells, key=None)
    return run.id


def begin_live(database: Database, url: str, payload: str, now: datetime, *, hostile: bool) -> Live:
    """One cell runs, one boots, one is done, one could not be had, one waits."""
    begun = now - timedelta(minutes=14)
    run_id = launch(database, payload, begun)
    running, booting, lacking, done, _ = database.stores.cells.of_run(run_id)
    _begin(database, done.id, run_id, begun, until=CellState.RUNNING)
    _end(database, done.id, Cause(Outcome.PASSED, ""), begun + timedelta(minutes=6))
    attempt_id = _begin(database, running.id, run_id, begun, until=CellState.RUNNING)
    _begin(database, booting.id, run_id, begun + timedelta(minutes=9), until=CellState.BOOTING)
    _refuse(database, lacking.id, begun)
    live = Live(url, run_id, running.name, running.id, attempt_id)
    _say_something(database, live, begun, hostile=hostile)
    return live


def _begin(database: Database, cell_id: str, run_id: str, at: datetime, *, until: CellState) -> str:
    """Open an attempt with a machine, and go as far as asked."""
    stores, attempt_id = database.stores, f"{cell_id}-1"
    assert stores.cells.admit(cell_id, attempt_id, max_parallel=9, at=at)
    zone, price = "us-east-1/us-east-1a", Decimal("0.8048")
    lease = Lease(
        id=f"{attempt_id}-1",
        attempt_id=attempt_id,
        provider="fake",
        place=zone,
        state=LeaseState.RESERVED,
        reserved_usd=Decimal("1.2072"),
        price_usd_per_hour=price,
        reserved_at=at,
        offer=Place(zone, price_usd_per_hour=price, zone="us-east-1a", market="spot"),
    )
    stores.leases.reserve(lease, run_id=run_id, exclusive=False)
    stores.leases.launching(lease.id, at=at + timedelta(seconds=2))
    stores.leases.active(lease.id, f"us-east-1a/{cell_id[-8:]}", at=at + timedelta(seconds=4))
    for number, state in enumerate(_UNTIL_RUNNING, 1):
        stores.cells.enter(cell_id, state, at=at + timedelta(seconds=50 * number))
        if state is until:
            break
    return attempt_id


def _refuse(database: Database, cell_id: str, at: datetime) -> None:
    """Nobody has such a machine."""
    cells, cause = database.stores.cells, Cause(Outcome.NOT_AVAILABLE, "capacity", "none is left")
    assert cells.admit(cell_id, f"{cell_id}-1", max_parallel=9, at=at)
    cells.record_cause(f"{cell_id}-1", cause)
    cells.enter(cell_id, CellState.RELEASING, at=at + timedelta(seconds=20))
    cells.conclude(cell_id, cause, at=at + timedelta(seconds=21))


def _end(database: Database, cell_id: str, outcome: Cause, at: datetime) -> None:
    stores = database.stores
    cell = stores.cells.get(cell_id)
    if cell.state is CellState.QUEUED:
        stores.cells.conclude(cell_id, Cause(Outcome.CANCELLED, "cancelled"), at=at)
        return
    if cell.state is CellState.RUNNING:
        stores.cells.enter(cell_id, CellState.COLLECTING, at=at)
    stores.cells.enter(cell_id, CellState.RELEASING, at=at)
    for lease in stores.leases.of_attempt(f"{cell_id}-1"):
        stores.leases.releasing(lease.id)
        stores.leases.gone(lease.id, at=at, cost_usd=machine_cost(lease, at))
    stores.evidence.settle(cell_id, [])
    stores.cells.conclude(cell_id, outcome, at=at)


def _say_something(database: Database, live: Live, begun: datetime, *, hostile: bool) -> None:
    """What has come in of the running cell so far."""
    agent = _agent(database, live.attempt_id)
    tests = [nodeid for suite, nodeid in nodeids(60) if suite == "unit"]
    told = environment(MACHINES[0], 36, "image", f" {harmful(1)}" if hostile else "")
    lines = [
        agent.line("environment", **told),
        agent.line("phase", "unit", name="started"),
        agent.manifest(*tests),
        *(agent.test(nodeid) for nodeid in tests[:20]),
        agent.test(tests[20], "failed", longrepr=_TRACE),
        agent.line("test", "unit", record="start", nodeid=tests[21]),
    ]
    assert agent.send(*lines)
    words = log_lines(LIVE_LINES, begun, hostile=hostile)
    assert write_log(database.stores, live.attempt_id, "".join(words).encode())


def _agent(database: Database, attempt_id: str) -> Agent:
    """Goes on where the attempt's evidence ends."""
    position = database.stores.evidence.position(attempt_id)
    return Agent(database.stores, attempt_id, position.seq, b" " * position.events_bytes)


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = open_database(url)
    try:
        yield database
    finally:
        database.close()


_TRACE = """\
tests/unit/test_fusion.py:41: in test_fusion_matches_reference
    got = aurora.fuse(x, y)
aurora/fusion/kernels.py:218: in fuse
    return _checked(handle, plan.launch(stream))
E   RuntimeError: CUDA error: an illegal memory access was encountered at 0x7f3a10"""
