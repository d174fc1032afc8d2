"""How long tests and jobs took, and how long a job may be silent for that."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.application.cell.preparing import IdleTimeout, idle_timeouts
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from tests.databases import NOW, Agent, attempt, create
from tests.databases import advance as brought_to

SLOW, QUICK, HUNG = (f"t.py::test_{name}" for name in ("slow", "quick", "hung"))


def took(
    agent: Agent, nodeid: str, seconds: float, outcome: str = "passed", **more: object
) -> bytes:
    """A test whose call took so long."""
    said = {"record": "report", "nodeid": nodeid, "outcome": outcome, "duration": seconds}
    return agent.line("test", "unit", **said, when="call", **more) + agent.line(
        "test", "unit", **said | {"outcome": "passed", "duration": 0.0}, when="teardown"
    )


def ran(stores, run_id, *, state=CellState.DONE, silence=0.0, slow=300.0):
    """A finished cell with a slow test, a quick one and one that hung."""
    cell_id = create(stores, run_id)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    finished = {"name": "finished", "exit_code": 0, "cause": None, "longest_idle_s": silence}
    agent.send(
        took(agent, SLOW, slow),
        took(agent, QUICK, 1.0),
        took(agent, HUNG, 900.0, "failed", cause="hung", longrepr="nothing heard"),
        agent.line("phase", "unit", **finished),
    )
    brought_to(stores, cell_id, CellState.RELEASING)
    if state is CellState.DONE:
        stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=NOW)
    return cell_id


def test_only_what_came_to_its_own_end_in_finished_cells_is_known(stores):
    product = stores.runs.spec(ran(stores, "run-1").split(".")[0]).manifest.name
    ran(stores, "run-2", slow=200.0, silence=150.0)
    ran(stores, "run-3", slow=999.0, state=CellState.RELEASING)
    durations = stores.durations
    assert durations.longest(product, ["unit"])[1] == {"unit": {SLOW: 300.0}}
    assert durations.longest(product, ["other"])[1] == {}
    assert durations.longest("another", ["unit"])[1] == {}
    assert durations.longest(product, ["unit"])[0] == {"unit": 150.0}


def ran_quickly(stores, run_id, job="unit", *, skip="", quick=1.0):
    """A finished cell of a job in which one test is quick, and one may be skipped."""
    cell_id = create(stores, run_id)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    said = took(agent, QUICK, quick)
    if skip:
        said += took(agent, skip, 0.0, "skipped", longrepr="no GPU")
    finished = {"name": "finished", "exit_code": 0, "cause": None, "longest_idle_s": 1.0}
    agent.send(said, agent.line("phase", job, **finished))
    brought_to(stores, cell_id, CellState.RELEASING)
    stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=NOW)


def test_a_slow_test_that_newer_runs_leave_out_is_remembered(stores):
    product = stores.runs.spec(ran(stores, "run-00", silence=150.0).split(".")[0]).manifest.name
    for number in range(1, 22):
        ran_quickly(stores, f"run-{number:02}", "other", skip=SLOW)
    durations = stores.durations
    assert durations.longest(product, ["unit"])[1] == {"unit": {SLOW: 300.0}}
    assert durations.longest(product, ["unit", "other"])[0] == {"unit": 150.0, "other": 1.0}


def test_only_the_newest_twenty_results_of_a_test_count(stores):
    product = stores.runs.spec(ran(stores, "run-00", slow=300.0).split(".")[0]).manifest.name
    for number in range(1, 20):
        ran(stores, f"run-{number:02}", slow=91.0)
    durations = stores.durations
    assert durations.longest(product, ["unit"])[1] == {"unit": {SLOW: 300.0}}
    ran(stores, "run-20", slow=91.0)
    assert durations.longest(product, ["unit"])[1] == {"unit": {SLOW: 91.0}}
    for number in range(21, 41):
        ran(stores, f"run-{number}", slow=90.0)
    assert durations.longest(product, ["unit"])[1] == {}


def test_a_test_known_to_take_five_minutes_may_be_silent_for_ten(stores):
    ran(stores, "run-1", silence=20.0)
    cell = create(stores, "run-2")[0]
    now = stores.cells.attempt_state(attempt(stores, cell))
    found = idle_timeouts(stores, now)
    assert found["unit"] == IdleTimeout(180.0, {SLOW: 600.0})


def test_the_source_of_an_idle_timeout_is_known(stores):
    ran(stores, "run-1", silence=150.0)
    now = stores.cells.attempt_state(attempt(stores, create(stores, "run-2")[0]))
    assert idle_timeouts(stores, now)["unit"].seconds == 300.0
    assert idle_timeouts(stores, now)["unit"].source == "durations"
    jobs = [replace(job, idle_timeout_minutes=0.4) for job in now.spec.manifest.job]
    spec = replace(now.spec, manifest=replace(now.spec.manifest, job=tuple(jobs)))
    assert idle_timeouts(stores, replace(now, spec=spec))["unit"] == IdleTimeout(
        24.0, source="payload"
    )
    selections = [replace(one, idle_timeout_minutes=1.0) for one in spec.matrix.jobs]
    spec = replace(spec, matrix=replace(spec.matrix, jobs=tuple(selections)))
    assert idle_timeouts(stores, replace(now, spec=spec))["unit"] == IdleTimeout(
        60.0, source="matrix"
    )


def test_a_test_of_a_little_more_than_half_the_idle_timeout_has_a_longer_one(stores):
    ran(stores, "run-1", slow=90.5)
    now = stores.cells.attempt_state(attempt(stores, create(stores, "run-2")[0]))
    assert idle_timeouts(stores, now)["unit"] == IdleTimeout(180.0, {SLOW: 181.0})


def test_the_slowest_tests_of_a_run_are_told_with_what_they_took_before(stores):
    for number, seconds in enumerate((100.0, 140.0, 120.0, 240.0), 1):
        ran(stores, f"run-{number}", slow=seconds)
    hung, slow, quick = stores.durations.slowest("run-4", limit=10)
    assert (hung.nodeid, hung.duration_s, hung.earlier_s, hung.change) == (HUNG, 900.0, (), None)
    assert (slow.nodeid, slow.cell, slow.job, slow.outcome) == (SLOW, "p0", "unit", "passed")
    assert slow.earlier_s == (100.0, 140.0, 120.0)
    assert (slow.usual_s, slow.change) == (120.0, 1.0)
    assert (quick.nodeid, quick.change) == (QUICK, 0.0)
    assert [one.nodeid for one in stores.durations.slowest("run-4", limit=1)] == [HUNG]
    assert stores.durations.slowest("run-4", cell="p1", limit=10) == []
    assert stores.durations.slowest("run-9", limit=10) == []


def test_a_job_may_have_the_name_of_a_keyword(stores) -> None:
    jobs = ["nothing", "select", "order", "x" * 80, *(f"job-{number}" for number in range(250))]
    assert stores.durations.longest("proof", jobs)[0] == {}
