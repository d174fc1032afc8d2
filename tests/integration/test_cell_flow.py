"""The life of a cell, over a cloud in memory: every way in, every way out, every crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import event

from orchestrator.application.cell import running
from orchestrator.application.cell.flow_context import leave, state_of
from orchestrator.domain.cell import CellState, LeaseState, RunState
from orchestrator.domain.matrix import Limits
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.store.cells import AttemptState
from runners.agent import plan
from runners.fake import LaunchFault
from tests.integration.fake_world import FakeWorld
from tests.integration.memory_engine import SimulatedCrashError, StepLog


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


def give_agents(here: FakeWorld, script: Callable[[object], Iterator[object]]) -> None:
    """Let every machine's agent follow a script."""

    def give(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.script = script

    here.cloud.boot_looks = 3
    here.on_tick.append(give)


def finish(here: FakeWorld) -> None:
    """Run the one cell to its end and check what must always hold."""
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)


def check_invariants(here: FakeWorld) -> None:
    record = here.record()
    assert record.run.state is RunState.FINISHED
    assert [cell.state for cell in record.cells] == [CellState.DONE]
    assert here.cloud.live() == ()
    assert here.database.stores.leases.open() == []
    for lease in record.cells[0].leases:
        assert lease.state == LeaseState.GONE


def test_a_passing_cell(here):
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.PASSED, "")
    assert cell.counts == Counts(passed=2)
    assert [str(t.to_state) for t in cell.transitions] == [
        "placing",
        "booting",
        "preparing",
        "running",
        "collecting",
        "releasing",
        "done",
    ]
    assert here.cloud.made == 1
    assert cell.cost_usd > 0
    assert len(here.published) == 1
    assert here.published[0].record.run.outcome is Outcome.PASSED
    assert "events.jsonl" in [artifact.name for artifact in cell.artifacts]


def test_the_agent_reads_the_plan_that_it_is_sent(here, tmp_path):
    sent = []
    here.on_tick.append(
        lambda world: sent.extend(
            attempt.plan for one in world.computers() for attempt in one.attempts.values()
        )
    )
    finish(here)
    (tmp_path / "plan.json").write_text(json.dumps(sent[0]))
    jobs = plan.load(tmp_path / "plan.json").jobs
    assert [(job.id, job.kind, job.pytest, job.timeout_s) for job in jobs] == [
        ("one", "suite", ("test_one.py",), 1800),
        ("two", "suite", ("test_two.py",), 1800),
    ]


STEPS = {"before": 10, "after": 11}
"""A crash after the last attempt is closed leaves it to another admission to see that."""


def crash_at_every_step(here: FakeWorld, cell: str, when: str) -> int:
    """Live through a cell whose controller dies once at every step; return how many there are."""
    step = 0
    while not here.engine.step_logs.get(cell, StepLog()).finished:
        setattr(here.engine, f"crash_{when}", step)
        try:
            here.engine.run(cell)
        except SimulatedCrashError:
            step += 1
    return step


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_step_changes_nothing(here, when):
    [cell] = here.launch()
    assert crash_at_every_step(here, cell, when) == STEPS[when]
    check_invariants(here)
    record = here.record()
    assert record.run.outcome is Outcome.PASSED
    assert record.counts == Counts(passed=2)
    assert here.cloud.made == 1
    assert len(record.cells[0].attempts) == 1
    numbers = [item.number for item in here.database.stores.run_events.after("run", 0)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_refusal_leads_to_the_next_place(here):
    here.cloud.fail("north", LaunchFault.CAPACITY)
    finish(here)
    leases = here.record().cells[0].leases
    assert [lease.place for lease in leases] == ["north", "south"]
    assert leases[0].refusal.startswith("capacity: ")
    assert here.record().run.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("fault", "outcome", "reason", "attempts"),
    [
        (LaunchFault.CAPACITY, Outcome.ERRORED, "capacity", 3),
        (LaunchFault.QUOTA, Outcome.ERRORED, "quota", 1),
        (LaunchFault.NOT_OFFERED, Outcome.NOT_AVAILABLE, "not_offered", 1),
        (LaunchFault.CREDENTIALS, Outcome.ERRORED, "auth", 1),
        (LaunchFault.CONFIG, Outcome.ERRORED, "config", 1),
    ],
)
def test_refused_everywhere(here, fault, outcome, reason, attempts):
    for place in here.locations:
        here.cloud.fail(place, fault)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason, len(cell.attempts)) == (outcome, reason, attempts)
    assert here.cloud.made == 0
    assert cell.cost_usd == 0


