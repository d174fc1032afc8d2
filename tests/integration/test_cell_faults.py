"""What goes wrong around a cell must not wedge it, nor keep its machine, nor make it lie."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.domain.cell import Cause
from orchestrator.domain.matrix import Limits
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.store.errors import StoreError
from runners.fake import LaunchFault
from tests.integration.fake_world import FakeWorld
from tests.integration.memory_engine import SimulatedCrashError, StepLog
from tests.integration.test_cell_flow import STEPS, cancel, check_invariants, give_agents


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


class FullDisk:
    """Blobs on a disk that is full for so many looks."""

    def __init__(self, blobs, *, looks: int) -> None:
        self._blobs = blobs
        self.looks = looks

    def put(self, chunks: Iterable[bytes], **limits: object) -> tuple[str, int]:
        if self.looks > 0:
            self.looks -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._blobs.put(chunks, **limits)

    def open(self, digest: str) -> Iterator[bytes]:
        return self._blobs.open(digest)

    def has(self, digest: str) -> bool:
        return self._blobs.has(digest)


def with_world(here: FakeWorld, **changes: object) -> None:
    """Replace some of its ports."""
    here.world = replace(here.world, **changes)
    here.engine._flow = partial(run_cell, here.world)


def test_a_flow_that_is_begun_anew_finds_its_place(here):
    """At each step the engine lost all that it had recorded; the store knows where the cell is."""
    [cell] = here.launch()
    step = 0
    while not here.engine.step_logs.get(cell, StepLog()).finished:
        here.engine.step_logs.clear()
        here.engine.crash_before = step
        with suppress(SimulatedCrashError):
            here.engine.run(cell)
        step += 1
    assert step == STEPS["before"] + 1, "a crash before each step, and the run that ends"
    check_invariants(here)
    assert here.record().counts == Counts(passed=2)
    assert (here.cloud.made, len(here.record().cells[0].attempts)) == (1, 1)


class DyingAfterReserve:
    """Leases whose controller dies when it has reserved the money, and asked for no machine yet."""

    def __init__(self, leases) -> None:
        self._leases = leases

    def reserve(self, lease, **bounds: object) -> object:
        self._leases.reserve(lease, **bounds)
        raise SimulatedCrashError("reserved")

    def __getattr__(self, name: str):
        return getattr(self._leases, name)


def test_money_that_was_reserved_and_not_spent_is_free_again(here):
    [cell] = here.launch()
    stores = here.database.stores
    with_world(here, stores=replace(stores, leases=DyingAfterReserve(stores.leases)))
    with pytest.raises(SimulatedCrashError, match="reserved"):
        here.engine.run(cell)
    cancel(here)
    with_world(here, stores=stores)
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert (shown.outcome, [lease.cost_usd for lease in shown.leases]) == (Outcome.CANCELLED, [0])
    assert here.cloud.requests == []


def test_a_stored_cause_stops_the_attempt_though_its_step_was_never_recorded(here):
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    [cell] = here.launch()
    here.engine.crash_before = 2
    with pytest.raises(SimulatedCrashError):
        here.engine.run(cell)
    attempt = here.record().cells[0].attempts[0]
    cause = Cause(Outcome.ERRORED, "boot", "it did not boot")
    here.database.stores.cells.record_cause(attempt.id, cause)
    here.engine.run(cell)
    check_invariants(here)
    states = [str(step.to_state) for step in here.record().cells[0].transitions]
    assert "running" not in states
    assert here.record().cells[0].reason == "boot"


@pytest.mark.parametrize(("looks", "kept"), [(3, True), (10_000, False)])
def test_a_full_disk_while_collecting_is_waited_for_within_bounds(here, looks, kept):
    [cell] = here.launch()
    with_world(here, blobs=FullDisk(here.world.blobs, looks=looks))
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert (shown.outcome, shown.counts) == (Outcome.PASSED, Counts(passed=2))
    assert ("events.jsonl" in [artifact.name for artifact in shown.artifacts]) is kept
    told = [str(item.data) for item in here.database.stores.run_events.after("run", 0)]
    assert any("No space left" in text for text in told) is not kept


def test_evidence_that_cannot_be_read_back_does_not_keep_the_machine(here):
    [cell] = here.launch()
    here.engine.crash_before = 5
    with pytest.raises(SimulatedCrashError):
        here.engine.run(cell)
    with here.database.stores.evidence._sessions.write() as session:
        session.connection().exec_driver_sql("UPDATE evidence_chunk SET body = x'00'")
    here.engine.run(cell)
    check_invariants(here)
    assert here.record().cells[0].outcome is Outcome.PASSED


def test_reports_that_cannot_be_written_do_not_keep_the_run_open(here):
    def publish(evidence: object):
        raise RuntimeError("a bug in a report")

    [cell] = here.launch()
    with_world(here, publish=publish)
    here.engine.run(cell)
    check_invariants(here)
    assert here.record().run.outcome is Outcome.PASSED


def test_a_cell_that_cannot_be_judged_is_an_error_of_ours(here):
    [cell] = here.launch()
    results = Unreadable(here.database.stores.results)
    with_world(here, stores=replace(here.database.stores, results=results))
    here.engine.crash_before = 7
    with pytest.raises(SimulatedCrashError):
        here.engine.run(cell)
    results.broken = True
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert (shown.outcome, shown.reason) == (Outcome.ERRORED, "controller")
    assert "cannot be judged" in shown.detail


class Unreadable:
    """Results whose checks cannot be read any more."""

    def __init__(self, results) -> None:
        self._results = results
        self.broken = False

    def of_cells(self, cells, depth, jobs):
        if self.broken:
            raise ValueError("a bug")
        return self._results.of_cells(cells, depth, jobs)

    def __getattr__(self, name: str):
        return getattr(self._results, name)


def failing_for_ever(plan: object) -> Iterator[dict[str, object]]:
    """One test fails, the next is never heard of again."""

    def report(when: str, outcome: str) -> dict[str, object]:
        said = {"record": "report", "nodeid": "t::a", "duration": 0.1}
        return {"kind": "test", "job": "one", "data": said | {"when": when, "outcome": outcome}}

    started = {"name": "started", "kind": "suite", "pid": 1}
    yield {"kind": "phase", "job": "one", "data": started}
    yield {"kind": "manifest", "job": "one", "data": {"tests": ["t::a", "t::b"], "process": 1}}
    yield {"kind": "test", "job": "one", "data": {"record": "start", "nodeid": "t::a"}}
    yield report("setup", "passed")
    yield report("call", "failed")
    yield report("teardown", "passed")
    while True:
        yield {"kind": "heartbeat", "job": None, "data": {}}


def test_cancelled_between_two_attempts_keeps_what_the_first_one_found(here):
    """A test that failed stays failed, whatever became of its cell afterwards."""

    def act(world: FakeWorld) -> None:
        if world.record().counts.failed and world.cloud.live():
            world.cloud.preempt(world.cloud.live()[0].id)

    give_agents(here, failing_for_ever)
    here.on_tick.append(act)
    [cell] = here.launch()
    here.engine.crash_after = 8
    with pytest.raises(SimulatedCrashError, match="close"):
        here.engine.run(cell)
    assert here.record().cells[0].attempts[0].closed_at is not None
    cancel(here)
    here.engine.run(cell)
    check_invariants(here)
    shown = here.record().cells[0]
    assert (shown.counts.failed, shown.counts.missing) == (1, 1)
    assert (shown.outcome, shown.jobs[0].outcome) == (Outcome.FAILED, Outcome.FAILED)
    assert here.cloud.made == 1


def test_a_store_that_is_away_is_told_once(here, caplog):
    here.cloud.fail("north", LaunchFault.UNAVAILABLE, times=2)
    here.cloud.fail_verb("inspect", times=3)
    [cell] = here.launch()
    away = Away(here.database.stores.leases)
    with_world(here, stores=replace(here.database.stores, leases=away))
    here.engine.run(cell)
    check_invariants(here)
    told = [record for record in caplog.records if "store cannot be used" in record.message]
    assert 0 < len(told) < away.times


class Away:
    """Leases that cannot be reached for a while."""

    def __init__(self, leases) -> None:
        self._leases = leases
        self.times = self.left = 8

    def placed(self, attempt_id: str, provider: str, since):
        if self.left:
            self.left -= 1
            raise StoreError("the database is away")
        return self._leases.placed(attempt_id, provider, since)

    def __getattr__(self, name: str):
        return getattr(self._leases, name)
