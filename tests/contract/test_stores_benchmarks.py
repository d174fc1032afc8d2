"""What benchmarks came to, cell by cell: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from sqlalchemy import delete

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.environment_fingerprint import fingerprint
from orchestrator.domain.outcome import Outcome
from orchestrator.store.tables import BenchmarkPointRow, CellBenchmarkSummaryRow
from tests.databases import NOW, Agent, after, attempt, create, lease

PRODUCT = "proof"
TORCH = {"packages": {"torch": "2.9"}}


def measures(agent: Agent, *samples: float, name: str = "speed", **more: object) -> bytes:
    said = {"metric": name, "samples": list(samples), "unit": "1/s", "direction": "higher"}
    return agent.line("metric", "moe", **said | more)


def conclude(stores, cell_id: str) -> None:
    for state in (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING):
        stores.cells.enter(cell_id, state, at=NOW)
    for state in (CellState.COLLECTING, CellState.RELEASING):
        stores.cells.enter(cell_id, state, at=NOW)
    stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=NOW)


def ran(stores, run_id: str, *samples: float, cell: int = 0, **more: object) -> str:
    """A run whose cell measured this, and is done."""
    cell_id = create(stores, run_id)[cell]
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(agent.line("environment", **TORCH), measures(agent, *samples, **more))
    conclude(stores, cell_id)
    return cell_id


def overview(stores, **asked: object):
    return stores.benchmarks.overview(PRODUCT, **{"runs": 10, **asked})


def track(stores, *, cell: str = "p0", runs: int = 10):
    (benchmark,) = stores.benchmarks.variants(PRODUCT, "moe", "speed")
    return stores.benchmarks.track(benchmark, cell=cell, runs=runs)


def test_a_cell_that_is_done_has_its_metrics_rolled_up(stores):
    ran(stores, "run-1", 10.0, 11.0, 12.0, 13.0, 99.0, params={"batch": 4})
    found = overview(stores)
    (benchmark,) = found.benchmarks
    assert (benchmark.job, benchmark.name, benchmark.unit) == ("moe", "speed", "1/s")
    assert (benchmark.direction, benchmark.params) == ("higher", {"batch": 4})
    ((key, series),) = found.series.items()
    assert key == (benchmark.number, "p0")
    assert list(series.values) == [12.0]
    measuring = found.cells[series.cells[0]]
    assert (measuring.run, measuring.cell, measuring.version) == ("run-1", "p0", "1.10")
    assert (measuring.at, measuring.environment) == (after(0), fingerprint(TORCH, subject="proof"))
    (point,) = stores.benchmarks.points([benchmark.number], series.cells).values()
    assert (point.value, point.low, point.high, point.samples) == (12.0, 11.0, 13.0, 5)


def test_what_still_runs_is_not_told(stores):
    agent = Agent(stores, attempt(stores, create(stores)[0]))
    assert agent.send(measures(agent, 1.0))
    assert overview(stores).series == {}


def test_series_are_in_the_order_of_the_runs_and_the_newest_are_asked(stores):
    for number in range(4):
        ran(stores, f"run-{number}", float(number + 1))
    ((_, series),) = overview(stores, runs=3).series.items()
    assert list(series.values) == [2.0, 3.0, 4.0]
    assert stores.benchmarks.overview("other", runs=3).series == {}


def test_a_series_goes_on_where_other_benchmarks_come_and_go(stores):
    for number in range(4):
        cell_id = create(stores, f"run-{number}")[0]
        agent = Agent(stores, attempt(stores, cell_id))
        said = [measures(agent, float(number + 1))]
        if number % 2:
            said.append(measures(agent, 0.0, name="memory"))
        assert agent.send(*said)
        conclude(stores, cell_id)
    speed, memory = (series for (number, _), series in sorted(overview(stores).series.items()))
    assert list(speed.values) == [1.0, 2.0, 3.0, 4.0]
    assert [overview(stores).cells[cell].run for cell in speed.cells][-1] == "run-3"
    assert list(memory.values) == [0.0, 0.0]


def test_runs_that_measured_nothing_are_not_counted(stores):
    ran(stores, "run-1", 1.0)
    create(stores, "run-2")
    assert [one.run for one in overview(stores, runs=1).cells.values()] == ["run-1"]


def test_benchmarks_are_chosen_by_job_and_name(stores):
    ran(stores, "run-1", 1.0)
    ran(stores, "run-2", 1.0, name="memory")
    for asked, names in (
        ({"contains": "PEE"}, {"speed"}),
        ({"contains": "%"}, set()),
        ({"job": "moe"}, {"speed", "memory"}),
        ({"job": "other"}, set()),
    ):
        found = overview(stores, **asked)
        assert {one.name for one in found.benchmarks} == names
        assert len(found.series) == len(names)


def test_other_units_and_parameters_are_other_benchmarks(stores):
    for number, more in enumerate([{}, {"unit": "ms"}, {"params": {"n": 1}}]):
        ran(stores, f"run-{number}", 1.0, **more)
    assert len(stores.benchmarks.variants(PRODUCT, "moe", "speed")) == 3
    assert stores.benchmarks.jobs(PRODUCT) == ["moe"]


def test_of_a_job_that_was_tried_again_the_last_attempt_counts(stores):
    cell_id = create(stores, "run-1")[0]
    first = Agent(stores, attempt(stores, cell_id))
    assert first.send(measures(first, 1.0))
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    stores.cells.requeue(f"{cell_id}-1", Cause(Outcome.ERRORED, "lost"), at=NOW)
    again = Agent(stores, attempt(stores, cell_id, 2))
    assert again.send(again.line("phase", "moe", name="started"), measures(again, 2.0))
    conclude(stores, cell_id)
    assert [point.value for point in track(stores).points] == [2.0]


def test_of_a_pairing_the_point_is_the_median_of_the_subject_s_turns(stores):
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    turns = [("subject", 10.0), ("baseline", 9.0), ("baseline", 9.5), ("subject", 12.0)]
    said = [measures(agent, v, arm=arm, turn=n) for n, (arm, v) in enumerate(turns)]
    assert agent.send(*said)
    conclude(stores, cell_id)
    found = track(stores)
    assert [(point.value, point.samples) for point in found.points] == [(11.0, 2)]
    assert list(samples_of(stores, found).values()) == [[10.0, 12.0]]


def samples_of(stores, found, most: int = 20):
    cells = [point.cell for point in found.points]
    return stores.benchmarks.samples(found.benchmark, cells, most=most)


def test_samples_are_told_for_a_chart_and_thinned_where_they_are_many(stores):
    ran(stores, "run-1", *map(float, range(101)))
    found = track(stores)
    assert len(next(iter(samples_of(stores, found, 200).values()))) == 101
    assert list(samples_of(stores, found, 5).values()) == [[0.0, 25.0, 50.0, 75.0, 100.0]]


def test_what_a_simulated_machine_measured_is_left_out(stores):
    cell_id = create(stores, "run-1")[0]
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(measures(agent, 1.0))
    stores.leases.reserve(lease("l1", f"{cell_id}-1"), run_id="run-1", exclusive=False)
    stores.leases.note("l1", {}, simulated=True)
    conclude(stores, cell_id)
    assert overview(stores).series == {}


def test_a_track_says_how_much_is_older_and_which_platforms_there_are(stores):
    for number in range(3):
        ran(stores, f"run-{number}", float(number))
    ran(stores, "run-3", 9.0, cell=1)
    found = track(stores, runs=2)
    assert ([point.value for point in found.points], found.older) == ([1.0, 2.0], 1)
    assert stores.benchmarks.platforms(found.benchmark.number) == ["p1", "p0"]
    told = stores.benchmarks.environments([found.points[0].cell])
    assert list(told.values()) == [TORCH]


def test_two_cells_are_set_beside_each_other(stores):
    one, other = ran(stores, "run-1", 1.0), ran(stores, "run-2", 2.0)
    third = ran(stores, "run-3", 3.0, name="memory")
    (found,) = stores.benchmarks.beside([(one, third), (one, other)]).items()
    (pair, benchmark), (before, after) = found
    assert (pair, before.value, after.value) == (1, 1.0, 2.0)
    assert stores.benchmarks.known([benchmark])[benchmark].name == "speed"
    assert not stores.benchmarks.beside([])


def test_what_was_stored_before_there_were_points_is_rolled_up_later(stores, database):
    ran(stores, "run-1", 1.0)
    with database.sessions.write() as session:
        for table in (CellBenchmarkSummaryRow, BenchmarkPointRow):
            session.execute(delete(table))
    assert overview(stores).series == {}
    assert stores.benchmarks.roll_up(limit=10) == 1
    assert stores.benchmarks.roll_up(limit=10) == 0
    assert len(overview(stores).series) == 1


def test_samples_that_are_no_numbers_make_no_point(stores):
    ran(stores, "run-1", float("inf"), float("nan"))
    assert overview(stores).series == {}
