"""DIAGNOSING: failed tests run again on their machine, which goes home whatever happens."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orchestrator.application.attribute_failures import attribute_run
from orchestrator.domain.cell import CellState
from orchestrator.domain.matrix import Baseline, Limits
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.retests import (
    SURE,
    RetestKind,
    RetestOptions,
    RetestPlan,
    RetestSessionState,
)
from orchestrator.store.errors import StoreError
from tests.integration.fake_world import FakeWorld
from tests.integration.memory_engine import SimulatedCrashError, StepLog
from tests.integration.retest_world import RetestWorld, subject_version
from tests.integration.test_cell_flow import check_invariants, crash_at_every_step

BASELINE = Baseline(package="steps==0.9")
ONE, TWO = "one::one.py::test_one", "two::two.py::test_two"


def ours_is_one(job: str, plan) -> str:
    """`one` fails with the subject alone; `two` is sound."""
    return "failed" if job == "one" and subject_version(plan) != "0.9" else "passed"


@pytest.fixture
def here(tmp_path):
    world = RetestWorld(
        tmp_path, retests=RetestOptions(diagnose=True), baseline=BASELINE, word=ours_is_one
    )
    yield world
    world.close()


def finish(here: RetestWorld) -> None:
    [cell] = here.launch()
    here.engine.run(cell)
    check_invariants(here)


def states(here: RetestWorld) -> list[str]:
    return [str(step.to_state) for step in here.record().cells[0].transitions]


def retest_sessions(here: RetestWorld):
    return here.database.stores.retests.of_attempt("run-0-1")


def notices(here: RetestWorld) -> list[str]:
    items = here.database.stores.run_events.after("run", 0)
    return [str(item.data["notice"]) for item in items if "notice" in item.data]


def when_diagnosing(act):
    """Do something once, at the first tick in which the cell is diagnosing."""
    done = []

    def tick(world: FakeWorld) -> None:
        cell = world.database.stores.cells.get("run-0")
        if cell.state is CellState.DIAGNOSING and not done:
            done.append(act(world))

    return tick


def test_who_broke_it_is_found_out_before_the_machine_goes_home(here):
    finish(here)
    assert states(here)[-4:] == ["collecting", "diagnosing", "releasing", "done"]
    asked = [(s.ask.kind.value, s.ask.times, s.state.value) for s in retest_sessions(here)]
    assert asked == [
        ("rerun", 4, "ended"),
        ("baseline", 4, "ended"),
        ("rerun", 2, "ended"),
    ]
    [found] = attribute_run(here.database.stores, "run")["cloudy"]
    assert (found.nodeid, found.answer) == ("one.py::test_one", "subject")
    assert any(
        said.startswith("diagnosing: 1 failing test again, 4 times") for said in notices(here)
    )
    assert any("test_one: subject" in said for said in notices(here))


def test_results_stay_what_they_were(here):
    finish(here)
    record = here.record()
    cell = record.cells[0]
    assert (cell.outcome, record.counts) == (Outcome.FAILED, Counts(passed=1, failed=1))
    assert len(cell.attempts) == 1
    assert here.cloud.made == 1
    raw = here.database.stores.evidence.raw_events("run-0-1")
    assert b"~1" not in b"".join(raw)
    assert [len(plan["jobs"]) for plan in here.plans] == [2, 4, 4, 2]
    assert here.plans[1]["jobs"][0]["only"] == ["one.py::test_one"]


def test_folders_go_and_evidence_is_kept(here):
    """Every sitting's folder is closed as soon as it is over."""
    left: list[set[str]] = []

    def look(world: FakeWorld) -> None:
        if world.cloud.live():
            left.append(set(world.computers()[0].attempts))

    here.on_tick.append(look)
    finish(here)
    assert {"run-0-1", "run-0-1-t1"} in left
    assert max(map(len, left)) == 2, "the attempt's own, and one sitting's"
    assert [s.evidence != "" for s in retest_sessions(here)] == [True] * 3
    assert here.world.blobs.has(retest_sessions(here)[0].evidence)


def test_a_cell_that_passes_needs_no_retests(here):
    here.word = lambda job, plan: "passed"
    finish(here)
    assert "diagnosing" not in states(here)
    assert retest_sessions(here) == ()


def test_a_run_that_asks_for_none_has_none(here):
    here.retests = None
    finish(here)
    assert "diagnosing" not in states(here)


def test_reruns_alone(here):
    here.retests = RetestOptions(reruns=2)
    finish(here)
    assert [(s.ask.kind, s.ask.times) for s in retest_sessions(here)] == [(RetestKind.RERUN, 2)]
    retests = here.database.stores.retests.of_run("run")["cloudy"]
    assert [retest.outcomes for retest in retests] == [{ONE: "failed"}, {ONE: "failed"}]


def test_a_flaky_test_needs_one_session(here):
    words = iter(["failed", "passed", "failed", "passed", "passed"])
    here.word = lambda job, plan: next(words) if job == "one" else "passed"
    finish(here)
    [found] = attribute_run(here.database.stores, "run")["cloudy"]
    assert found.answer == "flaky"
    assert len(retest_sessions(here)) == 1


def test_a_baseline_that_cannot_be_had_is_told_and_passed_over(here):
    here.refused.add("steps==0.9")
    finish(here)
    assert [s.trouble for s in retest_sessions(here)] == ["", "no index has steps==0.9"]
    [found] = attribute_run(here.database.stores, "run")["cloudy"]
    assert found.answer == "unknown"