def test_a_lost_answer_never_makes_a_second_machine(here):
    here.cloud.fail("north", LaunchFault.LOST_ANSWER, times=2)
    finish(here)
    assert here.cloud.made == 1
    assert here.record().run.outcome is Outcome.PASSED


def test_cancelled_while_a_launch_has_no_answer(here):
    """The machine exists, nobody knows its id, and it must go home all the same."""
    here.cloud.fail("north", LaunchFault.LOST_ANSWER)
    here.on_tick.append(cancel)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, here.cloud.made) == (Outcome.CANCELLED, 1)


def cancel(here: FakeWorld) -> None:
    here.database.stores.runs.request_cancel("run", at=here.clock.now())


def test_cancelled_while_queued(here):
    [cell] = here.launch()
    cancel(here)
    here.engine.run(cell)
    check_invariants(here)
    assert here.record().run.outcome is Outcome.CANCELLED
    assert here.cloud.requests == []


def test_cancelled_while_running_keeps_finished_tests(here):
    here.on_tick.append(lambda h: h.record().counts.passed and cancel(h))
    finish(here)
    cell = here.record().cells[0]
    assert cell.outcome is Outcome.CANCELLED
    assert cell.counts.passed >= 1
    assert cell.jobs[-1].outcome in (Outcome.NOT_RUN, Outcome.CANCELLED)


def preempt_once(here: FakeWorld) -> None:
    if here.record().counts.passed and here.cloud.made == 1 and here.cloud.live():
        here.cloud.preempt(here.cloud.live()[0].id)


def test_a_preempted_machine_leads_to_another_that_runs_only_the_rest(here):
    here.on_tick.append(preempt_once)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, here.cloud.made, len(cell.attempts)) == (Outcome.PASSED, 2, 2)
    assert cell.attempts[0].cause is not None
    assert cell.attempts[0].cause.reason == "preempted"
    assert cell.counts == Counts(passed=2)


def test_a_cut_line_that_heals_loses_nothing(here):
    def cut_and_heal(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.cut() if 4 < computer.looks < 60 else computer.heal()

    here.on_tick.append(cut_and_heal)
    finish(here)
    assert here.record().run.outcome is Outcome.PASSED
    assert len(here.record().cells[0].attempts) == 1


def test_a_machine_that_is_never_heard_again_is_lost(here):
    def die(world: FakeWorld) -> None:
        for computer in world.computers():
            if computer.looks > 4:
                computer.cut()

    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    here.on_tick.append(die)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "lost")
    assert cell.counts.passed == 1
    assert "no contact for" in cell.detail


def test_the_deadline_keeps_finished_tests(here):
    here.limits = Limits(max_usd=Decimal(10), max_minutes=0.25)
    here.jobs = tuple(f"job{n}" for n in range(30))
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.TIMED_OUT, "deadline")
    assert 0 < cell.counts.passed < 30


def test_a_provider_that_is_down_while_releasing_is_asked_until_it_answers(here):
    here.cloud.fail_verb("terminate", times=5)
    here.cloud.stop_looks = 3
    finish(here)
    assert here.cloud.terminates >= 1


def broken_at_once(plan: object):
    raise RuntimeError("a bug")


def broken_while_running(plan: object):
    for name in ("preparing", "running"):
        yield {"kind": "phase", "job": None, "data": {"name": name}}
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("script", "is_collected"), [(broken_at_once, False), (broken_while_running, True)]
)
def test_an_error_of_our_own_releases_the_machine(here, script, is_collected):
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    give_agents(here, script)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "controller")
    assert "a bug" in cell.detail
    assert ("collecting" in [str(step.to_state) for step in cell.transitions]) is is_collected


