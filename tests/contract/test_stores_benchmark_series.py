"""What benchmarks measured over many runs: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from tests.databases import NOW, Agent, after, attempt, create, lease


def measures(agent: Agent, *samples: float, name: str = "tokens_per_s", **more: object) -> bytes:
    said = {"metric": name, "samples": list(samples), "unit": "1/s", "direction": "higher"}
    return agent.line("metric", "moe", **said, **more)


def ran(stores, run_id: str, *samples: float, cell: int = 0, **more: object) -> str:
    """A run whose cell measured this."""
    cell_id = create(stores, run_id)[cell]
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(
        agent.line("environment", packages={"torch": "2.9"}), measures(agent, *samples, **more)
    )
    return cell_id


def found(stores, *, job: str = "moe", metric: str = "tokens_per_s", product=None, runs: int = 10):
    return stores.benchmark_series.of_benchmark(job, metric, product=product, runs=runs)


def test_each_run_s_metric_is_found_in_the_order_of_the_runs(stores):
    ran(stores, "run-1", 10.0, 11.0)
    ran(stores, "run-2", 12.0, cell=1, params={"batch": 4})
    first, second = found(stores)
    assert (first.run, first.cell, first.platform, first.version) == ("run-1", "p0", "p0", "1.10")
    assert (first.at, first.fact.samples, first.fact.unit) == (after(0), (10.0, 11.0), "1/s")
    assert first.probed == {"packages": {"torch": "2.9"}}
    assert (second.run, second.cell, second.fact.params) == ("run-2", "p1", {"batch": 4})


def test_only_the_newest_runs_of_the_product_are_asked(stores):
    for number in range(4):
        ran(stores, f"run-{number}", float(number + 1))
    assert [one.run for one in found(stores, runs=2)] == ["run-2", "run-3"]
    assert [one.run for one in found(stores, product="proof", runs=1)] == ["run-3"]
    assert found(stores, product="other") == []


def test_other_jobs_and_other_metrics_are_not_meant(stores):
    ran(stores, "run-1", 1.0)
    assert found(stores, job="fp8") == []
    assert found(stores, metric="latency_ms") == []


def test_of_a_job_that_was_tried_again_the_last_attempt_counts(stores):
    cell_id = ran(stores, "run-1", 1.0)
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    stores.cells.requeue(f"{cell_id}-1", Cause(Outcome.ERRORED, "lost"), at=NOW)
    again = Agent(stores, attempt(stores, cell_id, 2))
    assert again.send(again.line("phase", "moe", name="started"), measures(again, 2.0))
    assert [one.fact.samples for one in found(stores)] == [(2.0,)]


def test_of_a_pairing_the_subject_s_turns_are_told(stores):
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    assert agent.send(
        *(
            measures(agent, value, arm=arm, turn=turn)
            for turn, (arm, value) in enumerate(
                [("subject", 10.0), ("baseline", 9.0), ("baseline", 9.5), ("subject", 11.0)]
            )
        )
    )
    told = [(one.fact.arm, one.fact.turn, one.fact.samples) for one in found(stores)]
    assert told == [("subject", 0, (10.0,)), ("subject", 3, (11.0,))]


def test_what_a_simulated_machine_measured_is_left_out(stores):
    cell_id = ran(stores, "run-1", 1.0)
    one = lease("l1", f"{cell_id}-1")
    stores.leases.reserve(one, run_id="run-1", exclusive=False)
    assert len(found(stores)) == 1
    stores.leases.note("l1", {}, simulated=True)
    assert found(stores) == []