def test_cancelled_while_diagnosing(here):
    at = here.clock
    stores = here.database.stores
    here.on_tick.append(
        when_diagnosing(lambda world: stores.runs.request_cancel("run", at=at.now()))
    )
    finish(here)
    assert here.record().cells[0].outcome is Outcome.FAILED, "its jobs had all run"
    assert {s.state for s in retest_sessions(here)} <= {RetestSessionState.ENDED}
    assert any("its run was cancelled" in said for said in notices(here))


def test_the_orders_time_is_kept(here):
    here.retests = RetestOptions(diagnose=True, max_minutes=0.1)
    finish(here)
    assert any("the time for it is over" in said for said in notices(here))
    spent = [step for step in here.record().cells[0].transitions if step.to_state == "releasing"]
    began = [step for step in here.record().cells[0].transitions if step.to_state == "diagnosing"]
    assert (spent[0].at - began[0].at).total_seconds() <= 10


def test_the_attempts_time_is_kept(here):
    here.limits = Limits(max_usd=Decimal(10), max_minutes=0.5)
    finish(here)
    assert here.record().cells[0].outcome is Outcome.FAILED


def test_a_machine_that_does_not_answer_is_not_waited_for_long(here):
    here.on_tick.append(when_diagnosing(lambda world: world.computers()[0].cut()))
    here.on_tick.append(lambda world: world.clock.step(5))
    [cell] = here.launch()
    here.engine.run(cell)
    assert here.cloud.live() == ()
    assert here.record().cells[0].outcome is Outcome.FAILED
    assert any("not looked into any further" in said for said in notices(here))


def test_a_machine_that_is_taken_away_meanwhile(here):
    here.on_tick.append(
        when_diagnosing(lambda world: world.cloud.preempt(world.cloud.live()[0].id))
    )
    finish(here)
    assert here.record().cells[0].outcome is Outcome.FAILED
    assert here.cloud.made == 1, "its jobs had all run: nothing is tried again"


def test_a_machine_waits_for_retests_that_are_asked_for(here):
    here.retests = RetestOptions(await_minutes=10)
    store = here.database.stores.retests
    tests = {"one": ("one.py::test_one",)}
    ask = RetestPlan(kind=RetestKind.BISECT, tests=tests, times=SURE, key="k")

    def act(world: FakeWorld) -> None:
        if world.database.stores.cells.get("run-0").state is not CellState.DIAGNOSING:
            return
        found = store.of_attempt("run-0-1")
        if not found:
            assert store.ask("run-0-1", ask, at=world.clock.now()).number == 1
            assert store.ask("run-0-1", ask, at=world.clock.now()).number == 1
        elif found[0].state is RetestSessionState.ENDED:
            store.end_retests("run-0-1", at=world.clock.now())

    here.on_tick.append(act)
    finish(here)
    [retest_session] = retest_sessions(here)
    assert retest_session.trouble.startswith("the subject is the payload")


def test_a_machine_that_nobody_asks_anything_goes_home(here):
    here.retests = RetestOptions(await_minutes=1, max_minutes=1)
    finish(here)
    assert any("waits for retests" in said for said in notices(here))


@pytest.mark.parametrize(("when", "steps"), [("before", 10), ("after", 11)])
def test_a_crash_at_every_step_changes_nothing(here, when, steps):
    [cell] = here.launch()
    assert crash_at_every_step(here, cell, when) == steps
    check_invariants(here)
    check_diagnosed(here)


def check_diagnosed(here: RetestWorld) -> None:
    [found] = attribute_run(here.database.stores, "run")["cloudy"]
    assert found.answer == "subject"
    assert [s.number for s in retest_sessions(here)] == [1, 2, 3]
    assert len(here.plans) == 4, "no agent was started twice"
    assert here.cloud.made == 1


class Dying:
    """A TrialStore whose controller dies, or whose database is away, at every write once."""

    def __init__(self, store, *, after: bool, error: type[BaseException]) -> None:
        self._store, self._after, self._error = store, after, error
        self.struck: set[tuple[str, str]] = set()

    def __getattr__(self, name: str):
        verb = getattr(self._store, name)
        if name not in ("ask", "begin", "end"):
            return verb

        def called(*words, **more):
            write = (name, str(words))
            strikes = write not in self.struck
            self.struck.add(write)
            if strikes and not self._after:
                raise self._error
            answer = verb(*words, **more)
            if strikes:
                raise self._error
            return answer

        return called


@pytest.mark.parametrize("error", [SimulatedCrashError, StoreError])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_every_write_changes_nothing(tmp_path, after, error):
    """Three sittings are asked for, begun and ended: nine writes."""
    dying: list[Dying] = []

    def spoil(store):
        dying.append(Dying(store, after=after, error=error))
        return dying[0]

    here = RetestWorld(
        tmp_path,
        retests=RetestOptions(diagnose=True),
        baseline=BASELINE,
        word=ours_is_one,
        spoil=spoil,
    )
    try:
        [cell] = here.launch()
        died = 0
        while not here.engine.step_logs.get(cell, StepLog()).finished:
            try:
                here.engine.run(cell)
            except SimulatedCrashError:
                died += 1
        assert len(dying[0].struck) == 9
        assert died == (9 if error is SimulatedCrashError else 0)
        check_invariants(here)
        check_diagnosed(here)
    finally:
        here.close()