@pytest.mark.parametrize("reason", ["environment", "wrong_subject"])
def test_what_the_agent_could_not_do_is_the_attempts_cause(here, reason):
    def refusing(plan: object):
        said = {"outcome": "errored", "reason": reason, "detail": "for a person"}
        yield {"kind": "end", "job": None, "data": said}

    give_agents(here, refusing)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason, len(cell.attempts)) == (Outcome.ERRORED, reason, 1)
    assert "for a person" in cell.detail


def test_the_budget_is_reserved_before_a_launch(here):
    here.limits = Limits(max_usd=Decimal("0.10"))
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "budget")
    assert here.cloud.requests == []


def test_an_unknown_price_is_refused(here):
    here.cloud.prices.update(north=None, south=None)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "price")
    assert here.cloud.requests == []


def test_a_place_without_a_known_price_is_passed_over(here):
    here.cloud.prices["north"] = None
    finish(here)
    cell = here.record().cells[0]
    assert cell.outcome is Outcome.PASSED
    assert [lease.place for lease in cell.leases] == ["south"]


def test_the_statements_of_a_whole_cell(here):
    """Two jobs of one test each, in eight looks: what a cell costs its database."""
    asked = []

    def note(_connection, _cursor, statement, *_more):
        if not statement.startswith("BEGIN"):
            asked.append(statement)

    [cell] = here.launch()
    event.listen(here.database.sessions.engine, "before_cursor_execute", note)
    here.engine.run(cell)
    event.remove(here.database.sessions.engine, "before_cursor_execute", note)
    check_invariants(here)
    assert len(asked) <= 120, "\n".join(asked)


def test_the_statements_of_a_busy_look(here, monkeypatch):
    """A look that finds tests reads no state that the last look's write has confirmed."""
    looks = []
    watch = running.poll_run

    def look(deps, attempt):
        looks.append([])
        answer = watch(deps, attempt)
        looks.append([])
        return answer

    def note(_connection, _cursor, statement, *_more):
        if looks and not statement.startswith("BEGIN"):
            looks[-1].append(statement)

    monkeypatch.setattr(running, "poll_run", look)
    [cell] = here.launch()
    event.listen(here.database.sessions.engine, "before_cursor_execute", note)
    here.engine.run(cell)
    event.remove(here.database.sessions.engine, "before_cursor_execute", note)
    check_invariants(here)
    told = ["; ".join(asked) for asked in looks[2::2]]
    busy = [asked for asked in told if "INTO test_result" in asked and "test_case" not in asked]
    assert busy
    for asked in busy:
        assert len(asked.split("; ")) <= 4 + ("INTO job_result" in asked), asked


def test_a_look_begins_with_a_state_of_at_most_a_second(here):
    [cell] = here.launch()
    attempt = f"{cell}-1"
    assert here.database.stores.cells.admit(cell, attempt, max_parallel=1, at=here.clock.now())

    def is_cancelled(left: AttemptState, seconds: float) -> bool:
        leave(here.world, left)
        here.clock.step(seconds)
        return state_of(here.world, attempt).run.cancel_requested_at is not None

    old = state_of(here.world, attempt)
    cancel(here)
    assert not is_cancelled(old, 1.0)
    assert is_cancelled(old, 0.1), "what is carried on does not become younger"
    assert is_cancelled(old, -3600), "the clock was set back"
    heard = replace(old, position=replace(old.position, goes_on=True))
    here.clock.step(60)
    leave(here.world, heard)
    here.clock.step(1.0)
    kept = state_of(here.world, attempt)
    assert (kept.run.cancel_requested_at, kept.position.goes_on) == (None, False)
    leave(here.world, kept)
    here.clock.step(0.1)
    assert state_of(here.world, attempt).run.cancel_requested_at is not None
